"""The index of an MDS dataset: its shards, and how their bytes become samples.

An MDS index has no hash of itself, and no hashes of shards unless the writer was given `hashes`. So the dataset's
fingerprint is a hash of the index's bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsx.base.cached import cached_property
from mdsx.errors import CorruptError
from mdsx.foreign.checks import MOST_PROBLEMS, TRAILER, check_trailer
from mdsx.foreign.mds.compressions import decompressor
from mdsx.foreign.mds.decode import MdsDecoder
from mdsx.foreign.mds.hashes import FileHashes, fastest
from mdsx.foreign.mds.layout import MdsLayout
from mdsx.foreign.mds.shard import MdsShard
from mdsx.foreign.mds.stored_bytes import MdsRanges, MdsReceiver
from mdsx.format import (
    EstimatesLengths,
    Reading,
    ReadsLengths,
    ReadsSamples,
    ReadsWhole,
    Schema,
    estimated_mean,
    length_rule,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer


class MdsEntry(NamedTuple):
    """The index's entry for the files of a shard. `hashes`: name -> digits for the stored file; `raw_hashes`: for the
    uncompressed file. They may be empty, and are the same for an uncompressed shard."""

    name: str
    compression: str | None
    hashes: dict[str, str]
    raw_hashes: dict[str, str]

    @property
    def hashed(self) -> bool:
        return bool(self.hashes or self.raw_hashes)


@dataclass(frozen=True, eq=False)
class MdsIndex(ReadsWhole, ReadsSamples, ReadsLengths, EstimatesLengths):
    """A parsed index. Arrays have one item for each shard; the raw sizes include the hash that follows the raw bytes in
    the cache."""

    layout: MdsLayout
    entries: tuple[MdsEntry, ...]
    samples: int
    counts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    raw_sizes: NDArray[np.int64]
    raw_hashes: NDArray[np.uint8]  # [S, 16]
    fingerprint: str

    format: ClassVar[str] = "MDS"

    @property
    def schema(self) -> Schema:
        return self.layout.schema

    @property
    def metadata(self) -> dict[str, Any]:
        return {}

    @cached_property
    def compression(self) -> str | None:
        return ", ".join(sorted({entry.compression for entry in self.entries if entry.compression})) or None

    @cached_property
    def checks(self) -> str:
        hashed = [entry for entry in self.entries if entry.hashed]
        unchecked = "only sizes and structure, because the index has no hashes"
        if not hashed:
            return unchecked
        names = ", ".join(Counter(name for entry in hashed for name in {**entry.hashes, **entry.raw_hashes}))
        if len(hashed) == len(self.entries):
            return f"{names} of whole shards"
        return f"{names} of {len(hashed)} of {len(self.entries)} shards; of the others {unchecked}"

    def name(self, shard: int) -> str:
        return self.entries[shard].name

    def has_ranges(self, shard: int) -> bool:
        """Return False for a shard with hashes: it is read whole, because only then can they be checked."""
        entry = self.entries[shard]
        return not (entry.hashed or entry.compression)

    def receive(self, shard: int, *, file: str) -> MdsReceiver:
        entry, raw_size = self.entries[shard], self._raw_size(shard)
        return MdsReceiver(
            size=int(self.sizes[shard]),
            raw_size=raw_size,
            name=bytes(self.raw_hashes[shard]),
            hashes=FileHashes(entry.hashes, "stored", file),
            raw_hashes=FileHashes(entry.raw_hashes if entry.compression else {}, "decompressed", file),
            decompressor=decompressor(entry.compression, raw_size) if entry.compression else None,
            file=file,
        )

    def open(self, shard: int, raw: Buffer, *, file: str) -> MdsShard:
        count, hashed = int(self.counts[shard]), self.entries[shard].hashed
        return MdsShard.parse(raw, self.layout, count=count, size=self._raw_size(shard), hashed=hashed, file=file)

    def verify(self, shard: int, opened: MdsShard, *, file: str) -> None:
        """Check a shard: in the cache, by the hash after it; in place, by the fastest hash in the index and by its
        structure."""
        if opened.trailer is not None:
            name = bytes(self.raw_hashes[shard])
            message = "the shard was damaged in the cache, or is longer than the index says"
            check_trailer(opened.trailer, name, opened.buffer, message=message, file=file)
            return
        hashes = FileHashes(fastest(self.entries[shard].raw_hashes), "shard's", file)
        hashes.update(opened.buffer)
        hashes.check()
        for problem in opened.problems():
            raise problem

    def check(self, shard: int, raw: Buffer, *, file: str) -> Sequence[CorruptError]:
        try:
            opened = self.open(shard, raw, file=file)
        except CorruptError as error:
            return [error]
        return [*islice(opened.problems(), MOST_PROBLEMS)] or [*islice(opened.wrong_values(), MOST_PROBLEMS)]

    def by_range(self, shard: int, *, file: str) -> MdsRanges:
        return MdsRanges(self.layout, count=int(self.counts[shard]), size=self._raw_size(shard), file=file)

    def read_lengths(self, shard: int, column: int, *, file: str) -> Reading[NDArray[np.int64]] | None:
        """Read lengths from the table of offsets, if it determines the sizes of values."""
        kind = self.schema.columns[column].type
        if self.entries[shard].compression or self.layout.varying > 1 or length_rule(kind) != "bytes":
            return None
        return self.by_range(shard, file=file).lengths(kind)

    def mean_length(self, column: int) -> Fraction | None:
        shards, samples = len(self.entries), self.samples
        fixed = (TRAILER + 8) * shards + (4 + self.layout.least) * samples  # 8: a count, and the last offset
        size = max(int(self.raw_sizes.sum()) - fixed, 0)
        return estimated_mean(self.schema.columns[column].type, samples, size)

    def decoder(self, columns: Mapping[str, int]) -> MdsDecoder:
        return MdsDecoder(self.layout, columns)

    def _raw_size(self, shard: int) -> int:
        return int(self.raw_sizes[shard]) - TRAILER
