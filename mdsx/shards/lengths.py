"""The lengths of samples: a column of the samples that are read, or an array that the user gives.

The lengths of a shard are read when they are first asked for: from the file of lengths next to the index, or else from
the shard's rows, without the values that the rows lead to.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
import xxhash
from numpy.typing import NDArray

from mdsx.cached import cached_property
from mdsx.errors import UsageError, shown
from mdsx.format import (
    MAX_LENGTH,
    STORED_LENGTH,
    Column,
    LengthIdentity,
    LengthRule,
    LengthTrailer,
    Schema,
    StoredIndex,
    constant_length,
    filenames,
    length_rule,
)
from mdsx.order import by_value
from mdsx.process import REQUESTS, Owner, Share, find_local_ranks
from mdsx.shards.excerpt import Excerpt
from mdsx.shards.joins import Join
from mdsx.shards.length_file import LengthFile, ShardLengths, put_length_file
from mdsx.shards.length_table import LengthTable
from mdsx.shards.shards import Shards
from mdsx.shards.side_objects import SideObjects
from mdsx.shards.stored import StoredShards
from mdsx.shards.view import View
from mdsx.storage import Storage

_AT_ONCE = 64  # shards
_BYTES_AT_ONCE = 2**28


class Lengths(Protocol):
    """The length of each sample of a view. Its methods are called by one thread at a time."""

    @property
    def identity(self) -> Mapping[str, Any]:
        """What the lengths are, as JSON: equal for equal lengths, in every process and on every machine."""

    @property
    def mean(self) -> Fraction | None:
        """The mean over all stored samples, or an estimate: from the indexes alone, or from the lengths that were
        given. None if those do not say it. The default window follows from it, so it depends on nothing that may be
        absent, refused or newer in another process, such as a file of lengths."""

    def of(self, shards: NDArray[np.int64], samples: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the lengths, int64 [n], of `samples`, numbered as stored, of the view's `shards` (int64 [n] both).

        Raise CorruptError for a damaged shard, and TransportError if storage failed.
        """


def lengths_of(view: View, length: str | NDArray[Any]) -> Lengths:
    """Return the lengths of a view's samples: by the column `length`, or given as an array.

    An array has an integer for each sample of the dataset, as stored; those of several datasets one after the other.
    Raise UsageError for a column without lengths, and for another array.
    """
    if not isinstance(length, str):
        return _GivenLengths(view, length)
    parts = [_part(excerpt, length) for excerpt in view.excerpts]
    return _JoinedLengths(parts, view.firsts)


class _GivenLengths:
    """An array of lengths."""

    def __init__(self, view: View, given: object) -> None:
        counts = np.concatenate([excerpt.shards.index.counts for excerpt in view.excerpts])
        self._firsts, self._lengths = np.cumsum(counts) - counts, _checked(given, int(counts.sum()))

    @cached_property
    def identity(self) -> Mapping[str, Any]:
        return {"hash": xxhash.xxh3_128_hexdigest(self._lengths.astype("<u4", copy=False).data)}

    @cached_property
    def mean(self) -> Fraction | None:
        return Fraction(int(self._lengths.sum(dtype=np.int64)), max(len(self._lengths), 1))

    def of(self, shards: NDArray[np.int64], samples: NDArray[np.int64]) -> NDArray[np.int64]:
        found: NDArray[np.int64] = self._lengths[self._firsts[shards] + samples].astype(np.int64)
        return found


def _checked(given: object, samples: int) -> NDArray[np.uint32]:
    try:
        lengths = np.asarray(given)
    except (TypeError, ValueError, RuntimeError):  # lists of different lengths, a tensor on the meta device
        lengths = np.asarray("")
    if lengths.ndim != 1 or lengths.dtype.kind not in "iu":
        message = "lengths are the name of a column, or an array with an integer for each sample"
        raise UsageError(message, found=shown(given))
    if len(lengths) != samples:
        hint = "give one for each stored sample, also of those that a selection leaves out"
        raise UsageError("there are not as many lengths as samples", found=len(lengths), expected=samples, hint=hint)
    if samples and not (int(lengths.min()) >= 0 and int(lengths.max()) <= MAX_LENGTH):
        wrong = int(lengths.min()) if int(lengths.min()) < 0 else int(lengths.max())
        raise UsageError("this number cannot be a length", found=wrong, expected=f"0 to {MAX_LENGTH}")
    return lengths.astype(np.uint32)


class _Part(Protocol):
    """The lengths of one excerpt, by its own numbers of shards."""

    identity: Mapping[str, Any]
    samples: int

    @property
    def mean(self) -> Fraction | None: ...
    def of(self, shards: NDArray[np.int64], samples: NDArray[np.int64]) -> NDArray[np.int64]: ...


class _JoinedLengths:
    """The lengths of several excerpts."""

    def __init__(self, parts: Sequence[_Part], firsts: NDArray[np.int64]) -> None:
        self._parts, self._firsts = parts, firsts

    @property
    def identity(self) -> Mapping[str, Any]:
        return self._parts[0].identity if len(self._parts) == 1 else {"each": [part.identity for part in self._parts]}

    @cached_property
    def mean(self) -> Fraction | None:
        total = Fraction(0)
        for part in self._parts:
            if (mean := part.mean) is None:
                return None
            total += mean * part.samples
        return total / max(sum(part.samples for part in self._parts), 1)

    def of(self, shards: NDArray[np.int64], samples: NDArray[np.int64]) -> NDArray[np.int64]:
        if len(self._parts) == 1:
            return self._parts[0].of(shards, samples)
        found, components = np.empty(len(shards), np.int64), np.searchsorted(self._firsts, shards, side="right") - 1
        for component, here in by_value(components):
            found[here] = self._parts[component].of(shards[here] - self._firsts[component], samples[here])
        return found


def _part(excerpt: Excerpt, name: str) -> _Part:
    stored = [
        excerpt.datasets[home].schema.columns[number]
        for home, number in zip(excerpt.homes, excerpt.columns, strict=True)
    ]
    named = Schema(
        tuple(Column(column.name, own.type) for column, own in zip(excerpt.schema.columns, stored, strict=True))
    )
    place, rule = column_of(named, name, url=excerpt.shards.storage.url)
    number, home = excerpt.columns[place], excerpt.homes[place]
    shards = excerpt.datasets[home]
    identity = LengthIdentity(shards.index.fingerprint, stored[place].name, rule)
    constant = constant_length(stored[place].type)
    if constant is not None:
        return _ConstantLengths(identity, shards.index.samples, constant)
    lengths = _StoredLengths(shards, number, identity)
    return lengths if home == 0 else _SideLengths(lengths, Join(excerpt.shards.index.counts, shards.index.counts))


def column_of(schema: Schema, name: str, *, url: str) -> tuple[int, LengthRule]:
    """Return the number and the rule of a column that gives lengths. Raise UsageError for another one."""
    for number, column in enumerate(schema.columns):
        if column.name == name and (rule := length_rule(column.type)):
            return number, rule
    type = next((column.type for column in schema.columns if column.name == name), None)
    message = "there is no such column" if type is None else f"a column of type '{type}' gives no lengths"
    good = ", ".join(column.name for column in schema.columns if length_rule(column.type))
    expected = good or "arrays of one dimension, bytes, str, json or integers; the dataset has none"
    hint = "if columns were chosen (columns=), choose it too" if type is None else None
    raise UsageError(message, file=url, place=f"column {str(name)[:80]!r}", expected=expected, hint=hint)


class _SideLengths:
    """The lengths of a joined dataset, by the numbers of the samples in the dataset that it is joined to."""

    def __init__(self, part: _Part, join: Join) -> None:
        self.identity, self.samples, self._part, self._join = part.identity, part.samples, part, join

    @property
    def mean(self) -> Fraction | None:
        return self._part.mean

    def of(self, shards: NDArray[np.int64], samples: NDArray[np.int64]) -> NDArray[np.int64]:
        return self._part.of(*self._join.locate(shards, samples))


class _ConstantLengths:
    """The lengths of arrays of one size."""

    def __init__(self, identity: LengthIdentity, samples: int, length: int) -> None:
        self.identity: Mapping[str, Any] = identity.fields
        self.samples, self.mean, self._length = samples, Fraction(length), length

    def of(self, shards: NDArray[np.int64], samples: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.full(len(samples), self._length, np.int64)


class _StoredLengths:
    """The lengths of a dataset's samples by column `column` of its shards."""

    def __init__(self, shards: Shards, column: int, identity: LengthIdentity) -> None:
        self.identity: Mapping[str, Any] = identity.fields
        self.samples = shards.index.samples
        # Formats that store columns apart fetch only this one.
        self._shards, (self._column,) = shards.project([column])
        self._identity = identity
        self._process: _Process | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_process": None}

    @property
    def mean(self) -> Fraction | None:
        return self._shards.index.mean_length(self._column)

    def of(self, shards: NDArray[np.int64], samples: NDArray[np.int64]) -> NDArray[np.int64]:
        table = self._state.table
        if not (known := table.known[shards]).all():
            self._load(np.unique(shards[~known]).tolist())
        found: NDArray[np.int64] = table.lengths[table.firsts[shards] + samples].astype(np.int64)
        return found

    @property
    def _state(self) -> _Process:
        if self._process is None or not self._process.owner.here:
            self._process = _Process(self._shards, self._identity)
        return self._process

    def _load(self, shards: list[int]) -> None:
        """Fill in the lengths of these shards."""
        table = self._state.table
        missing = table.missing(shards)
        if missing and (file := self._state.file) is not None:
            for found in file.read(missing):
                table.put(found)
            missing = [shard for shard in missing if not table.known[shard]]
        # Each process of the node begins elsewhere, and finds in the table what the others have read.
        rank, count = find_local_ranks(os.environ)
        middle = (rank or 0) * len(missing) // max(count, 1)
        waiting = missing[middle:] + missing[:middle]
        while waiting := table.missing(waiting):
            width = _width(self._shards.index, self._column, waiting)
            table.put(_read(self._shards, self._column, waiting[:width]))


class _Process:
    """The state of one process: the mapped table is its own."""

    def __init__(self, shards: Shards, identity: LengthIdentity) -> None:
        self.owner = Owner()
        self._shards, self._identity, self._counts = shards, identity, shards.index.counts

    @cached_property
    def file(self) -> LengthFile | None:
        warns = not self._shards.is_snapshot  # the file is that of the dataset as it is now
        return LengthFile.open(self._shards.beside, self._identity, self._counts, warns=warns)

    @cached_property
    def table(self) -> LengthTable:
        shards, identity, counts = self._shards, self._identity, self._counts
        if shards.cache is not None:
            return LengthTable.in_cache(identity, shards.index, shards.cache, shards.storage.url)
        path = shards.beside.path(filenames.lengths(identity.column))
        if shards.mapped_in_place and path is not None and self.file is not None:
            return LengthTable.in_place(identity, counts, path, self.file.trailer)
        return LengthTable.in_memory(identity, counts)


def _width(index: StoredIndex, column: int, numbers: Sequence[int]) -> int:
    """Return how many of the shards to read at once."""
    by_range = index.read_lengths(numbers[0], column, file="") is not None
    sizes = index.counts * index.schema.row_size if by_range else index.raw_sizes
    return max(1, min(_AT_ONCE, _BYTES_AT_ONCE // max(int(sizes[numbers].max()), 1)))


def _read(shards: Shards | StoredShards, column: int, numbers: Sequence[int]) -> list[ShardLengths]:
    """Read the lengths of shards from their rows."""
    found = Share(REQUESTS).map(lambda shard: shards.lengths(shard, column).astype(STORED_LENGTH), numbers)
    return list(zip(numbers, found, strict=True))


def write_length_file(
    storage: Storage,
    index: StoredIndex,
    column: str,
    *,
    target: Storage,
    watch: Callable[[int, int], object] = lambda shards, samples: None,
) -> LengthTrailer:
    """Write the file of lengths by `column`, of the dataset in `storage`, to the `target`, which has its `index`, and
    return its trailer. Call `watch` with how many shards and samples were read. Raise UsageError for a column without
    lengths.
    """
    shards = range(len(index.counts))
    parts = stored_lengths(storage, index, column, shards, beside=target, watch=watch)
    _, rule = column_of(index.schema, column, url=storage.url)
    return put_length_file(target, LengthIdentity(index.fingerprint, column, rule), parts)


def stored_sum(storage: Storage, index: StoredIndex, column: str, numbers: Sequence[int]) -> int | None:
    """Return the sum of the lengths by `column` in the shards `numbers`, from their rows; None for a column without
    lengths."""
    if not any(each.name == column and length_rule(each.type) for each in index.schema.columns):
        return None
    found = 0
    for start in range(0, len(numbers), _AT_ONCE):
        parts = stored_lengths(storage, index, column, numbers[start : start + _AT_ONCE])
        found += sum(int(part.sum(dtype=np.int64)) for part in parts)
    return found


def stored_lengths(
    storage: Storage,
    index: StoredIndex,
    column: str,
    numbers: Sequence[int],
    *,
    beside: Storage | None = None,
    watch: Callable[[int, int], object] = lambda shards, samples: None,
) -> list[NDArray[np.uint32]]:
    """Return the lengths by `column` of each of the shards `numbers`, from their rows. `beside`: where the index is, if
    not in `storage`. `watch`: as above.

    Raise UsageError for a column without lengths.
    """
    number, _ = column_of(index.schema, column, url=storage.url)
    constant = constant_length(index.schema.columns[number].type)
    if constant is not None:
        return [np.full(size, constant, STORED_LENGTH) for size in index.counts[numbers].tolist()]
    projected = index.project([number])
    place = number if projected is index else 0
    side_objects = SideObjects(storage if beside is None else beside, projected, None, mapped=False)
    shards, samples = StoredShards(storage, projected, side_objects.index), 0
    parts = list[NDArray[np.uint32]]()
    while len(parts) < len(numbers):
        waiting = numbers[len(parts) : len(parts) + _AT_ONCE]
        for _, lengths in _read(shards, place, waiting[: _width(projected, place, waiting)]):
            parts.append(lengths)
            samples += len(lengths)
        watch(len(parts), samples)
    return parts
