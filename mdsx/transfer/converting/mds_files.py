"""The source of MDS datasets: a unit is a shard, which is read whole.

If a shard fails its hashes, none of its samples is used. Otherwise only the samples that cannot be decoded are errors.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from io import BytesIO
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import FormatError, MdsxError, SampleError, UsageError, shown
from mdsx.format import (
    JPEG,
    PNG,
    PYTHON,
    STR,
    ColumnType,
    OpenedShard,
    Refused,
    Schema,
    StoredIndex,
    as_lists,
    batch_error,
    parse_type,
)
from mdsx.shards import Columns, DatasetSlice, Shards, View, download_shard, read_index
from mdsx.storage import Storage, StorageOptions, open_storage
from mdsx.transfer.converting.files import File
from mdsx.transfer.converting.naming import Naming
from mdsx.transfer.converting.source import Block, Lost, Request, Row, SampleSource, Unit

_FIRST = 64  # samples that show the types of columns whose encoding does not determine them
_BLOCK_BYTES, _BLOCK_SAMPLES = 2**23, 4096


def open_source(request: Request) -> MdsFiles:
    """Return the source of MDS datasets, one after the other. Raise UsageError, MissingError or FormatError."""
    return MdsFiles(request)


class MdsFiles(SampleSource):
    """The shards of MDS datasets with the same columns."""

    kind: ClassVar[str] = "mds"

    def __init__(self, request: Request) -> None:
        self._options, self._declared, self._skip = request.options, dict(request.declared), request.skip
        self._opened: dict[int, _Opened] = {}
        self.files, self.units, naming = [], [], Naming.parse(request.rename, request.drop, request.declared)
        if not request.sources:
            raise UsageError("no dataset is named")
        for number, url in enumerate(request.sources):
            storage = open_storage(url, request.options)
            index, file = read_index(storage), storage.url
            if index.format != "MDS":
                raise UsageError("is not an MDS dataset", file=file, found=f"a dataset of the format {index.format}")
            self.files.append(File(file, int(index.sizes.sum()), "", index.fingerprint))
            self.units += [Unit(number, shard, shard + 1, size) for shard, size in enumerate(index.sizes.tolist())]
            kinds = {column.name: str(column.type) for column in index.schema.columns}
            if number == 0:
                self._names, self._kinds = naming.names(kinds, file=file), kinds
            elif kinds != self._kinds:
                message = "the datasets have different columns"
                raise UsageError(message, file=file, found=shown(kinds), expected=shown(self._kinds))
        self.settings = naming.settings

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": {}}

    def columns(self) -> tuple[dict[str, str], list[str]]:
        schema = {column.name: column.type for column in self._dataset(0).index.schema.columns}
        found, first = {}, self._first_values()
        for old, new in self._names.items():
            kind = self._declared.get(new) or _type_of(old, schema[old], first[old], self.files[0].url)
            found[new] = str(Schema.from_columns({new: kind}).columns[0].type)
        if unknown := sorted(self._declared.keys() - found.keys()):
            raise UsageError("there is no such column", found=unknown[0], expected=", ".join(found))
        return found, []

    def _first_values(self) -> Columns:
        for unit in self.units:
            values: dict[str, list[Any]] = {name: [] for name in self._names}
            for found in self._blocks(unit, most=_FIRST, blocks=1):
                if isinstance(found, _Samples):
                    for name in values:
                        values[name].extend(found.values[name])
                elif not self._skip:
                    raise found.error if isinstance(found, Lost) else found
            if any(values.values()):
                return values
        raise UsageError("there is no sample in the datasets", file=self.files[0].url)

    def read(
        self, unit: Unit, columns: Mapping[str, str], count: Callable[[int], object]
    ) -> Generator[Row | Block | Lost | MdsxError, None, None]:
        for found in self._blocks(unit):
            if not isinstance(found, _Samples):
                yield found
                continue
            first, samples, values = found
            count(unit.size * samples // max(int(self._dataset(unit.file).index.counts[unit.start]), 1))
            given = {new: values[old] for old, new in self._names.items()}
            try:
                chosen = {new: _writable(given[new], columns[new]) for new in given}
                yield Block(chosen, samples, partial(_place, unit.start, first))
            except Refused:
                yield from self._one_by_one(unit, first, samples, given, columns)

    def _one_by_one(
        self, unit: Unit, first: int, samples: int, given: Columns, columns: Mapping[str, str]
    ) -> Iterator[Row | MdsxError]:
        """Yield the samples of a block one by one, because the values of at least one cannot be written."""
        for sample in range(samples):
            place, found = (unit.start, first + sample), dict[str, Any]()
            for new, values in given.items():
                try:
                    found[new] = _writable(values[sample : sample + 1], columns[new])[0]
                except Refused as refused:
                    refused.at = ()
                    error = batch_error(Schema.from_columns({new: columns[new]}).columns[0], refused)
                    yield self.refused(unit, place, error)
                    break
            else:
                yield Row(found, place)

    def _blocks(
        self, unit: Unit, most: int = _BLOCK_SAMPLES, blocks: int | None = None
    ) -> Iterator[_Samples | Lost | FormatError]:
        """Yield the samples of a shard, at most `most` at a time, and the errors of those that cannot be decoded.
        `blocks`: how many times, if not to the end."""
        dataset, shard, raw = self._dataset(unit.file), unit.start, bytearray()
        file = dataset.view.file(shard)
        try:
            download_shard(dataset.storage, dataset.index, shard, raw.extend)
            opened = dataset.index.open(shard, raw, file=file)
        except FormatError as error:
            yield Lost.of(error, 0, int(dataset.index.counts[shard]))
            return
        size = min(max(_BLOCK_BYTES * opened.samples // max(len(raw), 1), 1), most)
        for first in range(0, opened.samples, size)[:blocks]:
            yield from _decoded(dataset.view, shard, opened, np.arange(first, min(first + size, opened.samples)))

    def place_of(self, place: Any) -> str:
        shard, sample = place
        return f"shard {shard}, sample {sample}"

    def _dataset(self, number: int) -> _Opened:
        if number not in self._opened:
            self._opened[number] = _Opened.at(self.files[number].url, self._options, [*self._names])
        return self._opened[number]


@dataclass(frozen=True)
class _Opened:
    """A dataset that is open in this process. Shards are read without the cache."""

    storage: Storage
    index: StoredIndex
    view: View
    """The columns to convert."""

    @classmethod
    def at(cls, url: str, options: StorageOptions | None, names: Sequence[str]) -> _Opened:
        shards = Shards(url, storage_options=options)
        return cls(shards.storage, shards.index, View([DatasetSlice.whole(shards).choose(names)]))


class _Samples(NamedTuple):
    """Successive samples of a shard: the number of the first one, how many, and their columns."""

    first: int
    samples: int
    values: Columns


def _decoded(
    view: View, shard: int, opened: OpenedShard, numbers: NDArray[np.int64]
) -> Iterator[_Samples | FormatError]:
    """Yield some samples of a shard together. If one cannot be decoded, bisect down to it."""
    try:
        selection = opened.select(numbers, verify=True)
        (columns,) = view.gather([(shard, selection)], np.arange(len(numbers)), [len(numbers)])
        found: _Samples | FormatError = _Samples(int(numbers[0]), len(numbers), view.present(columns))
    except FormatError as error:
        found = error
    if isinstance(found, _Samples) or len(numbers) == 1:
        yield found
        return
    for half in np.array_split(numbers, 2):
        yield from _decoded(view, shard, opened, half)


def _place(shard: int, first: int, sample: int) -> tuple[int, int]:
    return shard, first + sample


# --- types that MDS alone has


def _type_of(name: str, kind: ColumnType, values: Sequence[Any], file: str) -> str:
    """Return the column type for the values of an MDS column; `values` are the first ones."""
    if kind.foreign is None or kind.kind == "document":
        return str(kind)
    kinds = {_kind_of(value) for value in values if not (isinstance(value, list) and not value)} or {f"{PNG.name}[*]"}
    if kinds == {PYTHON[int].name, STR.name}:  # integers of any size
        return STR.name
    if len(kinds) == 1 and None not in kinds:
        return str(kinds.pop())
    hint = f"--drop {name} leaves it out, --column NAME=TYPE declares a type, such as 'float32[*,*]' or 'msgpack'"
    found = ", ".join(sorted(str(each) for each in kinds))
    raise SampleError(
        "no column type fits the first values", file=file, place=f"column {name!r}", found=found, hint=hint
    )


def _kind_of(value: Any) -> str | None:
    """Return the column type for values like this one; None if there is none."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}[{','.join('*' * value.ndim)}]" if value.ndim else str(value.dtype)
    if isinstance(value, float) or (isinstance(value, int) and -(2**63) <= value < 2**63):
        return PYTHON[float if isinstance(value, float) else int].name
    if isinstance(value, Decimal | int):
        return STR.name
    if hasattr(value, "save"):
        return PNG.name
    if isinstance(value, list):
        kinds = {JPEG.name if isinstance(each, bytes) and each.startswith(b"\xff\xd8") else PNG.name for each in value}
        return f"{kinds.pop()}[*]" if len(kinds) == 1 else None
    return None


def _writable(values: Any, kind: str) -> Any:
    """Return the values of a column in the writer's form for this type: decimals as text, images as PNG files.

    Raise Refused for an image that PNG cannot hold.
    """
    if not isinstance(values, list):
        return values
    if kind == STR.name:
        return [str(value) if isinstance(value, int) else _plain(value) for value in values]
    if parse_type(kind).kind == "document":  # documents have lists, not arrays
        values = [as_lists(value) if isinstance(value, np.ndarray) else value for value in values]
    return [_plain(value) for value in values] if any(map(_is_foreign, values)) else values


def _is_foreign(value: Any) -> bool:
    return (
        isinstance(value, Decimal)
        or hasattr(value, "save")
        or (isinstance(value, list) and any(map(_is_foreign, value)))
    )


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return _png(value) if hasattr(value, "save") else value


def _png(image: Any) -> bytes:
    """Return a Pillow image as a PNG file with the same pixels. Raise Refused if PNG cannot hold it."""
    data = BytesIO()
    if image.mode == "P":  # MDS has no palettes: Pillow shows grey, but saves the image as if it had one colour
        image = image.copy()
        image.putpalette([level for level in range(256) for _ in "RGB"])
    try:
        image.save(data, "PNG")
    except (OSError, ValueError) as error:
        hint = "leave the column out, or write the images in another way, with mdsx.build"
        raise Refused("an image that PNG can hold", f"one of mode {image.mode}: {error}", hint=hint) from None
    return data.getvalue()
