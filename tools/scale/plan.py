"""The figures of a run that no machine here can make, computed: from the order, and from an index that is really built.

Which node reads which shard follows from the real order, over a whole epoch: nothing is sampled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from mdsx.base.sizes import format_size
from mdsx.format import MAX_SHARDS, ShardEntry, filenames, join_indexes
from mdsx.order import Order
from mdsx.simulate.course import pieces_of
from mdsx.simulate.needs import needs_of_nodes
from mdsx.simulate.settings import Cluster
from mdsx.simulate.stored import plain
from tools.pages import table
from tools.scale.job import Job
from tools.scale.made import folders, index_of

MIB = 2**20
_AHEAD = 2**30  # bytes that a process brings ahead, or one shard
_HASH = "0123456789abcdef" * 2
_DAY = 86400


def counts_of(job: Job, shard_bytes: int) -> NDArray[np.int64]:
    """Return the samples of each shard of about `shard_bytes`."""
    each = max(shard_bytes // job.sample_bytes, 1)
    whole, rest = divmod(job.samples, each)
    return np.array([each] * whole + [rest] * bool(rest), np.int64)


def reads_of(order: Order, nodes: int, ranks: int, batch: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return of each node how many shards it reads in an epoch, and how many are open at most at a time.

    A node reads a shard if one of its ranks reads a lane that draws on it; the shard is open from the first block that
    has samples of it to the last.
    """
    cluster, counted = Cluster(nodes, ranks, 1, None, 0.0), plain(order.counts, np.ones_like(order.counts), 0)
    # A shard counts as a byte.
    needs = needs_of_nodes(order, pieces_of(order), counted, cluster, batch * cluster.world_size)
    return np.array([each.bytes for each in needs]), np.array([each.at_a_time for each in needs])


def index_bytes(counts: NDArray[np.int64], shard_bytes: int, parts: int) -> int:
    """Return the size of the index of shards with these numbers of samples: written by one writer (`parts` is 0), or by
    that many attempts of Spark's tasks."""
    entry = ShardEntry(
        filenames.shard(0, compressed=False), int(counts[0]), 2**63, shard_bytes, _HASH, shard_bytes, _HASH
    )
    names = folders(parts) if parts else [""]
    each, more = divmod(len(counts), len(names))
    sizes = [index_of(entry, each), index_of(entry, each + 1)]
    return len(join_indexes(sizes[0].schema, None, [(name, sizes[n < more]) for n, name in enumerate(names)]))


def sections(job: Job, shard_sizes: Sequence[int] = (64 * MIB, 256 * MIB, 1024 * MIB)) -> Iterator[tuple[str, str]]:
    """Yield the names of the tables, and the tables."""
    yield "run", _run(job)
    fitting = [size for size in shard_sizes if len(counts_of(job, size)) <= MAX_SHARDS]
    yield "sizes", _sizes(job, shard_sizes)
    yield "lanes", _lanes(job, fitting)


def _run(job: Job) -> str:
    rate = job.bytes / job.seconds
    rows = [
        ["samples", f"{job.samples:,} of {job.sample_bytes / 1000:g} kB: {job.bytes / 1e15:g} PB"],
        ["ranks", f"{job.nodes} nodes x {job.ranks} = {job.world}"],
        ["a step", f"{job.batch} samples for each rank, {job.step:g} s"],
        ["an epoch", f"{job.samples // (job.batch * job.world):,} steps, {job.seconds / _DAY:.1f} days"],
        ["read", f"{rate / 1e9:.2f} GB/s by all nodes, {rate / job.nodes / 1e6:.0f} MB/s by each"],
    ]
    return table(["", ""], rows)


def _sizes(job: Job, shard_sizes: Sequence[int]) -> str:
    rows = []
    for size in shard_sizes:
        counts = counts_of(job, size)
        found = [f"{len(counts):,}"]
        if len(counts) > MAX_SHARDS:
            found += [f"more than {MAX_SHARDS:,}: refused", "", "", ""]
        else:
            found += [format_size(index_bytes(counts, size, parts)) for parts in (0, 10**3, 10**5)]
            found.append(f"{len(counts) / job.seconds:.1f}")
        rows.append([f"{size // MIB} MiB", *found])
    heads = ["shard size", "shards", "index: one writer", "1,000 parts", "100,000 attempts", "shards a second"]
    return table(heads, rows, right=range(1, 6))


def _lanes(job: Job, shard_sizes: Sequence[int]) -> str:
    rows = []
    for size in shard_sizes:
        counts = counts_of(job, size)
        for lanes in (8, job.nodes, job.world):
            read, at_once = reads_of(Order(counts, seed=1, lanes=lanes), job.nodes, job.ranks, job.batch)
            each = job.bytes / len(counts)
            ahead = job.ranks * max(_AHEAD, size)
            rows.append(
                [
                    f"{size // MIB} MiB",
                    f"{lanes}",
                    f"{read.sum() / len(counts):.2f}",
                    f"{read.sum() / job.seconds:.1f}",
                    f"{read.max() * each / 1e12:.1f} TB",
                    f"{at_once.max():,}",
                    format_size(int(at_once.max()) * size + ahead),
                ]
            )
    heads = ["shard size", "lanes", "downloads of a shard", "requests a second", "egress to a node", "open at a time"]
    return table([*heads, "cache of a node"], rows, right=range(1, 7))
