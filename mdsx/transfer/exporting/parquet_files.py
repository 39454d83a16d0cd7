"""Export to Parquet files, through Arrow. No Python objects are made for values, except for JSON that becomes a struct.

Columns get back their original types if these are known: from the schema that a converter kept in the metadata, or
because the dataset is Parquet itself, read in place. Other columns have the types in docs/writing.md.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mdsx.base.warn import warn
from mdsx.datasets import arrow_type_of, excerpt_of
from mdsx.errors import UsageError, restated
from mdsx.foreign.arrow import (
    KEPT_SCHEMA,
    can_restore,
    has_empty_lists,
    json_texts,
    pa,
    parse_schema,
    restore,
    to_table,
    without_null_types,
)
from mdsx.foreign.parquet import ParquetFile, ParquetIndex
from mdsx.format import Refused, Schema
from mdsx.storage import file_of
from mdsx.transfer.exporting.kinds import misfit

if TYPE_CHECKING:
    from mdsx.datasets import Dataset
    from mdsx.shards import Columns, Shards


@dataclass(frozen=True)
class Parquets:
    """Parquet files of the columns of `schema`, in the types of `arrow_schema`, of the dataset `url`."""

    schema: Schema
    arrow_schema: Any
    compression: tuple[str, int | None]
    group_size: int
    url: str

    suffix = ".parquet"
    joined = True

    @property
    def options(self) -> Mapping[str, str]:
        name, level = self.compression
        return {"compression": name if level is None else f"{name}:{level}", "row_group_size": str(self.group_size)}

    def forms(self) -> dict[str, str]:
        return {field.name: str(field.type) for field in self.arrow_schema}

    def file(self) -> ExportedParquet:
        return ExportedParquet(self)


class ExportedParquet:
    """A Parquet file that is being made."""

    def __init__(self, kind: Parquets) -> None:
        name, level = kind.compression
        self._kind = kind
        self._file = ParquetFile(kind.arrow_schema, group_size=kind.group_size, compression=name, level=level)

    def add(self, columns: Columns, first: int) -> None:
        kind, arrays = self._kind, []
        for column, field in zip(kind.schema.columns, kind.arrow_schema, strict=True):
            type, values = column.type, columns[column.name]
            place = f"samples from {first} on, column {column.name!r}"
            try:
                if type.foreign is not None and type.kind == "document":
                    values, type = json_texts(values, type), replace(type, foreign=None)
                found = to_table(Schema((replace(column, type=type),)), {column.name: values}).column(0)
                arrays.append(pa.chunked_array([restore(each, type, field.type) for each in found.chunks], field.type))
            except Refused as refused:
                found_text, hint = str(refused.found), f"--drop {shlex.quote(column.name)} leaves the column out"
                raise misfit(
                    kind.url, first + refused.at[0], column.name, "JSON cannot hold the value",
                    found=found_text, expected=refused.expected, hint=hint,
                ) from None  # fmt: skip
            except UsageError as error:
                hint = f"--drop {shlex.quote(column.name)} leaves the column out"
                raise restated(error, file=kind.url, place=place, hint=hint) from None
        self._file.add(pa.Table.from_arrays(arrays, schema=kind.arrow_schema))

    def finish(self) -> memoryview:
        return self._file.finish()


# --- the Arrow types


def arrow_schema_of(dataset: Dataset) -> Any:
    """Return the `pyarrow.Schema` for an export of `dataset`. Raise UsageError for a column that Arrow cannot hold, or
    that pyarrow could not read again."""
    excerpt = excerpt_of(dataset)
    columns, datasets = excerpt.schema.columns, excerpt.datasets
    kept = {home: _kept_schema(datasets[home], dataset.url) for home in set(excerpt.homes)}
    fields, whole = [], len(kept) == 1
    for column, home, number in zip(columns, excerpt.homes, excerpt.columns, strict=True):
        schema, stored = kept[home], datasets[home].schema.columns[number].name
        place = -1 if schema is None else schema.get_field_index(stored)  # -1 also for a name that occurs twice
        whole = whole and place >= 0 and stored == column.name
        if place >= 0 and can_restore(column.type, schema.field(place).type):
            fields.append(schema.field(place).with_name(column.name))
            continue
        if place >= 0:
            wanted = schema.field(place).type
            warn(f"{dataset.url}: column {column.name!r} of type '{column.type}' is not exported as Arrow's {wanted}")
        fields.append(pa.field(column.name, arrow_type_of(dataset, column)))
    for field in fields:
        if has_empty_lists(field.type):
            message, place = "pyarrow cannot read lists of size 0 from Parquet", f"column {field.name!r}"
            hint = f"--drop {shlex.quote(field.name)} leaves the column out"
            raise UsageError(message, file=dataset.url, place=place, found=str(field.type), hint=hint)
    found = pa.schema(fields)
    (only, *_) = kept.values()
    if whole and only is not None and len(only) == len(found):
        found = found.with_metadata(only.metadata)  # it may describe the columns, as with datasets and pandas
    return found


def _kept_schema(shards: Shards, url: str) -> Any:
    """Return the `pyarrow.Schema` that the columns had originally, or None if unknown."""
    index = shards.index
    if isinstance(index, ParquetIndex):
        return _schema_of_files(shards, index)
    text = index.metadata.get(KEPT_SCHEMA)
    if not isinstance(text, str):
        return None
    try:
        return parse_schema(text)
    except ValueError as error:
        warn(f"{url}: the metadata {KEPT_SCHEMA!r} is not an Arrow schema, so its types are ignored: {error}")
        return None


def _schema_of_files(shards: Shards, index: ParquetIndex) -> Any:
    """Return the schema of the first file. For columns of Arrow's null type, take the type from the next file that has
    one."""
    found, names = None, None
    columns = {column.name for column in index.schema.columns}
    for shard in range(len(index.counts)):
        if (name := index.name(shard)) == names:
            continue
        names = name
        schema = _read_schema(shards, index, shard)
        found = schema if found is None else without_null_types(found, schema)
        if not any(pa.types.is_null(field.type) and field.name in columns for field in found):
            break
    return found


def _read_schema(shards: Shards, index: ParquetIndex, shard: int) -> Any:
    storage, key = shards.storage, index.name(shard)
    reading = index.read_schema(shard, file=file_of(storage, key))
    ranges: Sequence[tuple[int, int]] = next(reading)
    while True:
        pieces = [storage.get(key, start=start, stop=stop).data for start, stop in ranges]
        try:
            ranges = reading.send([memoryview(piece) for piece in pieces])
        except StopIteration as end:
            return end.value
