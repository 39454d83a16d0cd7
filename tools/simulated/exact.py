"""What is read of shards by range, exactly: the index does not say where values begin, but the shards do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mdsx.format import RangeReader, StoredIndex
from mdsx.shards import coalesce, gap_in
from mdsx.simulating.stored import Stored


@dataclass(frozen=True)
class ReadShards(Stored):
    """Shards whose files are in `folder`: the loader's own reader says which ranges of them it needs."""

    index: StoredIndex
    folder: Path
    readers: dict[int, RangeReader] = field(default_factory=dict)

    @classmethod
    def of(cls, stored: Stored, index: StoredIndex, folder: Path) -> ReadShards:
        return cls(**vars(stored), index=index, folder=folder)

    def rounds(self, shard: int, samples: NDArray[np.int64], *, first: bool) -> Iterator[list[int]]:
        """As `Stored.rounds`, but exact for samples of any size and for compressed shards."""
        data = (self.folder / self.index.name(shard)).read_bytes()
        if first:
            self.readers[shard] = self.index.by_range(shard, file=self.index.name(shard))
        gap = gap_in(len(data))
        reading, found = self.readers[shard].select(samples), None
        while True:
            try:
                wanted = next(reading) if found is None else reading.send(found)
            except StopIteration:
                return
            yield [part.stop - part.start for part in coalesce(wanted, gap) if part.stop > part.start]
            found = [memoryview(data)[start:stop] for start, stop in wanted]
