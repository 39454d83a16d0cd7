"""The same setting, simulated from the dataset's index as `mdsx simulate` does it."""

from __future__ import annotations

from dataclasses import replace

from mdsx.order import Shuffle
from mdsx.simulating.run import Simulation
from mdsx.simulating.settings import Cluster, Loading
from mdsx.simulating.source import opened
from tools.simulated.exact import ReadShards
from tools.simulated.measured import Found, Place


def simulate(place: Place, latency: float, step: float) -> Found:
    """Simulate the setting, on a link whose requests take `latency` seconds, with steps of `step` seconds."""
    setting = place.setting
    options = place.options(place.server.endpoint)
    source = opened([place.url], shuffle=Shuffle(shuffle_block=setting.block), storage_options=options)
    if setting.needs_shards:
        assert source.view is not None
        index = source.view.parts[0].shards.index
        source = replace(source, stored=ReadShards.of(source.stored, index, place.folder))
    cluster = Cluster(1, setting.ranks, place.limit, setting.rate, latency)
    loading = Loading(setting.batch, setting.workers, 2, True, step)
    simulation = Simulation(source, cluster, loading, epochs=setting.epochs)
    assert simulation.plan.exact
    (node,) = simulation.run()
    waits = [node.steps[rank].waited for rank in node.ranks]
    return Found(
        node.link.bytes,
        len(node.fetched.whole),
        node.link.requests - len(node.fetched.whole),
        waits,
        max(each[0] for each in waits),
        latency,
        step,
    )
