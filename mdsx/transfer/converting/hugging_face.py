"""The source of Hugging Face datasets: `mdsx convert hf`.

A source is a folder that `save_to_disk` wrote, another folder that `load_dataset` reads, or a dataset on the Hub. A
unit is a range of rows or, if streamed, one of the dataset's shards. Rows are read as Arrow tables. Images and audio
stay encoded, and are written as they are.
"""

from __future__ import annotations

import functools
import os
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from typing import Any, ClassVar, NamedTuple

import msgspec
import xxhash

from mdsx.errors import (
    CorruptError,
    MdsxError,
    SampleError,
    TransportError,
    UsageError,
    restated,
    shown,
)
from mdsx.foreign.arrow import KEPT_SCHEMA, arrow_type, column_type, encode_batch, schema_text
from mdsx.format import BYTES, JSON, MSGPACK, PICTURES, Encoder, Schema, parse_type
from mdsx.secret import Secret, revealed
from mdsx.transfer.converting.files import File, local_files
from mdsx.transfer.converting.hf_loading import commit_of, is_saved, library, load, load_saved, saved_files
from mdsx.transfer.converting.naming import Naming
from mdsx.transfer.converting.source import Block, Request, Row, SampleSource, Unit, is_about

UNIT = 2**25  # about this many bytes; a constant, because a conversion continues only with the same units
_BATCH, _ROWS = 2**22, 4096  # about this many bytes, and at most this many rows, in a table
_STREAMED = 64  # rows of a table whose size is unknown before


def open_source(
    request: Request,
    *,
    name: str | None = None,
    split: str | None = None,
    revision: str | None = None,
    streaming: bool = False,
    embed: bool = False,
    outside: bool = False,
) -> HuggingFace:
    """Return the source of a Hugging Face dataset.

    `name`: its configuration; `split`: optional if there is only one. `revision`: of a dataset on the Hub.
    `streaming`: read it without downloading it first. `embed`: read files that rows name by path or URL. `outside`:
    read data files outside the dataset's folder. Raise MissingError or UsageError.
    """
    if len(request.sources) != 1:
        message = "give exactly one Hugging Face dataset"
        raise UsageError(message, found=", ".join(map(str, request.sources))[:200] or "none")
    url = str(request.sources[0]).removeprefix("hf://datasets/")
    if "://" in url:
        hint = "copy it to this machine first"
        raise UsageError("is neither a folder on this machine nor a name on the Hub", file=url, hint=hint)
    folder, saved = os.path.isdir(url), is_saved(url)
    for option, value, usable in (("name", name, not saved), ("streaming", streaming, not saved),
                                  ("revision", revision, not folder)):  # fmt: skip
        if value and not usable:
            raise UsageError(f"{option} does not apply to this kind of folder", file=url, found=shown(value))
    if saved:
        loaded = load_saved(url, outside=outside)
    else:
        if folder:
            _check_output(request.out, url)
        given = (request.options or {}).get("token")
        token = given and Secret(revealed(given))
        revision = None if folder else commit_of(url, revision, token)
        loaded = load(url, name, split, revision, token, streaming=streaming, outside=outside)
    dataset, split = _only_split(loaded, split, url)
    origin = {"name": name, "split": split, "revision": revision}
    if saved:
        origin["fingerprint"] = dataset._fingerprint
    kind = Streamed if streaming else Rows
    return kind(request, dataset, _file(url, split, revision, saved=saved), origin, embed=embed)


def _only_split(loaded: Any, split: str | None, url: str) -> tuple[Any, str | None]:
    """Return the dataset to convert, and the name of its split."""
    if not isinstance(loaded, dict):
        return loaded, split or (None if loaded.split is None else str(loaded.split))
    if split is None and len(loaded) == 1:
        split = str(next(iter(loaded)))
    if split not in loaded:
        message, splits = "there is no such split", ", ".join(map(str, loaded))
        if split is None:
            message = "the dataset has several splits"
        raise UsageError(message, file=url, found=split, expected=splits, hint="give --split")
    return loaded[split], split


def _check_output(out: str | None, folder: str) -> None:
    """Raise UsageError for an output inside the dataset's folder, where `load_dataset` would read it as data."""
    if out is None or "://" in out:
        return
    inside = os.path.realpath(folder)
    if os.path.commonpath([inside, os.path.realpath(out)]) == inside:
        message, hint = "the output is inside the dataset's folder, and would become part of it", "give another output"
        raise UsageError(message, file=out, expected=f"a folder outside of {folder}", hint=hint)


def _file(url: str, split: str | None, revision: str | None, *, saved: bool) -> File:
    """Return a File that identifies a dataset by the content of its files, or by its commit on the Hub."""
    if revision is not None:
        return File(f"hf://datasets/{url}@{revision}", 0, "", revision)
    folder = os.path.abspath(url)
    if saved:
        folder, names = saved_files(folder, split)
    else:
        paths = (os.path.join(root, name) for root, _, names in os.walk(folder) for name in names)
        names = sorted(os.path.relpath(path, folder) for path in paths)
    files = [_local_file(os.path.normpath(os.path.join(folder, name))) for name in names]
    found = [(name, file.size, file.content) for name, file in zip(names, files, strict=True)]
    size = sum(file.size for file in files)
    return File(folder, size, "", xxhash.xxh3_128_hexdigest(msgspec.json.encode(found)))


def _local_file(path: str) -> File:
    folder, name = os.path.split(path)
    return local_files(folder, [name])[name]


class _Row(NamedTuple):
    """Row `number` of the dataset or, if streamed, of its shard, as a table of one row."""

    unit: Unit
    number: int
    table: Any
    columns: Mapping[str, str]


class HuggingFace(SampleSource):
    """A Hugging Face dataset. Its pickle has the names of files, not the data."""

    kind: ClassVar[str] = "hf"

    def __init__(self, request: Request, dataset: Any, file: File, origin: Mapping[str, Any], *, embed: bool) -> None:
        self._naming = Naming.parse(request.rename, request.drop, request.declared)
        self._declared, self._embed, self._origin = request.declared, embed, origin
        self._dataset = dataset.with_format("arrow")
        self._features: dict[str, Any] = {}
        self.files = [file]
        self.settings = {"embed": embed, **origin, **self._naming.settings}

    @abstractmethod
    def tables(self, unit: Unit) -> Generator[Any, None, None]:
        """Yield the rows of a unit, as tables."""

    @abstractmethod
    def nulls(self, column: str, first: Any) -> int:
        """Return how many nulls a column is known to have, without reading it. `first`: the first rows."""

    # --- columns

    def columns(self) -> tuple[dict[str, str], list[str]]:
        file = self.files[0].url
        tables = (table for unit in self.units for table in self.tables(unit))
        first = next(_reading(tables, file), None)
        if first is None:
            raise UsageError("the dataset has no samples", file=file)
        names = self._naming.names(first.column_names, file=file)
        if unknown := self._declared.keys() - set(names.values()):
            raise UsageError("--column names a column that does not exist", file=file, found=min(unknown))
        features = self._features = dict(library().Features.from_arrow_schema(first.schema))
        first, columns = self._kept(first), {}
        for old, name in names.items():
            nullable = self.nulls(old, first[name]) > 0
            columns[name] = self._declared.get(name) or self._type(features[old], first[name], name, nullable)
        return columns, []

    def _type(self, feature: Any, values: Any, name: str, nullable: bool) -> str:
        """Return the type for a column that begins with these values."""
        if isinstance(feature, library().Image):
            files = [value for value in values.to_pylist() if value is not None]
            if any(value["bytes"] is None for value in files):
                message, hint = "rows have only the paths of images, not their bytes", "give --embed to read the files"
                raise UsageError(message, file=self.files[0].url, place=f"column {name!r}", hint=hint)
            looks = [base.name for base in PICTURES if all(base.matches(file["bytes"]) for file in files)]
            base = looks[0] if len(looks) == 1 else BYTES.name
            return f"{base}?" if nullable else base
        if _is_array(feature):
            dims = ",".join("*" if size is None else str(size) for size in feature.shape)
            return f"{feature.dtype}[{dims}]{'?' if nullable else ''}"
        return str(column_type(values.type, nullable=nullable))

    def metadata(self, columns: Mapping[str, str]) -> dict[str, Any]:
        """Return the dataset's origin, the names of its classes, and its Arrow types with all features."""
        names = self._naming.names(self._features, file=self.files[0].url)
        kept = library().Features({name: self._features[old] for old, name in names.items()})
        schema = kept.arrow_schema
        for place, (name, feature) in enumerate(kept.items()):
            if _is_array(feature):  # its own Arrow type is known only to datasets
                schema = schema.set(place, schema.field(place).with_type(arrow_type(parse_type(columns[name]))))
        classes = {name: found for name, feature in kept.items() if (found := _class_names(feature))}
        return {
            KEPT_SCHEMA: schema_text(schema),
            "huggingface": {name: value for name, value in self._origin.items() if value is not None},
            **({"class_names": classes} if classes else {}),
        }

    # --- samples

    def read(
        self, unit: Unit, columns: Mapping[str, str], count: Callable[[int], object]
    ) -> Generator[Row | Block | MdsxError, None, None]:
        """Yield the rows of a unit, as blocks."""
        first = self._first(unit)
        with closing(_reading(self.tables(unit), self.files[0].url)) as tables:
            for table in tables:
                kept = self._kept(table)
                yield Block(kept, kept.num_rows, functools.partial(_row, unit, first, kept, columns))
                first += kept.num_rows
                count(table.nbytes)

    def _first(self, unit: Unit) -> int:
        """Return the number of a unit's first row."""
        return 0

    def _kept(self, table: Any) -> Any:
        """Return the columns of a table to convert, under their new names."""
        names = self._naming.names(table.column_names, file=self.files[0].url)
        table = table.select([*names])
        if self._embed:
            table = library().table.embed_table_storage(table)
        return table.rename_columns([*names.values()])

    # --- errors

    def place_of(self, place: Any) -> str:
        return f"row {place.number}"

    def refused(self, unit: Unit, place: Any, error: SampleError) -> SampleError:
        """Return the writer's error for a row, with the option that would accept its value."""
        refused = super().refused(unit, place, error)
        hint = next((_hint(name, place) for name in place.columns if is_about(refused, name)), None)
        return restated(refused, hint=hint or refused.hint)


class Rows(HuggingFace):
    """A dataset on disk, in the order of its rows; if it was selected from or shuffled, in the order of its indices."""

    def __init__(self, request: Request, dataset: Any, file: File, origin: Mapping[str, Any], *, embed: bool) -> None:
        super().__init__(request, dataset, file, origin, embed=embed)
        data, rows = self._dataset.data, len(self._dataset)
        self._row_size = max(data.nbytes / max(data.num_rows, 1), 1)
        step = max(int(UNIT / self._row_size), 1)
        starts = range(0, rows, step)
        self.units = [self._unit(start, min(start + step, rows)) for start in starts] or [self._unit(0, 0)]

    def _unit(self, start: int, stop: int) -> Unit:
        return Unit(0, start, stop, int((stop - start) * self._row_size))

    def _first(self, unit: Unit) -> int:
        return unit.start

    def tables(self, unit: Unit) -> Generator[Any, None, None]:
        step = min(max(int(_BATCH / self._row_size), 1), _ROWS)
        for start in range(unit.start, unit.stop, step):
            yield self._dataset[start : min(start + step, unit.stop)]

    def nulls(self, column: str, first: Any) -> int:
        return int(self._dataset.data.column(column).null_count)


class Streamed(HuggingFace):
    """A streamed dataset, read shard by shard."""

    def __init__(self, request: Request, dataset: Any, file: File, origin: Mapping[str, Any], *, embed: bool) -> None:
        super().__init__(request, dataset, file, origin, embed=embed)
        shards = self._dataset.num_shards
        size = (dataset.info.download_size or file.size or shards) // shards
        self.units = [Unit(0, shard, shard + 1, size) for shard in range(shards)]
        self.settings = {**self.settings, "streaming": True}

    def tables(self, unit: Unit) -> Generator[Any, None, None]:
        shard = self._dataset.shard(num_shards=len(self.units), index=unit.start)
        yield from shard.iter(batch_size=_STREAMED)

    def nulls(self, column: str, first: Any) -> int:
        return int(first.null_count)

    def place_of(self, place: Any) -> str:
        return f"shard {place.unit.start}, row {place.number}"


def _reading(tables: Iterator[Any], file: str) -> Generator[Any, None, None]:
    """Yield what `tables` yields. Convert errors of datasets and Arrow to ours."""
    while True:
        try:
            table = next(tables, None)
        except OSError as error:
            raise TransportError(f"datasets cannot read it: {error}", file=file) from None
        except ValueError as error:  # base of Arrow's errors for invalid data
            raise CorruptError(f"datasets cannot read it: {error}", file=file) from None
        if table is None:
            return
        yield table


def _row(unit: Unit, first: int, table: Any, columns: Mapping[str, str], number: int) -> _Row:
    return _Row(unit, first + number, table.slice(number, 1), columns)


def _hint(name: str, row: _Row) -> str | None:
    """Return the option with which a column would accept its value in `row`, which it refused."""
    kind = parse_type(row.columns[name])
    base, stars = str(kind).removesuffix("?"), ",".join("*" * len(kind.shape or ()))
    mark = "?" if kind.nullable else ""
    wider = [f"{base}?", f"{kind.base}[{stars}]{mark}" if stars else base, *(f"{other}{mark}" for other in _OTHERS)]
    for text in wider:
        try:
            encode_batch(Encoder(Schema.from_columns({name: text})), row.table.select([name]))
        except SampleError:
            continue
        return f"--column '{name}={text}' would accept it"
    return None


_OTHERS = (BYTES.name, JSON.name, MSGPACK.name)


def _is_array(feature: Any) -> bool:
    known = library()
    return isinstance(feature, known.Array2D | known.Array3D | known.Array4D | known.Array5D)


def _class_names(feature: Any) -> list[str] | None:
    """Return the class names for the numbers in a column, or in its lists."""
    inner = getattr(feature, "feature", feature)
    return list(inner.names) if isinstance(inner, library().ClassLabel) else None
