"""The full check of a shard: every rule that can be tested without the index, with the place of each problem.

At most one problem is reported for each sample: the most informative one. The fields of a damaged sample are not
trusted, so that its neighbours are not blamed for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import compress, islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import CorruptError
from mdsx.format.rows import NULL, Extents, cut, row_checksum
from mdsx.format.rows import row_key as row_key_of
from mdsx.format.schema import Schema
from mdsx.format.shard import ShardView, shard_checksums
from mdsx.format.types import ColumnType
from mdsx.format.values import value_decoder, values_decoder

if TYPE_CHECKING:
    from typing_extensions import Buffer

MAX_PROBLEMS = 1000
"""The most problems to list for one shard. The last one says that there are more."""
_BLOCK = 4096
_MOST_AT_ONCE = 2**22
"""Bytes of values to decode at once."""
_MOST_READ = 4
"""If all samples together claim more bytes than this many heaps, some of them share bytes. Reading those could take
forever, so they are not read."""


class Problem(NamedTuple):
    """A problem of a sample, or (None) of a shard whose samples may all be undamaged. `proven`: the sample's bytes are
    right, and only its stored checksum is damaged."""

    sample: int | None
    error: CorruptError
    proven: bool = False


def check_shard(
    buffer: Buffer,
    *,
    file: str | None = None,
    schema: Schema | None = None,
    row_key: int | None = None,
    values: bool = True,
) -> list[CorruptError]:
    """Return all damage to the uncompressed shard in `buffer`, by sample and column; none if it is undamaged.

    If `schema` and `row_key` are given, the shard's must equal them. `values=False` skips decoding the values, which is
    slow. Raise UnsupportedError for a shard of a later version.
    """
    try:
        view = ShardView.parse(buffer, file=file, schema=schema, row_key=row_key)
    except CorruptError as error:
        return [error]
    return bounded((problem.error for problem in find_problems(view, values=values)), file)


def bounded(problems: Iterator[CorruptError], file: str | None) -> list[CorruptError]:
    """Return at most MAX_PROBLEMS problems; if there are more, the last one says so."""
    found = list(islice(problems, MAX_PROBLEMS + 1))
    if len(found) > MAX_PROBLEMS:
        found[-1] = CorruptError(f"there are more than {MAX_PROBLEMS} problems", file=file)
    return found


def find_problems(
    view: ShardView,
    *,
    known: NDArray[np.bool_] | None = None,
    samples: int | None = None,
    heap_size: int | None = None,
    first: int | None = None,
    values: bool = True,
) -> Iterator[Problem]:
    """Yield the problems of a shard's samples, in order, and then those of the shard as a whole.

    `known`: the samples whose bytes are all available; others are skipped. `samples` and `heap_size`: of the whole
    shard, if only its beginning is available. `first`: the number in the dataset of the shard's first sample, for
    messages. `values`: see `check_shard`.
    """
    known = np.ones(view.samples, np.bool_) if known is None else known
    samples = view.samples if samples is None else samples
    return _Check(view, known, samples, len(view.heap) if heap_size is None else heap_size, first).run(values)


def stored_votes(
    view: ShardView, known: NDArray[np.bool_], samples: int, heap_size: int
) -> tuple[NDArray[np.uint64], int | None]:
    """Return the row keys that the samples of a shard imply, if its own is unknown: for each readable sample, the key
    that makes its checksum right; and the key that follows from all samples, None if any cannot be read. For the
    arguments, see `find_problems`."""
    return _Check(view, known, samples, heap_size, None).votes()


def sample_name(sample: int, first: int | None) -> str:
    """Return a sample's number in the shard, and its number in the dataset if that of the `first` sample is known."""
    return str(sample) if first is None else f"{sample} ({first + sample} of the dataset)"


class _Check:
    def __init__(
        self, view: ShardView, known: NDArray[np.bool_], samples: int, heap_size: int, first: int | None
    ) -> None:
        self._view, self._known, self._heap_size, self._first = view, known, heap_size, first
        self._complete = view.samples == samples  # otherwise, the last rows are not available
        schema = view.schema
        nothing = np.zeros(view.samples, np.bool_)
        self._extents = None
        self._wrong = nothing  # samples whose extents are wrong
        self._shared = nothing  # samples that share bytes with others
        if schema.variable and view.samples:
            self._extents = Extents.of(schema, view.rows, heap_size)
            self._wrong = self._extents.wrong & known
            self._stops = self._extents.starts + self._extents.sums.astype(np.uint64)
            if self._extents.sums[known & ~self._wrong].sum() > _MOST_READ * heap_size + _BLOCK:
                self._shared = known & ~self._wrong & (self._extents.starts != self._expected_starts())
                self._wrong = self._wrong | self._shared
        self._padding = _padding(view) & known
        self._invalid = {
            number: mask & known for number in schema.fixed if (mask := _invalid(view, number)) is not None
        }
        self._checksums = self._compute()
        self._mismatch = (self._checksums ^ np.uint64(view.row_key) != view.rows["checksum"]) & known & ~self._wrong
        whole = self._complete and bool(known.all()) and not self._wrong.any()
        self._key = row_key_of(schema, self._checksums) if whole else None
        if self._key == view.row_key:  # all bytes are right: only stored checksums can be damaged
            self._proven, self._mismatch = self._mismatch, nothing
        else:
            self._proven = nothing
        self._trusted = known & ~self._wrong & ~self._mismatch
        self._unordered = self._find_unordered()
        columns = [replace(each, type=each.type.stored) for each in map(schema.columns.__getitem__, schema.variable)]
        self._columns = [column if _can_fail(column.type) else None for column in columns]
        self._decoders = [
            (column.name, None if checked is None else value_decoder(column.type, column.name))
            for column, checked in zip(columns, self._columns, strict=True)
        ]

    def run(self, values: bool) -> Iterator[Problem]:
        flagged = self._wrong | self._padding | self._mismatch | self._unordered | self._proven
        for mask in self._invalid.values():
            flagged |= mask
        if values and any(self._columns):
            at_once = bool(self._known.all()) and not flagged.any()
            for start in range(0, self._view.samples, _BLOCK):
                stop = min(start + _BLOCK, self._view.samples)
                if at_once and self._all_decodable(start, stop):
                    continue
                for sample in range(start, stop):
                    if flagged[sample]:
                        yield self._problem(sample)
                    elif self._known[sample] and (undecodable := self._undecodable(sample)):
                        column, says = undecodable
                        yield Problem(sample, self._error(says, sample, f", column {column!r}"))
        else:
            for sample in np.flatnonzero(flagged).tolist():
                yield self._problem(sample)
        if self._complete and self._extents is not None and self._trusted[-1] and self._stops[-1] != self._heap_size:
            message, found = "the samples do not fill it", int(self._stops[-1])
            file, expected = self._view.file, self._heap_size
            yield Problem(None, CorruptError(message, file=file, place="heap", found=found, expected=expected))
        if self._key not in (None, self._view.row_key) and not flagged.any():
            message, file = "it does not match the shard's samples", self._view.file
            computed, stored = f"{self._key:016x}", f"{self._view.row_key:016x}"
            yield Problem(None, CorruptError(message, file=file, place="row key", found=computed, expected=stored))

    def votes(self) -> tuple[NDArray[np.uint64], int | None]:
        return (self._checksums ^ self._view.rows["checksum"])[self._known & ~self._wrong], self._key

    def _problem(self, sample: int) -> Problem:
        """Return the most informative problem of a sample that has any."""
        if self._shared[sample]:
            return Problem(sample, self._error("its heap bytes also belong to other samples", sample))
        if self._wrong[sample] and self._extents is not None:
            name = sample_name(sample, self._first)
            return Problem(sample, self._extents.problem(sample, file=self._view.file, sample=name))
        if self._padding[sample]:
            return Problem(sample, self._error("it is not zero", sample, ", padding of the row"))
        for number, mask in self._invalid.items():
            if mask[sample]:
                column = self._view.schema.columns[number]
                message = f"a {column.type.base} is neither 0 nor 1"
                return Problem(sample, self._error(message, sample, f", column {column.name!r}"))
        if self._mismatch[sample]:
            return Problem(sample, self._blame(sample))
        if self._proven[sample]:
            message = "its bytes are right, but its stored checksum is not"
            computed, stored = self._pair(sample)
            return Problem(sample, self._error(message, sample, found=computed, expected=stored), proven=True)
        message = "its heap bytes do not begin where those before end"
        assert self._extents is not None, "these have an order"
        found, expected = int(self._extents.starts[sample]), int(self._stops[sample - 1]) if sample else 0
        return Problem(sample, self._error(message, sample, found=found, expected=expected))

    def _blame(self, sample: int) -> CorruptError:
        """Return the error for a sample whose checksum is wrong, with the place of the damage if it can be found."""
        message, place = "its checksum does not match its bytes", ""
        fits = self._fits(sample)
        if fits is False:
            place = ", start and lengths"
        elif fits and (undecodable := self._undecodable(sample)):
            place, message = f", column {undecodable[0]!r}", f"{message}: {undecodable[1]}"
        computed, stored = self._pair(sample)
        return self._error(message, sample, place, found=computed, expected=stored)

    def _pair(self, sample: int) -> tuple[str, str]:
        """Return the computed checksum of a sample, and the stored one."""
        computed, stored = int(self._checksums[sample]) ^ self._view.row_key, int(self._view.rows["checksum"][sample])
        return f"{computed:016x}", f"{stored:016x}"

    def _fits(self, sample: int) -> bool | None:
        """Return whether a sample's heap bytes fill the gap between its neighbours'; None if a neighbour is damaged."""
        if self._extents is None:
            return None
        last = sample + 1 == self._view.samples
        before = self._trusted[sample - 1] if sample else True
        after = self._complete if last else self._trusted[sample + 1]
        start, stop = self._stops[sample - 1] if sample else 0, self._heap_size
        stop = stop if last else self._extents.starts[sample + 1]
        if (before and self._extents.starts[sample] != start) or (after and self._stops[sample] != stop):
            return False
        return True if before and after else None

    def _compute(self) -> NDArray[np.uint64]:
        """Return the checksums of all readable samples, in one pass if their heap bytes are in order."""
        view, extents, found = self._view, self._extents, np.zeros(self._view.samples, np.uint64)
        if view.samples and self._known.all() and (extents is None or self._in_order(extents)):
            return shard_checksums(view)
        for sample in np.flatnonzero(self._known & ~self._wrong).tolist():
            found[sample] = self._checksum(sample)
        return found

    def _in_order(self, extents: Extents) -> bool:
        return bool((extents.starts == self._expected_starts()).all() and not self._wrong.any())

    def _checksum(self, sample: int) -> int:
        view = self._view
        at = view.rows_offset + sample * view.schema.row_size
        start, stop = (0, 0) if self._extents is None else (int(self._extents.starts[sample]), int(self._stops[sample]))
        return row_checksum(view.buffer[at + 8 : at + view.schema.row_size], view.heap[start:stop], sample)

    def _find_unordered(self) -> NDArray[np.bool_]:
        """Return the trusted samples whose heap bytes do not directly follow those of a trusted sample."""
        if self._extents is None:
            return np.zeros(self._view.samples, np.bool_)
        unordered: NDArray[np.bool_] = self._trusted.copy()
        unordered[1:] &= self._trusted[:-1]
        unordered &= self._extents.starts != self._expected_starts()
        return unordered

    def _expected_starts(self) -> NDArray[np.uint64]:
        """Return the offset where the heap bytes of each sample should begin."""
        return np.concatenate((np.zeros(1, np.uint64), self._stops[:-1]))

    def _all_decodable(self, start: int, stop: int) -> bool:
        """Return whether all values of the consecutive samples [start, stop) can be decoded. Return False if they have
        too many bytes to decode at once."""
        extents = self._extents
        assert extents is not None, "there are variable-size columns"
        first, last = int(extents.starts[start]), int(self._stops[stop - 1])
        if last - first > _MOST_AT_ONCE:
            return False
        lengths, sizes = extents.lengths[start:stop], extents.sizes[start:stop]
        heap, stops = self._view.heap[first:last], sizes.cumsum()
        if all(column and column.type.kind == "text" and not column.type.is_list for column in self._columns):
            return _is_text(heap, stops[:-1])
        pieces = list(cut(heap, stops))
        try:
            for place, column in enumerate(self._columns):
                if column is not None:
                    stored = compress(pieces[place :: len(self._columns)], (lengths[:, place] != NULL).tolist())
                    values_decoder(column.type, column.name)(map(memoryview, stored))
        except CorruptError:
            return False
        return True

    def _undecodable(self, sample: int) -> tuple[str, str] | None:
        """Return the first column whose value cannot be decoded, and why; None if all can."""
        assert self._extents is not None, "there are variable-size columns"
        start = int(self._extents.starts[sample])
        lengths = self._extents.lengths[sample].tolist()
        for (name, decode), length in zip(self._decoders, lengths, strict=True):
            if length == NULL:
                continue
            try:
                if decode is not None:
                    decode(self._view.heap[start : start + length])
            except CorruptError as error:
                return name, str(error)
            start += length
        return None

    def _error(
        self, message: str, sample: int, place: str = "", *, found: object = None, expected: object = None
    ) -> CorruptError:
        place = f"sample {sample_name(sample, self._first)}{place}"
        return CorruptError(message, file=self._view.file, place=place, found=found, expected=expected)


def _can_fail(kind: ColumnType) -> bool:
    """Return whether bytes may fail to decode as a value of a variable-size column of this type, if it is known."""
    return kind.known and (kind.kind != "bytes" or kind.is_list)


def _is_text(data: memoryview, cuts: NDArray[np.int64]) -> bool:
    """Return whether the values that `cuts` divide `data` into are UTF-8: `data` is, and no character is divided."""
    try:
        str(data, "utf-8")
    except UnicodeDecodeError:
        return False
    bytes_after = np.frombuffer(data, np.uint8)[cuts[cuts < len(data)]]
    return not bool((bytes_after & 0xC0 == 0x80).any())


def _invalid(view: ShardView, number: int) -> NDArray[np.bool_] | None:
    """Return the samples with an invalid item in their row; None if the column's type has no invalid items."""
    kind = view.schema.columns[number].type
    if kind.number.highest is None:
        return None
    items: NDArray[Any] = view.rows[f"column{number}"].reshape(view.samples, math.prod(kind.shape or ()))  # type: ignore[arg-type]  # it has no stars
    return np.asarray((items > kind.number.highest).any(axis=1))


def _padding(view: ShardView) -> NDArray[np.bool_]:
    """Return the samples whose rows have a non-zero byte outside of all fields."""
    if not view.samples:  # the mask of a row may have 2 GiB
        return np.zeros(0, np.bool_)
    dtype = view.schema.row_dtype
    unused = np.ones(dtype.itemsize, np.bool_)
    for kind, offset, *_ in (dtype.fields or {}).values():
        unused[offset : offset + kind.itemsize] = False
    if not unused.any():
        return np.zeros(view.samples, np.bool_)
    rows = view.rows.view(np.uint8).reshape(view.samples, dtype.itemsize)
    return np.asarray((rows[:, unused] != 0).any(axis=1))
