"""Whether a dataset is complete, whether its shards have a good size, and how to read it on given ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mdsx.base.sizes import format_count, format_size
from mdsx.checks.doctor.finding import Finding, ok, problem, warning
from mdsx.checks.doctor.storage import list_all
from mdsx.format import NeedsSideObjects, ReadsParts, StoredIndex, object_sizes
from mdsx.order import DatasetCourse, Order, default_lanes, lane_spread, lanes_for_nodes, own_lanes
from mdsx.shards import OURS
from mdsx.storage import Storage

_WRITE = 'write shards of 64 MiB: mdsx.Writer(shard_size="64MiB")'
_LISTED = 50_000  # objects
_SMALL, _FEW = 4 * 2**20, 64  # bytes of an average shard; up to this many shards, any size is fine
_LARGE = 2**30
_LEAST_BLOCK = 1024  # samples
_LEAST_LIMIT = 10**9  # bytes of a cache: a smaller limit saves little, and leaves no room for another dataset
_SPARE = 1.25  # for prefetched shards


@dataclass(frozen=True)
class Job:
    """The planned run: `world_size` ranks on `nodes` machines. Each rank takes `batch_size` samples every `step`
    seconds."""

    world_size: int = 1
    nodes: int = 1
    batch_size: int | None = None
    step: float = 1.0

    @property
    def ranks_here(self) -> int:
        return -(-self.world_size // self.nodes)

    def need(self, index: StoredIndex) -> float | None:
        """Return the bytes a second that a node downloads in the first epoch."""
        if self.batch_size is None or not index.samples:
            return None
        return self.ranks_here * self.batch_size * float(index.sizes.sum()) / index.samples / self.step


@dataclass(frozen=True)
class Plan:
    """How to read a dataset. `in_use`: shards that a node reads at a time; `needed`: their bytes."""

    lanes: int
    shuffle_block: int
    in_use: int
    needed: int
    cache_limit: int


def check_dataset(storage: Storage, index: StoredIndex, latency: float) -> Iterator[Finding]:
    size, raw = sum(index.sizes.tolist()), sum(index.raw_sizes.tolist())  # sizes in a damaged index exceed 64 bits
    shards = len(index.counts)
    packed = f", {format_size(raw)} uncompressed" if index.compression else ""
    found = f"{format_count(index.samples, 'sample')} in {format_count(shards, 'shard')}, {format_size(size)}{packed}"
    if not index.samples:
        yield warning("index", found, "write samples: the dataset is empty")
        return
    yield ok("index", found, samples=index.samples, shards=shards, size=size, raw_size=raw)
    yield _sizes(index, latency)
    objects = list_all(storage, _LISTED)
    if not objects:
        return
    last = max(objects) if len(objects) == _LISTED else None
    expected = object_sizes(index, range(shards))  # parts share an object
    if isinstance(index, NeedsSideObjects):
        expected |= {side.name: side.object_size for side in map(index.side_object, range(shards))}
    seen = [name for name in expected if last is None or name <= last]
    wrong = [name for name in seen if objects.get(name) != expected[name]]
    kind = "shards" if len(expected) == shards else "files"
    if wrong:
        found = f"{len(wrong):,} of {len(seen):,} {kind} are missing or have a wrong size; the first is {wrong[0]}"
        repair = " and `mdsx repair URL`" if index.format == OURS.name else ""
        yield problem("shards", found, f"copy the dataset again, or see `mdsx verify URL`{repair}")
    else:
        all_there = f"all {len(seen):,} {kind} checked exist, with the sizes in the index"
        one_there = f"the {kind[:-1]} checked exists, with the size in the index"
        yield ok("shards", one_there if len(seen) == 1 else all_there)


def _sizes(index: StoredIndex, latency: float) -> Finding:
    shards, mean, largest = len(index.counts), int(index.sizes.mean()), int(index.raw_sizes.max())
    found = f"shards have {format_size(mean)} on average; the largest has {format_size(largest)} uncompressed"
    figures = {"mean_size": mean, "largest_raw_size": largest}
    advice = _WRITE if index.format == OURS.name else "write shards of about 64 MiB"
    if isinstance(index, ReadsParts):
        advice = "write groups of samples of about 64 MiB"
    if mean < _SMALL and shards > _FEW:
        found += f": an epoch takes {shards:,} requests of at least {1000 * latency:.0f} ms"
        return warning("shard size", found, advice, **figures)
    if largest > _LARGE:
        found += ", and a run uses many at a time"
        return warning("shard size", found, advice, **figures)
    return ok("shard size", found, **figures)


def plan(index: StoredIndex, job: Job, room: int | None) -> Plan:
    """Return how to read the dataset. `room`: bytes that its cache may take; None if it is read in place.

    The lanes and the block are the defaults, or smaller ones whose shards fit the room: first blocks down to a shard in
    each lane, then fewer lanes.
    """
    lanes = _fitting(job, default_lanes(index.counts))
    total, block = sum(index.raw_sizes.tolist()), None
    while True:
        order = Order(index.counts, lanes=lanes, shuffle_block=block)
        in_use = DatasetCourse(order).active_shards(
            own_lanes(lanes, ranks_here=job.ranks_here, world_size=job.world_size)
        )
        needed = min(int(_SPARE * in_use * float(index.raw_sizes.mean())), total)
        block = order.shuffle_block
        if room is None or needed <= room:
            break
        if block <= lanes * index.counts.mean() and (fewer := _fitting(job, lanes // 2)) < lanes:
            lanes = fewer
        elif block > _LEAST_BLOCK:
            block //= 2
        else:
            break
    limit = total if room is None else max(total, min(room, _LEAST_LIMIT)) if total <= room else max(room, needed)
    return Plan(lanes, block, in_use, needed, limit)


def _fitting(job: Job, lanes: int) -> int:
    """Return a number of lanes near `lanes` with which the job's nodes do not share lanes."""
    lanes = max(lanes, job.nodes)
    if job.batch_size is None or job.world_size == 1:
        return lanes
    size = job.world_size * job.batch_size
    return lanes_for_nodes(size, lanes=lanes, world_size=job.world_size, nodes=job.nodes)


def recommend(index: StoredIndex, url: str, job: Job, room: int | None, directory: str) -> tuple[Finding, Plan]:
    """Return lanes, block and cache limit for a job, with the reasons; `room` as for `plan`."""
    chosen = plan(index, job, room)
    total = sum(index.raw_sizes.tolist())
    reasons = [f"a node reads {format_count(chosen.in_use, 'shard')} ({format_size(chosen.needed)}) at a time"]
    if job.batch_size is not None and job.nodes > 1:
        spread = lane_spread(job.world_size * job.batch_size, lanes=chosen.lanes, world_size=job.nodes)
        shared = "no two nodes" if spread <= 1 else f"about {spread:.2g} nodes"
        reasons.insert(0, f"with {chosen.lanes} lanes, {shared} download the same shard")
    limit = format_size(int(1.01 * chosen.cache_limit) + 1).replace(" ", "")  # not rounded below it
    shuffle = f"shuffle=mdsx.Shuffle(lanes={chosen.lanes}, shuffle_block={chosen.shuffle_block})"
    cache = "" if room is None else f', cache=mdsx.Cache("{directory}", limit="{limit}")'
    figures = {
        "lanes": chosen.lanes,
        "shuffle_block": chosen.shuffle_block,
        "cache_limit": None if room is None else chosen.cache_limit,
        "shards_in_use": chosen.in_use,
        "python": f'StreamingDataset("{url}", {shuffle}{cache})',
    }
    if room is None:
        reasons.append("the shards are read in place, without a cache")
    elif total <= room:
        reasons.append("the cache holds the whole dataset, so each shard is downloaded once")
    elif chosen.needed <= room:
        reasons.append(f"the dataset ({format_size(total)}) does not fit the cache: each epoch downloads the rest")
    else:
        found = f"{'; '.join(reasons)}, but the cache has room for only {format_size(room)}"
        advice = f"give the cache {format_size(chosen.needed)} or more: another disk, or --cache-limit"
        return problem("recommendation", found, advice, **figures), chosen
    return ok("recommendation", "; ".join(reasons), **figures), chosen
