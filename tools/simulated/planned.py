"""The same setting, simulated from the dataset's index as `mdsx simulate` does it.

Where the index does not say which ranges of a shard hold a sample, the shard itself does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mdsx.datasets import excerpt_of
from mdsx.format import RangeReader, ReadsSamples, StoredIndex
from mdsx.order import Shuffle
from mdsx.shards import coalesce, gap_in
from mdsx.simulate.run import Simulation
from mdsx.simulate.settings import Cluster, Loading
from mdsx.simulate.source import opened
from mdsx.simulate.stored import Stored
from tools.simulated.measured import Found, Place


def simulate(place: Place, latency: float, step: float) -> Found:
    """Simulate the setting, on a link whose requests take `latency` seconds, with steps of `step` seconds."""
    setting = place.setting
    options = place.options(place.server.endpoint)
    source = opened([place.url], shuffle=Shuffle(shuffle_block=setting.block), storage_options=options)
    if setting.needs_shards:
        assert source.dataset is not None
        index = excerpt_of(source.dataset).shards.index
        source = replace(source, stored=ReadShards.of(source.stored, index, place.folder))
    cluster = Cluster(1, setting.ranks, place.limit, setting.rate, latency)
    loading = Loading(setting.batch, setting.workers, True, step)
    simulation = Simulation(source, cluster, loading, epochs=setting.epochs)
    assert simulation.plan.exact
    (node,) = simulation.run()
    whole, waits = node.fetched.whole, [node.waits[rank] for rank in node.ranks]
    ranges = node.link.requests - len(whole)
    return Found(node.link.bytes, len(whole), ranges, len({*whole}), waits, latency, step)


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
            assert isinstance(self.index, ReadsSamples)
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
