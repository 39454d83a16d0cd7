"""The source of Megatron-LM's indexed datasets, PREFIX.idx with PREFIX.bin: a unit is a range of documents.

The index (see `MegatronIndex`) is checked before the first sample, in one pass that holds a few MiB. Reading fetches
the index rows of a unit again, so that a worker process holds no more than a block of them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from mdsx.base.arguments import check_choice
from mdsx.base.cached import cached_property
from mdsx.errors import CorruptError, MdsxError, UsageError, shown
from mdsx.foreign.arrow import pa
from mdsx.foreign.tokens import MegatronIndex
from mdsx.format import INT8, ColumnType, Range, Schema, parse_type
from mdsx.storage import StorageOptions
from mdsx.transfer.converting.files import File, FileKind, find_files, read_ranges
from mdsx.transfer.converting.naming import Naming
from mdsx.transfer.converting.source import Block, Request, Row, SampleSource, Unit

Integers = NDArray[np.int64]

_INDEX, _TOKENS = FileKind("Megatron index", "idx"), FileKind("file of Megatron's tokens", "bin")
_UNIT = 2**28  # about this many bytes of tokens; a rerun repeats at most one unit
_BLOCK = 2**23  # bytes of tokens that are read and written at once
_ROWS = 2**18  # sequences or documents of the index that are read at once


def open_source(request: Request, *, per: Literal["document", "sequence"] = "document") -> Megatron:
    """Return the source of indexed datasets. Raise UsageError, MissingError, or CorruptError for a damaged index."""
    check_choice("per", per, "document", "sequence")
    return Megatron(request, Naming.parse(request.rename, request.drop, request.declared), per)


@dataclass(frozen=True, slots=True)
class _Dataset:
    """One indexed dataset: its files, and the counts in its index."""

    index: File
    tokens: File
    options: StorageOptions | None
    head: MegatronIndex

    @property
    def dtype(self) -> str:
        return self.head.dtype

    @property
    def sequences(self) -> int:
        return self.head.sequences

    @property
    def bounds(self) -> int:
        """Return the number of entries of `documents`, one more than the number of documents."""
        return self.head.bounds

    @property
    def modes(self) -> bool:
        return self.head.modes

    @classmethod
    def open(cls, index: File, tokens: File, options: StorageOptions | None) -> _Dataset:
        """Return the dataset of these files, after checking the index's header. Raise FormatError."""
        data = _get(index, options, 0, min(MegatronIndex.HEAD, index.size))
        return cls(index, tokens, options, MegatronIndex.parse(data, size=index.size, file=index.url))

    def sizes(self, start: int, stop: int) -> Integers:
        return self._rows(self.head.sizes(start, stop), "<i4")

    def pointers(self, start: int, stop: int) -> Integers:
        return self._rows(self.head.pointers(start, stop), "<i8")

    def documents(self, start: int, stop: int) -> Integers:
        return self._rows(self.head.documents(start, stop), "<i8")

    def mode(self, start: int, stop: int) -> NDArray[np.int8]:
        return np.frombuffer(_get(self.index, self.options, *self.head.mode(start, stop)), np.int8)

    def _rows(self, where: Range, dtype: str) -> Integers:
        return np.frombuffer(_get(self.index, self.options, *where), dtype).astype(np.int64)

    @property
    def width(self) -> int:
        return np.dtype(self.dtype).itemsize

    def error(self, message: str, place: str, **fields: object) -> CorruptError:
        return CorruptError(message, file=self.index.url, place=place, **fields)  # type: ignore[arg-type]


def _get(file: File, options: StorageOptions | None, start: int, stop: int) -> bytes:
    """Return the bytes [start, stop) of a file. Raise ChangedError if it was replaced."""
    return read_ranges(file, [(start, stop)], options)[0] if stop > start else b""


def _bytes_before(dataset: _Dataset, wanted: Integers) -> tuple[Integers, int]:
    """Return the bytes of tokens before each of the sequences `wanted`, which ascend, and in total.

    Raise CorruptError if a sequence is not in the file of tokens.
    """
    before, total = np.zeros(len(wanted), np.int64), 0
    for start in range(0, dataset.sequences, _ROWS):
        stop = min(start + _ROWS, dataset.sequences)
        sizes, pointers = dataset.sizes(start, stop) * dataset.width, dataset.pointers(start, stop)
        bad = (sizes < 0) | (pointers < 0) | (pointers > dataset.tokens.size - sizes)
        if bad.any():
            first = int(bad.argmax())
            found = (
                f"{sizes[first] // dataset.width:,} tokens of {dataset.width} bytes from byte {pointers[first]:,} on"
            )
            expected = f"inside the {dataset.tokens.size:,} bytes of {dataset.tokens.url}"
            raise dataset.error("a sequence is not in the file of tokens", f"sequence {start + first}",
                                found=found, expected=expected)  # fmt: skip
        sums = np.concatenate([[0], sizes.cumsum()]) + total
        low, high = np.searchsorted(wanted, [start, stop + (stop == dataset.sequences)])
        before[low:high] = sums[wanted[low:high] - start]
        total = int(sums[-1])
    return before, total


def _check_documents(dataset: _Dataset, step: int) -> Integers:
    """Return every `step`-th bound of documents, and the last one. Raise CorruptError unless they cover all sequences,
    in order."""
    last, kept = 0, []
    for start in range(0, dataset.bounds, _ROWS):
        bounds = dataset.documents(start, min(start + _ROWS, dataset.bounds))
        expected = "0, then ascending to the number of sequences"
        bad = np.diff(bounds, prepend=last) < 0
        if start == 0:
            bad[0] = bounds[0] != 0
        if start + len(bounds) == dataset.bounds:
            bad[-1] |= bounds[-1] != dataset.sequences
        if bad.any():
            first = int(bad.argmax())
            raise dataset.error("documents do not cover the sequences", f"bound {start + first} of documents",
                                found=int(bounds[first]), expected=f"{expected}, {dataset.sequences:,}")  # fmt: skip
        kept.append(bounds[-start % step :: step])
        last = int(bounds[-1])
    return np.concatenate([*kept, [last]])


class Megatron(SampleSource):
    """Indexed datasets, a sample for each document or sequence."""

    kind: ClassVar[str] = "megatron"

    def __init__(self, request: Request, naming: Naming, per: str) -> None:
        names = [name.removesuffix(".idx").removesuffix(".bin") for name in request.sources]
        indexes = find_files([f"{name}.idx" for name in names], _INDEX, request.options)
        tokens = find_files([f"{file.url.removesuffix('.idx')}.bin" for file in indexes], _TOKENS, request.options)
        self.files = [*tokens, *indexes]
        self.settings = {"per": per, **naming.settings}
        self._naming, self._per = naming, per
        self._declared = Schema.from_columns(request.declared).columns if request.declared else ()
        self._datasets = [_Dataset.open(*files, request.options) for files in zip(indexes, tokens, strict=True)]
        self._warnings: list[str] = []
        self.units = [unit for number in range(len(tokens)) for unit in self._units(number)]

    def _units(self, number: int) -> Iterator[Unit]:
        """Check the index of a dataset, and yield its units. Raise CorruptError."""
        dataset = self._datasets[number]
        if self._per == "document" and dataset.modes and "mode" not in self._naming.drop:
            hint = "--per sequence keeps each in a column; --drop mode leaves them out"
            raise UsageError("documents would lose the modes of their sequences", file=dataset.index.url, hint=hint)
        if self._per == "document" and not dataset.bounds:
            raise dataset.error("has no documents", "header", hint="--per sequence reads the sequences")
        samples = dataset.sequences if self._per == "sequence" else dataset.bounds - 1
        step = max(min(samples, samples * _UNIT // max(dataset.tokens.size, 1)), 1)
        starts = np.append(np.arange(0, samples, step), samples)
        firsts = starts if self._per == "sequence" else _check_documents(dataset, step)[: len(starts)]
        before, total = _bytes_before(dataset, firsts)
        if total > dataset.tokens.size:
            found, most = f"{total:,} bytes", f"at most {dataset.tokens.size:,}"
            raise dataset.error("sequences overlap in the file of tokens", "pointers", found=found, expected=most)
        if total < dataset.tokens.size:
            more = dataset.tokens.size - total
            self._warnings.append(f"{dataset.tokens.url}: {more:,} bytes belong to no sequence of the index")
        for start, stop, low, high in zip(starts[:-1], starts[1:], before[:-1], before[1:], strict=True):
            yield Unit(number, int(start), int(stop), int(high - low))

    @cached_property
    def _names(self) -> dict[str, str]:
        """Return the kept columns -> their new names: "tokens", and "mode" if sequences have modes."""
        there = ["tokens", *(["mode"] if all(dataset.modes for dataset in self._datasets) else [])]
        return self._naming.names(there, file=self._datasets[0].index.url)

    def columns(self) -> tuple[dict[str, str], list[str]]:
        first, *others = self._datasets
        for other in others:
            if other.dtype != first.dtype and not self._declared:
                raise UsageError("the datasets have tokens of different dtypes", file=other.index.url,
                                 found=other.dtype, expected=first.dtype,
                                 hint="declare one that holds all: --column 'tokens=int32[*]'")  # fmt: skip
            if other.modes != first.modes:
                raise UsageError("only some of the datasets have modes", file=other.index.url)
        if not self.units:
            raise UsageError(f"there is no {self._per}", file=first.index.url)
        types = {"tokens": f"{first.dtype}[*]", "mode": INT8.name}
        columns = {new: types[name] for name, new in self._names.items()}
        for column in self._declared:
            if column.name not in columns:
                raise UsageError("there is no such column", found=shown(column.name), expected=", ".join(columns))
            if not column.type.scalar:
                raise UsageError("tokens must be numbers", place=f"column {column.name!r}", found=str(column.type))
            columns[column.name] = str(column.type)
        if not columns:
            raise UsageError("no column is left", file=first.index.url)
        return columns, self._warnings

    def read(
        self, unit: Unit, columns: Mapping[str, str], count: Callable[[int], object]
    ) -> Generator[Row | Block | MdsxError, None, None]:
        dataset = self._datasets[unit.file]
        for start in range(unit.start, unit.stop, _ROWS):
            stop = min(start + _ROWS, unit.stop)
            bounds = dataset.documents(start, stop + 1) if self._per == "document" else np.arange(start, stop + 1)
            low = 0
            while low < stop - start:  # documents with about _ROWS sequences
                high = max(int(np.searchsorted(bounds, bounds[low] + _ROWS, "right")) - 1, low + 1)
                yield from self._blocks(dataset, start + low, bounds[low : high + 1], columns, count)
                low = high

    def _blocks(
        self,
        dataset: _Dataset,
        sample: int,
        bounds: Integers,
        columns: Mapping[str, str],
        count: Callable[[int], object],
    ) -> Iterator[Block]:
        """Yield the samples from number `sample` on, each with the sequences from one of `bounds` to the next."""
        kinds = {name: parse_type(columns[new]) for name, new in self._names.items()}
        first = int(bounds[0])
        sizes = dataset.sizes(first, int(bounds[-1])) * dataset.width
        pointers = dataset.pointers(first, int(bounds[-1]))
        ends = np.concatenate([[0], sizes.cumsum()])[bounds - first]
        start = 0
        while start < len(bounds) - 1:
            stop = max(int(np.searchsorted(ends, ends[start] + _BLOCK, "right")) - 1, start + 1)
            low, high = int(bounds[start]) - first, int(bounds[stop]) - first
            found: dict[str, Any] = {}
            if "tokens" in kinds:
                data = self._bytes(dataset, pointers[low:high], sizes[low:high])
                tokens = np.frombuffer(data, np.dtype(dataset.dtype).newbyteorder("<"))
                edges = (ends[start : stop + 1] - ends[start]) // dataset.width
                found[self._names["tokens"]] = _column(kinds["tokens"], tokens, edges)
            if "mode" in kinds:
                found[self._names["mode"]] = dataset.mode(first + low, first + high)
            count(int(ends[stop] - ends[start]))
            yield Block(found, stop - start, partial(operator.add, sample + start))
            start = stop

    def _bytes(self, dataset: _Dataset, pointers: Integers, sizes: Integers) -> bytes:
        """Return the bytes of sequences. Adjacent sequences are read together."""
        if not len(sizes):
            return b""
        cuts = np.flatnonzero(pointers[1:] != pointers[:-1] + sizes[:-1]) + 1
        firsts, lasts = np.append(0, cuts), np.append(cuts, len(sizes)) - 1
        runs = zip(pointers[firsts].tolist(), (pointers[lasts] + sizes[lasts]).tolist(), strict=True)
        pieces = [_get(dataset.tokens, dataset.options, start, stop) for start, stop in runs]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def place_of(self, place: Any) -> str:
        return f"{self._per} {place}"


def _column(kind: ColumnType, tokens: NDArray[Any], edges: Integers) -> Any:
    """Return the column for `Writer.write_batch` whose value i is tokens[edges[i]:edges[i + 1]]."""
    samples = len(edges) - 1
    if kind.shape == (None,) and edges[-1] < 2**31:
        return pa.ListArray.from_arrays(pa.array(edges.astype(np.int32)), pa.array(tokens))
    if kind.fixed_size and len(tokens) and bool((np.diff(edges) * samples == len(tokens)).all()):
        return tokens.reshape(samples, -1)
    return [tokens[low:high] for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)]
