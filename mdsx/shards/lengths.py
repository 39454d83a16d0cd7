"""The lengths of samples, by a column or from an array that the user gives.

The lengths of a shard are read on first use: from the file of lengths next to the index, or else from the shard's rows,
without the values in its heap.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple, Protocol

import numpy as np
import xxhash
from numpy.typing import NDArray

from mdsx.base.arrays import as_array
from mdsx.base.cached import cached_property
from mdsx.base.process import Owner, find_local_ranks
from mdsx.errors import MissingError, UsageError, shown
from mdsx.format import (
    MAX_LENGTH,
    SIDES,
    Column,
    ColumnType,
    EstimatesLengths,
    LengthIdentity,
    LengthRule,
    Schema,
    constant_length,
)
from mdsx.order import by_value
from mdsx.shards.excerpt import DatasetSlice
from mdsx.shards.formats import read_index
from mdsx.shards.length_file import LengthFile, writing_command
from mdsx.shards.length_table import LengthTable
from mdsx.shards.needs import Join
from mdsx.shards.row_lengths import column_of, read_lengths, width_of
from mdsx.shards.shards import Shards
from mdsx.shards.view import View
from mdsx.storage import file_of


class Lengths(Protocol):
    """The length of each sample of a view. Its methods are called by one thread at a time."""

    @property
    def identity(self) -> Mapping[str, Any]:
        """The source of the lengths, as JSON: equal for equal lengths, in every process and on every machine."""

    @property
    def mean(self) -> Fraction | None:
        """The mean over all stored samples, or an estimate, from the indexes alone or from the given array; None if
        these do not determine it. The default window follows from it. So it must not depend on anything that may be
        absent, refused or newer in another process, such as a file of lengths."""

    @property
    def total(self) -> int | None:
        """The sum over all stored samples, if the indexes alone or the given array determine it exactly."""

    def of(self, shards: NDArray[np.int64], samples: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the lengths, int64 [n], of `samples`, numbered as stored, of the view's `shards` (int64 [n] both).

        Raise CorruptError for a damaged shard, and TransportError if storage failed.
        """


def lengths_of(view: View, length: str | tuple[str, ...] | NDArray[Any], *, rule: LengthRule | None = None) -> Lengths:
    """Return the lengths of a view's samples. `length`: a column, several columns (the longest counts), or an array.
    `rule`: "height" or "width" of a column of encoded images, from the file that was written for them.

    An array has an integer for each stored sample of the dataset; of several datasets, their arrays are concatenated.
    Raise UsageError for a column without lengths, or an invalid array.
    """
    if isinstance(length, tuple):
        return _LongestLengths([lengths_of(view, name) for name in length])
    if not isinstance(length, str):
        return _GivenLengths(view, length)
    parts = [None if excerpt is None else _part(excerpt, length, rule) for excerpt in view.components]
    return _JoinedLengths(parts, view.firsts)


class _LongestLengths:
    """The greatest of a sample's lengths by several columns."""

    def __init__(self, columns: Sequence[Lengths]) -> None:
        self._columns = columns

    @property
    def identity(self) -> Mapping[str, Any]:
        return {"longest": [column.identity for column in self._columns]}

    @cached_property
    def mean(self) -> Fraction | None:
        means = [column.mean for column in self._columns]
        return None if None in means else max(mean for mean in means if mean is not None)

    @property
    def total(self) -> int | None:
        return None

    def of(self, shards: NDArray[np.int64], samples: NDArray[np.int64]) -> NDArray[np.int64]:
        found: NDArray[np.int64] = np.maximum.reduce([column.of(shards, samples) for column in self._columns])
        return found


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
        return Fraction(self.total, max(len(self._lengths), 1))

    @cached_property
    def total(self) -> int:
        return int(self._lengths.sum(dtype=np.int64))

    def of(self, shards: NDArray[np.int64], samples: NDArray[np.int64]) -> NDArray[np.int64]:
        found: NDArray[np.int64] = self._lengths[self._firsts[shards] + samples].astype(np.int64)
        return found


def _checked(given: object, samples: int) -> NDArray[np.uint32]:
    lengths = as_array(given)
    if lengths.ndim != 1 or lengths.dtype.kind not in "iu":
        message = "lengths must be the name of a column, or an array with an integer for each sample"
        raise UsageError(message, found=shown(given))
    if len(lengths) != samples:
        hint = "give one for each stored sample, including those that a selection leaves out"
        raise UsageError("expected one length per sample", found=len(lengths), expected=samples, hint=hint)
    if samples and not (int(lengths.min()) >= 0 and int(lengths.max()) <= MAX_LENGTH):
        wrong = int(lengths.min()) if int(lengths.min()) < 0 else int(lengths.max())
        raise UsageError("a length is out of range", found=wrong, expected=f"0 to {MAX_LENGTH}")
    return lengths.astype(np.uint32)


class _Part(Protocol):
    """The lengths of one excerpt, by its own shard numbers."""

    identity: Mapping[str, Any]
    samples: int

    @property
    def mean(self) -> Fraction | None: ...
    @property
    def total(self) -> int | None: ...
    def of(self, shards: NDArray[np.int64], samples: NDArray[np.int64]) -> NDArray[np.int64]: ...


class _JoinedLengths:
    """The lengths of several components; None for one that was removed."""

    def __init__(self, parts: Sequence[_Part | None], firsts: NDArray[np.int64]) -> None:
        self._parts, self._firsts = parts, firsts

    @property
    def identity(self) -> Mapping[str, Any]:
        each = [None if part is None else part.identity for part in self._parts]
        return each[0] if len(each) == 1 and each[0] is not None else {"each": each}

    @cached_property
    def mean(self) -> Fraction | None:
        total = Fraction(0)
        parts = [part for part in self._parts if part is not None]
        for part in parts:
            if (mean := part.mean) is None:
                return None
            total += mean * part.samples
        return total / max(sum(part.samples for part in parts), 1)

    @property
    def total(self) -> int | None:
        totals = [part.total for part in self._parts if part is not None]
        return None if None in totals else sum(total for total in totals if total is not None)

    def of(self, shards: NDArray[np.int64], samples: NDArray[np.int64]) -> NDArray[np.int64]:
        if len(self._parts) == 1 and self._parts[0] is not None:
            return self._parts[0].of(shards, samples)
        found, components = np.empty(len(shards), np.int64), np.searchsorted(self._firsts, shards, side="right") - 1
        for component, here in by_value(components):
            part = self._parts[component]
            assert part is not None, "a component without shards"
            found[here] = part.of(shards[here] - self._firsts[component], samples[here])
        return found


class StoredColumn(NamedTuple):
    """The stored column of an excerpt's lengths. `home`: the number of its dataset; `items`: the type that its bytes
    are reinterpreted as, if any."""

    home: int
    number: int
    type: ColumnType
    identity: LengthIdentity
    items: ColumnType | None


def stored_column(excerpt: DatasetSlice, name: str, given: LengthRule | None = None) -> StoredColumn:
    """Return the stored column for lengths by column `name`. Raise UsageError for a column without lengths."""
    stored = [
        excerpt.datasets[home].schema.columns[number]
        for home, number in zip(excerpt.homes, excerpt.columns, strict=True)
    ]
    named = Schema(
        tuple(
            column if change is not None and change.is_mask else Column(column.name, own.type)
            for column, own, change in zip(excerpt.schema.columns, stored, excerpt.changes, strict=True)
        )
    )
    place, rule = column_of(named, name, url=excerpt.shards.storage.url, rule=given)
    home, own, change = excerpt.homes[place], stored[place], excerpt.changes[place]
    identity = LengthIdentity(excerpt.datasets[home].index.fingerprint, own.name, rule)
    items = None if change is None or change.bytes_of is None or given is not None else change.source
    return StoredColumn(home, excerpt.columns[place], own.type, identity, items)


def _part(excerpt: DatasetSlice, name: str, given: LengthRule | None) -> _Part:
    home, number, kind, identity, items = stored_column(excerpt, name, given)
    shards = excerpt.datasets[home]
    constant = constant_length(items or kind)
    if constant is not None and given is None:
        return _ConstantLengths(identity, shards.index.samples, constant)
    lengths: _Part = _StoredLengths(shards, number, identity)
    if items is not None:
        lengths = _ItemLengths(lengths, items.item_dtype.itemsize)
    return lengths if home == 0 else _SideLengths(lengths, Join(excerpt.shards.index.counts, shards.index.counts))


def name_of_stored(excerpt: DatasetSlice, stored: str) -> str | None:
    """Return the name of a stored column in an excerpt; None if it is not in the excerpt."""
    names = [
        excerpt.datasets[home].schema.columns[number].name
        for home, number in zip(excerpt.homes, excerpt.columns, strict=True)
    ]
    return excerpt.schema.columns[names.index(stored)].name if stored in names else None


class _SideLengths:
    """The lengths of a joined dataset, by sample numbers of the main dataset."""

    def __init__(self, part: _Part, join: Join) -> None:
        self.identity, self.samples, self._part, self._join = part.identity, part.samples, part, join

    @property
    def mean(self) -> Fraction | None:
        return self._part.mean

    @property
    def total(self) -> int | None:
        return self._part.total

    def of(self, shards: NDArray[np.int64], samples: NDArray[np.int64]) -> NDArray[np.int64]:
        return self._part.of(*self._join.locate(shards, samples))


class _ItemLengths:
    """The number of items of `size` bytes in each value of a column of bytes."""

    def __init__(self, part: _Part, size: int) -> None:
        self.identity: Mapping[str, Any] = {**part.identity, "items": size}
        self.samples, self._part, self._size = part.samples, part, size

    @property
    def mean(self) -> Fraction | None:
        mean = self._part.mean
        return None if mean is None else mean / self._size

    @property
    def total(self) -> int | None:
        total = self._part.total
        return None if total is None else total // self._size

    def of(self, shards: NDArray[np.int64], samples: NDArray[np.int64]) -> NDArray[np.int64]:
        return self._part.of(shards, samples) // self._size


class _ConstantLengths:
    """The lengths of arrays of one size."""

    def __init__(self, identity: LengthIdentity, samples: int, length: int) -> None:
        self.identity: Mapping[str, Any] = identity.fields
        self.samples, self.mean, self._length = samples, Fraction(length), length
        self.total: int | None = samples * length

    def of(self, shards: NDArray[np.int64], samples: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.full(len(samples), self._length, np.int64)


class _StoredLengths:
    """The lengths of a dataset's samples by column `column` of its shards."""

    def __init__(self, shards: Shards, column: int, identity: LengthIdentity) -> None:
        self.identity: Mapping[str, Any] = identity.fields
        self.samples = shards.index.samples
        # Formats that store columns separately fetch only this one.
        self._shards, (self._column,) = shards.project([column])
        self._identity = identity
        self._process: _Process | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_process": None}

    @property
    def mean(self) -> Fraction | None:
        index = self._shards.index
        if self._identity.rule in SIDES or not isinstance(index, EstimatesLengths):
            return None
        return index.mean_length(self._column)

    @property
    def total(self) -> int | None:
        index = self._shards.index
        if self._identity.rule in SIDES or not isinstance(index, EstimatesLengths):
            return None
        return index.total_length(self._column)

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
        """Read the lengths of these shards into the table."""
        table = self._state.table
        missing = table.missing(shards)
        if missing and (file := self._state.file) is not None:
            for found in file.read(missing):
                table.put(found)
            missing = [shard for shard in missing if not table.known[shard]]
        if self._identity.rule in SIDES:
            self._load_sides(missing)
            return
        # Each process of the node begins at another shard, and finds in the table what the others have read.
        rank, count = find_local_ranks(os.environ)
        middle = (rank or 0) * len(missing) // max(count, 1)
        waiting = missing[middle:] + missing[:middle]
        while waiting := table.missing(waiting):
            width = width_of(self._shards.index, self._column, waiting)
            table.put(read_lengths(self._shards, self._column, waiting[:width]))

    def _load_sides(self, missing: list[int]) -> None:
        """Read the sides of images from the present file of the dataset, if the dataset has only grown. Raise
        MissingError if there is none: rows do not have them."""
        table, shards = self._state.table, self._shards
        if missing and (file := self._state.later_file) is not None:
            for found in file.read(missing):
                table.put(found)
            missing = [shard for shard in missing if not table.known[shard]]
        if missing:
            raise MissingError(
                "the sizes of the images are not stored, or their file is damaged or of another dataset",
                file=file_of(shards.beside, self._identity.key),
                hint=f"write them once: {writing_command(shards.storage, self._identity)}",
            )


class _Process:
    """The state of one process, with its mapping of the table."""

    def __init__(self, shards: Shards, identity: LengthIdentity) -> None:
        self.owner = Owner()
        self._shards, self._identity, self._counts = shards, identity, shards.index.counts

    @cached_property
    def file(self) -> LengthFile | None:
        # The file may be of a later state of the dataset; missing sides of images are an error.
        warns = not self._shards.is_snapshot and self._identity.rule not in SIDES
        return LengthFile.open(self._shards.beside, self._identity, self._counts, warns=warns)

    @cached_property
    def later_file(self) -> LengthFile | None:
        """The file of the dataset's present state, if that begins with all our shards: parts were appended."""
        whole = read_index(self._shards.beside)
        if len(whole.counts) < len(self._counts) or not np.array_equal(
            whole.raw_hashes[: len(self._counts)], self._shards.index.raw_hashes
        ):
            return None
        identity = replace(self._identity, fingerprint=whole.fingerprint)
        return LengthFile.open(self._shards.beside, identity, whole.counts, warns=False)

    @cached_property
    def table(self) -> LengthTable:
        shards, identity, counts = self._shards, self._identity, self._counts
        if shards.cache is not None:
            return LengthTable.in_cache(identity, shards.index, shards.cache, shards.storage.url)
        path = shards.beside.path(identity.key)
        if shards.mapped_in_place and shards.maps_beside and path is not None and self.file is not None:
            return LengthTable.in_place(identity, counts, path, self.file.trailer)
        return LengthTable.in_memory(identity, counts)
