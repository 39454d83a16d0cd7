"""Compute a simulation's results, from the marks that its nodes made at each step: by epoch, over time, and in all."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import UsageError
from mdsx.order import Position
from mdsx.simulate.report import Cost, Epoch, Resume, Series, Traffic, Whole
from mdsx.simulate.run import Simulation
from mdsx.simulate.settings import Cluster, Prices
from mdsx.simulate.training import NOTHING, SimulatedNode
from mdsx.stream import Cursor

_WINDOWS = 6  # of a stretch; their spread is the error
_POINTS = 400  # of a series
_SHORT = 1e-4  # seconds; a shorter wait does not count


def epochs_of(simulation: Simulation, nodes: Sequence[SimulatedNode]) -> list[Epoch]:
    """Return what each node did in each epoch."""
    found = []
    for node in nodes:
        before, all_waits = NOTHING, _waits(node)
        for epoch, (low, high) in enumerate(pairwise([0, *node.edges])):
            end = node.end if high == len(node.marks) else node.marks[high]
            waits = all_waits[low:high]
            traffic = Traffic(
                end.downloaded - before.downloaded,
                end.requests - before.requests,
                end.shards - before.shards,
                end.samples - before.samples,
                _minimum(simulation, node, epoch),
                _ahead(simulation, node, epoch, node.fetched.whole[before.shards : end.shards]),
            )
            first = float(waits[0]) if len(waits) else 0.0
            stalls = waits[waits > _SHORT]
            found.append(
                Epoch(
                    node.number,
                    epoch,
                    len(waits),
                    traffic,
                    first,
                    len(stalls),
                    float(stalls.sum()),
                    end.seconds - before.seconds,
                    node.cache.peak,
                )
            )
            before = end
    return found


def series_of(node: SimulatedNode) -> Series:
    """Return the node over time."""
    marks = [*node.marks, node.end]
    waited = [*accumulate(_waits(node).tolist())]
    waited.append(waited[-1] if waited else 0.0)
    places = np.unique(np.linspace(0, len(marks) - 1, min(len(marks), _POINTS)).astype(int)).tolist()
    return Series(
        node.number,
        [round(marks[place].seconds, 6) for place in places],
        [marks[place].downloaded for place in places],
        [marks[place].cached for place in places],
        [round(waited[place], 6) for place in places],
    )


def whole_of(simulation: Simulation, nodes: Sequence[SimulatedNode], epochs: Sequence[Epoch]) -> Whole:
    """Return the first epoch of all nodes."""
    plan, stored = simulation.plan, simulation.source.stored
    needed = max((each.at_a_time for each in simulation.needs), default=0)
    dataset = int(stored.sent.sum())
    first = [epoch for epoch in epochs if epoch.epoch == 0]
    waits = np.max([_waits(node)[: first[0].steps] for node in nodes], axis=0)
    if plan.exact:
        stalls = waits[waits > _SHORT]
        return Whole(
            exact=True,
            share=1.0,
            error=0.0,
            bytes=sum(each.traffic.bytes for each in first),
            requests=sum(each.traffic.requests for each in first),
            ahead=sum(each.traffic.ahead for each in first),
            minimum=sum(each.traffic.minimum for each in first),
            dataset=dataset,
            cache_needed=needed,
            first_batch=max(each.first_batch for each in first),
            waiting_share=len(stalls) / max(len(waits), 1),
            waited=float(stalls.sum()),
            seconds=max(each.seconds for each in first),
        )
    times, error = _duplication(nodes)
    minimum = simulation.minimum_of_all()
    cold = [node.marks[0] for node in nodes]  # the first batch is read by range, which is negligible in the whole
    sent = sum(node.end.downloaded - mark.downloaded for node, mark in zip(nodes, cold, strict=True))
    per_byte = sum(node.end.requests - mark.requests for node, mark in zip(nodes, cold, strict=True)) / max(sent, 1)
    half, left = len(waits) // 2, simulation.steps_of_epoch - len(waits) // 2
    later = waits[half:]
    stalls = later[later > _SHORT]
    share = len(stalls) / max(len(later), 1)
    waited = float(waits[:half].sum()) + float(stalls.sum()) / max(len(later), 1) * left
    return Whole(
        exact=False,
        share=len(waits) * len(nodes) / (simulation.steps_of_epoch * simulation.cluster.nodes),
        error=error,
        bytes=round(minimum * times),
        requests=round(minimum * times * per_byte),
        ahead=0,
        minimum=minimum,
        dataset=dataset,
        cache_needed=needed,
        first_batch=max(each.first_batch for each in first),
        waiting_share=share,
        waited=waited,
        seconds=simulation.steps_of_epoch * simulation.loading.step + waited,
    )


def resume_of(simulation: Simulation, cluster: Cluster, duplication: float) -> Resume:
    """Return what happens if the run continues on `cluster` at half of the first epoch.

    If the simulation is exact, remaining nodes keep their caches; otherwise none does.
    """
    if simulation.source.grouping is not None:
        raise UsageError("continuing a run of groups cannot be simulated", hint="remove --resume-world-size")
    size = simulation.loading.batch_size * simulation.cluster.world_size
    done = simulation.steps_of_epoch // 2
    start = done * size
    if not simulation.plan.exact or simulation.source.order is None:
        numbers = [number for number in simulation.plan.nodes if number < cluster.nodes] or [0]
        nodes = simulation.train(cluster, numbers, [Cursor(0, Position(start))])
        cold = round(simulation.minimum_of_all(cluster, start) * duplication)
        waits = np.max([_waits(node) for node in nodes], axis=0)
        return Resume(cluster.nodes, cluster.world_size, cold, cold, float(waits[0]), float(waits.sum()))
    before = simulation.train(simulation.cluster, range(simulation.cluster.nodes), [Cursor()], most=max(done, 1))
    found = []
    for caches in ([node.cache for node in before], []):
        nodes = simulation.train(cluster, range(cluster.nodes), [Cursor(0, Position(start))], caches=caches)
        found.append((sum(node.end.downloaded for node in nodes), np.max([_waits(node) for node in nodes], axis=0)))
    (warm, waits), (cold, _) = found
    return Resume(cluster.nodes, cluster.world_size, warm, cold, float(waits[0]), float(waits.sum()))


def cost_of(whole: Whole, prices: Prices) -> Cost:
    """Return what an epoch costs."""
    return Cost(
        whole.requests / 1000 * prices.per_thousand_requests,
        whole.bytes / 1e9 * prices.per_gigabyte,
        prices.per_thousand_requests,
        prices.per_gigabyte,
        prices.currency,
    )


def _minimum(simulation: Simulation, node: SimulatedNode, epoch: int) -> int:
    if simulation.needs:
        return simulation.needs_at(epoch)[node.number].bytes
    fetched = np.unique(np.array(node.fetched.whole, np.int64))  # for a mixture or groups: what the node has fetched
    return int(simulation.source.stored.sent[fetched].sum())


def _ahead(simulation: Simulation, node: SimulatedNode, epoch: int, fetched: Sequence[int]) -> int:
    """Return the bytes of the fetched shards that the node does not read in that epoch."""
    if not simulation.plan.exact or not simulation.needs:
        return 0
    shards = np.array(fetched, np.int64)
    later = shards[~np.isin(shards, simulation.needs_at(epoch)[node.number].shards)]
    return int(simulation.source.stored.sent[later].sum())


def _waits(node: SimulatedNode) -> NDArray[np.float64]:
    """Return float64 [steps]: how long the node's slowest rank waited for each step."""
    waits: NDArray[np.float64] = np.max([*node.waits.values()], axis=0)
    return waits


def _duplication(nodes: Sequence[SimulatedNode]) -> tuple[float, float]:
    """Return the downloaded bytes relative to those of the shards with anything fetched, and the relative standard
    error, from parts of the stretch."""
    ratios, came, once = [], 0, 0
    for node in nodes:
        marks = [NOTHING, *node.marks, node.end]
        for low, high in pairwise(np.linspace(0, len(marks) - 1, _WINDOWS + 1).astype(int).tolist()):
            new = marks[high].once - marks[low].once
            came, once = came + marks[high].downloaded - marks[low].downloaded, once + new
            if new:
                ratios.append((marks[high].downloaded - marks[low].downloaded) / new)
    if not once:
        return 1.0, 0.0
    mean = came / once
    return mean, float(np.std(ratios) / np.sqrt(len(ratios)) / mean)
