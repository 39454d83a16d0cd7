"""A complete simulation: the training's traffic, waits and cost, the quality of the shuffle, and the advice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

from mdsx.base.sizes import format_size
from mdsx.format import MAX_SHARDS
from mdsx.simulate import arguments
from mdsx.simulate.advice import Advice, ReadingJob, Wanted, advise
from mdsx.simulate.outcome import cost_of, epochs_of, resume_of, series_of, whole_of
from mdsx.simulate.quality import Labels, epoch_orders, order_map, quality
from mdsx.simulate.report import Report
from mdsx.simulate.run import Simulation
from mdsx.simulate.settings import Cluster, Loading, Prices
from mdsx.simulate.source import SimulatedData

_MAPPED = 2000  # points of each order's picture

Watch = Callable[[str], None]


def simulate(
    source: SimulatedData,
    cluster: Cluster,
    loading: Loading,
    prices: Prices,
    *,
    epochs: int = 1,
    resume: Cluster | None = None,
    labels: Labels | None = None,
    wanted: float = 0.9,
    watch: Watch = lambda text: None,
) -> Report:
    """Simulate a run. `resume`: the cluster on which it continues at half of an epoch; `labels`: count their values in
    a batch instead of shards; `wanted`: the quality to advise for, as a share of an exact shuffle's; `watch` is called
    with the name of each stage. Raise UsageError."""
    watch("what each node needs")
    simulation = Simulation(source, cluster, loading, epochs=epochs)
    shuffles = source.order is not None and source.shuffled and source.grouping is None
    mixed: dict[str, Any] = {}
    advice: dict[str, Any] = {}
    with ThreadPoolExecutor(1) as beside:  # on another core: it mostly sorts, which releases the GIL
        advised = beside.submit(_advised, simulation, Wanted(distinct=wanted)) if shuffles else None
        watch("training")
        nodes = simulation.run()
        found = epochs_of(simulation, nodes)
        whole = whole_of(simulation, nodes, found)
        after = None
        if resume is not None:
            watch("resuming")
            after = resume_of(simulation, resume, whole.duplication)
        settings = _settings(simulation, steps=found[0].steps if whole.exact else simulation.steps_of_epoch)
        if advised is not None:
            watch("the quality of the shuffle")
            mixed = _quality(simulation, labels)
            advice = _plain(advised.result(), settings)
    return Report(
        settings=settings,
        whole=whole,
        epochs=found,
        series=[series_of(node) for node in nodes],
        resume=after,
        cost=cost_of(whole, prices),
        quality=mixed,
        advice=advice,
        notes=_notes(simulation),
        busiest=simulation.busiest(),
    )


def _quality(simulation: Simulation, labels: Labels | None) -> dict[str, Any]:
    source, size = simulation.source, simulation.step_samples
    order = source.order
    assert order is not None
    found, maps = [], []
    for each in epoch_orders(order):  # creating large ones takes seconds
        found.append(
            quality(each, order.counts, batch_size=size, sample_bytes=source.stored.sample_bytes, labels=labels)
        )
        maps.append(order_map(each, _MAPPED))
    whole = all(each.sampled >= len(order) for each in found)
    return {
        "methods": [asdict(each) for each in found],
        "maps": {each.method: {"positions": each.positions, "numbers": each.numbers} for each in maps},
        "sampling": "the whole epoch" if whole else f"{max(each.sampled for each in found):,} positions of the epoch",
    }


def _advised(simulation: Simulation, wanted: Wanted) -> Advice:
    source, cluster, loading = simulation.source, simulation.cluster, simulation.loading
    sizes = source.stored.cached
    ranks = cluster.ranks_per_node
    return advise(
        source.stored.counts,
        ReadingJob(cluster.nodes, ranks, simulation.step_samples, ranks * max(loading.num_workers, 1)),
        shard_bytes=float(sizes.mean()),
        largest_shard=int(sizes.max()),
        seed=source.seed,
        wanted=wanted,
    )


def _plain(advice: Advice, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the advice with the command and the arguments to copy."""
    chosen = advice.chosen
    lanes, block, cache = chosen.lanes, chosen.shuffle_block, chosen.cache_bytes
    return {
        **asdict(advice),
        "command": arguments.command(settings, lanes=lanes, shuffle_block=block, cache=cache),
        "python": arguments.python(settings, lanes=lanes, shuffle_block=block, cache=cache),
    }


def _settings(simulation: Simulation, *, steps: int) -> dict[str, Any]:
    source, cluster, loading = simulation.source, simulation.cluster, simulation.loading
    stored, course = source.stored, source.course
    return {
        "data": source.name,
        "samples": course.samples,
        "shards": len(stored.counts),
        "bytes": int(stored.sent.sum()),
        "sample_bytes": stored.sample_bytes,
        "shard_bytes": int(stored.sent.max(initial=0)),
        "nodes": cluster.nodes,
        "ranks_per_node": cluster.ranks_per_node,
        "num_workers": loading.num_workers,
        "batch_size": loading.batch_size,
        "global_batch_size": simulation.step_samples,
        "drop_last": loading.drop_last,
        "steps": steps,
        "seed": source.seed,
        "shuffle": source.shuffled,
        "lanes": course.lanes,
        "shuffle_block": course.shuffle_block,
        "cache": cluster.cache,
        "link": cluster.rate,
        "latency": cluster.latency,
        "step": loading.step,
        "epochs": simulation.plan.epochs,
        "grouping": source.grouping,
    }


def _notes(simulation: Simulation) -> list[str]:
    plan, notes = simulation.plan, []
    if not plan.exact:
        some = f"nodes {', '.join(map(str, plan.nodes))} and the first {plan.steps:,} steps of an epoch"
        notes.append(
            f"Only {some} were simulated. Bytes, requests and waits of the whole epoch are scaled up from these "
            "steps; what each node needs is exact."
        )
    shards, most = len(simulation.source.stored.counts), MAX_SHARDS
    if shards > most:
        least = int(simulation.source.stored.cached.sum()) // most
        notes.append(
            f"A dataset can have at most {most:,} shards, but this one would have {shards:,}: write shards of at least "
            f"{format_size(least)}."
        )
    if bool(simulation.source.stored.variable.any()):
        notes.append("The bytes of samples that are read one by one are estimated from the mean in their shard.")
    notes.append(
        "Not counted: the requests for the index and for opening connections, and the time to decode and transform "
        "samples."
    )
    return notes
