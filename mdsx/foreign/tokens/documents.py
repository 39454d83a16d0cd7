"""Cut the documents of a file into shards of about 64 MiB. The lengths alone determine the cuts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsx.foreign.tokens.tables import record_dtype

SHARD_SIZE = 2**26
"""The most bytes of tokens in a shard, unless it is one document."""
MAX_DOCUMENTS = 2**20
"""The most documents of a shard."""
MAX_DOCUMENT = 2**31 - 1
"""The most bytes of a document, as of any value."""


class Block(NamedTuple):
    """The lengths of successive documents, int64 [n], and their modes, int8 [n]."""

    lengths: NDArray[np.int64]
    modes: NDArray[np.int8] | None = None


class Cut(NamedTuple):
    """Documents of one shard: their lengths, int64 [n], and modes, and the number in the file of their first token."""

    first: int
    lengths: NDArray[np.int64]
    modes: NDArray[np.int8] | None

    @property
    def tokens(self) -> int:
        return int(self.lengths.sum())

    def table(self, hashed: tuple[str, ...]) -> NDArray[np.void]:
        """Return the shard's table, whose hashes are 0."""
        found = np.zeros(len(self.lengths) + 1, record_dtype(modes=self.modes is not None, hashed=hashed))
        found["edge"][1:] = self.lengths.cumsum()
        if self.modes is not None:
            found["mode"][:-1] = self.modes
        return found


@dataclass(frozen=True, slots=True)
class Shards:
    """How documents become shards, given the bytes of a token."""

    item_size: int

    @property
    def most(self) -> int:
        """Return the most tokens of a shard with more than one document."""
        return SHARD_SIZE // self.item_size

    def equal(self, every: int) -> int:
        """Return how many documents of `every` tokens a shard has."""
        return min(max(self.most // every, 1), MAX_DOCUMENTS)


def cut_shards(blocks: Iterable[Block], shards: Shards) -> Iterator[Cut]:
    """Yield the documents of each shard. The cuts do not depend on where blocks end."""
    first, lengths, modes = 0, np.zeros(0, np.int64), None
    for block in blocks:
        lengths = np.concatenate((lengths, block.lengths))
        if block.modes is not None:
            modes = block.modes if modes is None else np.concatenate((modes, block.modes))
        start = 0
        for stop in _stops(lengths, shards.most, last=False):
            yield Cut(first, lengths[start:stop], None if modes is None else modes[start:stop])
            first, start = first + int(lengths[start:stop].sum()), stop
        lengths, modes = lengths[start:], None if modes is None else modes[start:]
    start = 0
    for stop in _stops(lengths, shards.most, last=True):
        yield Cut(first, lengths[start:stop], None if modes is None else modes[start:stop])
        first, start = first + int(lengths[start:stop].sum()), stop


def _stops(lengths: NDArray[np.int64], most: int, *, last: bool) -> Iterator[int]:
    """Yield where each shard ends; without `last`, only for shards that further documents cannot change."""
    ends, start, before = lengths.cumsum(), 0, 0
    while start < len(lengths):
        stop = int(np.searchsorted(ends, before + most, side="right"))
        stop = min(max(stop, start + 1), start + MAX_DOCUMENTS)
        if stop >= len(lengths) and not last and stop < start + MAX_DOCUMENTS and ends[-1] - before <= most:
            return
        yield stop
        start, before = stop, int(ends[stop - 1])
