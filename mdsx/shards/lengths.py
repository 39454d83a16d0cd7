"""The lengths of samples: a column of the samples that are read, or an array that the user gives.

The lengths of a shard are read when they are first asked for, from its rows, without what the rows lead to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import xxhash
from numpy.typing import NDArray

from mdsx.errors import UsageError, shown
from mdsx.format import constant_length, length_rule
from mdsx.process import REQUESTS, Share
from mdsx.shards.joins import Join
from mdsx.shards.shards import Shards
from mdsx.shards.view import Excerpt, View

_MOST = 2**32 - 1
_AT_ONCE = 64  # shards
_BYTES_AT_ONCE = 2**28


class Lengths(Protocol):
    """The length of each sample of a view. Its methods are called by one thread at a time."""

    @property
    def identity(self) -> Mapping[str, Any]:
        """What the lengths are, as JSON: equal for equal lengths, in every process and on every machine."""

    @property
    def mean(self) -> float | None:
        """The mean over all stored samples, where it is known without a pass over them. All processes know the same."""

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
    def mean(self) -> float | None:
        return int(self._lengths.sum(dtype=np.int64)) / len(self._lengths) if len(self._lengths) else None

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
    if samples and not (int(lengths.min()) >= 0 and int(lengths.max()) <= _MOST):
        wrong = int(lengths.min()) if int(lengths.min()) < 0 else int(lengths.max())
        raise UsageError("this number cannot be a length", found=wrong, expected=f"0 to {_MOST}")
    return lengths.astype(np.uint32)


class _Part(Protocol):
    """The lengths of one excerpt, by its own numbers of shards."""

    identity: Mapping[str, Any]
    samples: int

    @property
    def mean(self) -> float | None: ...
    def of(self, shards: NDArray[np.int64], samples: NDArray[np.int64]) -> NDArray[np.int64]: ...


class _JoinedLengths:
    """The lengths of several excerpts."""

    def __init__(self, parts: Sequence[_Part], firsts: NDArray[np.int64]) -> None:
        self._parts, self._firsts = parts, firsts

    @property
    def identity(self) -> Mapping[str, Any]:
        return self._parts[0].identity if len(self._parts) == 1 else {"each": [part.identity for part in self._parts]}

    @cached_property
    def mean(self) -> float | None:
        means, total = [part.mean for part in self._parts if part.samples], 0.0
        for part, mean in zip((part for part in self._parts if part.samples), means, strict=True):
            if mean is None:
                return None
            total += mean * part.samples
        return total / sum(part.samples for part in self._parts) if means else None

    def of(self, shards: NDArray[np.int64], samples: NDArray[np.int64]) -> NDArray[np.int64]:
        if len(self._parts) == 1:
            return self._parts[0].of(shards, samples)
        found, components = np.empty(len(shards), np.int64), np.searchsorted(self._firsts, shards, side="right") - 1
        for component in np.unique(components).tolist():
            here = components == component
            found[here] = self._parts[component].of(shards[here] - self._firsts[component], samples[here])
        return found


def _part(excerpt: Excerpt, name: str) -> _Part:
    places = {column.name: place for place, column in enumerate(excerpt.schema.columns)}
    home = excerpt.homes[places[name]] if name in places else 0
    shards = excerpt.datasets[home]
    schema, url = shards.schema, shards.storage.url
    number = excerpt.columns[places[name]] if name in places else None
    rule = None if number is None else length_rule(schema.columns[number].type)
    if number is None or rule is None:
        good = [column.name for column in excerpt.schema.columns if length_rule(column.type)]
        type = "" if number is None else f": its type is {schema.columns[number].type}"
        message = "there is no such column" if number is None else f"this column does not give lengths{type}"
        expected = ", ".join(good) or "arrays of one dimension, bytes, str, json, or integers; there are none"
        raise UsageError(message, file=url, place=f"column {name[:80]!r}", expected=expected)
    constant = constant_length(schema.columns[number].type)
    identity = {"fingerprint": shards.index.fingerprint, "column": schema.columns[number].name, "rule": rule}
    if constant is not None:
        return _ConstantLengths(identity, shards.index.samples, constant)
    stored = _StoredLengths(shards, number, identity)
    return stored if home == 0 else _SideLengths(stored, Join(excerpt.shards.index.counts, shards.index.counts))


class _SideLengths:
    """The lengths of a joined dataset, by the numbers of the samples in the dataset that it is joined to."""

    def __init__(self, part: _Part, join: Join) -> None:
        self.identity, self.samples, self._part, self._join = part.identity, part.samples, part, join

    @property
    def mean(self) -> float | None:
        return self._part.mean

    def of(self, shards: NDArray[np.int64], samples: NDArray[np.int64]) -> NDArray[np.int64]:
        return self._part.of(*self._join.locate(shards, samples))


class _ConstantLengths:
    """The lengths of arrays of one size."""

    def __init__(self, identity: Mapping[str, Any], samples: int, length: int) -> None:
        self.identity, self.samples, self.mean, self._length = identity, samples, float(length), length

    def of(self, shards: NDArray[np.int64], samples: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.full(len(samples), self._length, np.int64)


class _StoredLengths:
    """The lengths of a dataset's samples by column `column` of its shards."""

    def __init__(self, shards: Shards, column: int, identity: Mapping[str, Any]) -> None:
        self.identity, self.samples = identity, shards.index.samples
        # Formats that store columns apart fetch only this one.
        self._shards, (self._column,) = shards.project([column])
        counts = shards.index.counts
        self._counts, self._firsts = counts, np.cumsum(counts) - counts
        self._table = np.zeros(self.samples, np.uint32)
        self._known = np.zeros(len(counts), np.bool_)

    @cached_property
    def mean(self) -> float | None:
        return self._shards.index.mean_length(self._column)

    def of(self, shards: NDArray[np.int64], samples: NDArray[np.int64]) -> NDArray[np.int64]:
        if not self._known[shards].all():
            self._load(np.unique(shards[~self._known[shards]]).tolist())
        found: NDArray[np.int64] = self._table[self._firsts[shards] + samples].astype(np.int64)
        return found

    def _load(self, missing: list[int]) -> None:
        index, column, pool = self._shards.index, self._column, Share(REQUESTS)
        by_range = index.read_lengths(missing[0], column, file="") is not None
        sizes = self._counts * index.schema.row_size if by_range else index.raw_sizes
        width = max(1, min(_AT_ONCE, _BYTES_AT_ONCE // max(int(sizes[missing].max()), 1)))
        for start in range(0, len(missing), width):
            here = missing[start : start + width]
            found = pool.map(lambda shard: self._shards.lengths(shard, column), here)
            for shard, lengths in zip(here, found, strict=True):
                first = int(self._firsts[shard])
                self._table[first : first + len(lengths)] = lengths
                self._known[shard] = True
