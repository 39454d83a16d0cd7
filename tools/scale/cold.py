"""Two jobs start cold on one node: what does the server send? Real processes, one real cache, a server that counts.

Each job has `ranks` processes with `workers` worker processes each. All read one epoch of the same dataset through the
same empty cache, as fast as they can.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil

import mdsx
from mdsx.sizes import format_size
from tools.link import Link
from tools.pages import table
from tools.processes import end_with_parent
from tools.scale.counting import CountingProxy, Sums
from tools.servers.s3 import S3Server

_CONTEXT = multiprocessing.get_context("forkserver")
_LOOK = 0.5  # seconds between two looks at the memory
_LIMIT = 600.0  # seconds for a run
_DRAW = 7


@dataclass(frozen=True)
class Plan:
    """How many jobs, ranks of each and workers of each rank read how much.

    `block`: shards in a shuffle block, None for the default. `seeds`: whether each job has an order of its own.
    `cache`: the cache's limit as a share of the dataset; None for none. `rtt` and `rate`: of the link to the server, in
    seconds and bytes a second; None for as fast as it goes.
    """

    jobs: int = 2
    ranks: int = 8
    workers: int = 4
    shards: int = 400
    samples: int = 256  # of a shard
    sample_bytes: int = 4096
    batch: int = 8
    block: int | None = None
    seeds: bool = True
    cache: float | None = None
    rtt: float = 0.0
    rate: float | None = None

    @property
    def shard_bytes(self) -> int:
        return self.samples * self.sample_bytes


@dataclass
class Cold:
    """What the server sent, and how long it took."""

    plan: Plan
    dataset: int  # bytes of all shards
    downloads: int  # requests for whole shards
    downloaded: int  # bytes of these
    most: int  # requests for one shard
    ranges: int  # requests for single samples
    ranged: int  # bytes of these
    index: int  # bytes of the index, which each rank reads
    requests: int
    first: float  # seconds to the first batch of the last rank
    seconds: float
    memory: int  # bytes of all processes together, shared pages counted once
    wrong: list[str]

    @property
    def extra(self) -> float:
        """The bytes of shards beyond one download of each, as a share of the dataset."""
        return (self.downloaded + self.ranged) / self.dataset - 1


PLANS = {
    "each in an order of its own": Plan(),
    "in the same order": Plan(seeds=False),
    "over a link of 100 MB/s and 30 ms": Plan(rtt=0.03, rate=1e8),
    "over a link of 10 MB/s and 30 ms": Plan(rtt=0.03, rate=1e7),
    "in the same order, a cache of 60 %": Plan(block=16, seeds=False, cache=0.6),
    "each in its own order, a cache of 80 %": Plan(block=16, cache=0.8),
}
PRELOAD = ("tools.scale.cold", "mdsx.torch", "boto3")
"""What the fork server, from which the processes are forked, should import first."""


def sections(share: float = 1.0) -> Iterator[tuple[str, str]]:
    """Yield the table of all plans; `share` of their shards and ranks."""
    _CONTEXT.set_forkserver_preload([*PRELOAD])
    rows = []
    for title, plan in PLANS.items():
        if share < 1:
            plan = replace(plan, ranks=2, workers=2, shards=64, samples=64)
        found = measure(plan)
        assert not found.wrong, found.wrong[0]
        rows.append(
            [
                title,
                format_size(found.dataset),
                f"{found.downloads:,} of {plan.shards:,}",
                f"{found.ranges:,}, {format_size(found.ranged)}",
                f"{found.extra:.1%}",
                f"{found.first:.0f} s",
                f"{found.seconds:.0f} s",
                format_size(found.memory),
            ]
        )
    heads = ("two jobs", "dataset", "shards sent", "samples sent by range", "bytes beyond one download", "first batch")
    yield "cold", table((*heads, "epoch", "memory"), rows, right=range(1, 8))


def measure(plan: Plan) -> Cold:
    """Write the dataset, start the jobs, and count."""
    with (
        tempfile.TemporaryDirectory(prefix="mdsx-scale-") as scratch,
        S3Server(Path(scratch, "s3"), checksums=False) as server,
        CountingProxy(server) as proxy,
        Link(proxy.endpoint, rtt=plan.rtt, rate=plan.rate) as link,
    ):
        url = server.make_bucket("scale") + "/data"
        size = _write(Path(scratch, "s3", "scale", "data"), plan)
        limit = None if plan.cache is None else int(plan.cache * size)
        ranks = [
            _Rank(plan, url, mdsx.Cache(Path(scratch, "cache"), limit), job, rank)
            for rank in range(plan.ranks)
            for job in range(plan.jobs)
        ]
        started = time.monotonic()
        found, memory = _read(ranks, {**server.env(), "AWS_ENDPOINT_URL": link.endpoint})
        return _summed(plan, proxy.sums, found, size=size, memory=memory, seconds=time.monotonic() - started)


def _write(folder: Path, plan: Plan) -> int:
    """Write the dataset into the server's folder, and return the bytes of its shards."""
    chance = random.Random(_DRAW)
    columns = {"id": "int64", "data": f"uint8[{plan.sample_bytes}]"}
    with mdsx.Writer(folder, columns, shard_size=plan.shard_bytes + plan.samples * 16 + 4096) as out:
        for number in range(plan.shards * plan.samples):
            out.write({"id": number, "data": np.frombuffer(chance.randbytes(plan.sample_bytes), np.uint8)})
    return sum(path.stat().st_size for path in folder.glob("*.mdsx"))


# --- the ranks


@dataclass(frozen=True)
class _Rank:
    """A rank of a job, in a process of its own."""

    plan: Plan
    url: str
    cache: mdsx.Cache
    job: int
    rank: int

    def environment(self) -> dict[str, str]:
        ranks = str(self.plan.ranks)
        return {
            "RANK": str(self.rank),
            "LOCAL_RANK": str(self.rank),
            "WORLD_SIZE": ranks,
            "LOCAL_WORLD_SIZE": ranks,
            "OMP_NUM_THREADS": "1",
        }

    def read(self) -> _Found:
        """Read an epoch. It ends with all workers alive, so that their memory can be seen."""
        warnings.simplefilter("ignore")  # more processes than cores, on purpose
        from mdsx.torch import StreamingDataLoader, StreamingDataset

        plan, started = self.plan, time.monotonic()
        seed = self.job if plan.seeds else 0
        shuffle = mdsx.Shuffle(shuffle_block=None if plan.block is None else plan.block * plan.samples)
        data = StreamingDataset(self.url, cache=self.cache, seed=seed, shuffle=shuffle, drop_last=False)
        workers: dict[str, Any] = {"multiprocessing_context": "fork"} if plan.workers else {}
        loader = StreamingDataLoader(data, plan.batch, num_workers=plan.workers, drop_last=False, **workers)
        first, ids = 0.0, []
        for batch in loader:
            first = first or time.monotonic() - started
            ids += batch["id"].tolist()
        return _Found(first, ids)


class _Found(NamedTuple):
    """What a rank found: seconds to its first batch, and the numbers of its samples."""

    first: float
    ids: list[int]


def _work(rank: _Rank, environment: dict[str, str], answers: Any) -> None:
    gc.freeze()
    end_with_parent()
    os.environ.update(environment, **rank.environment())
    try:
        answers.send(rank.read())
    except Exception as error:
        answers.send(f"{type(error).__name__}: {error}")


def _read(ranks: list[_Rank], environment: dict[str, str]) -> tuple[list[_Found | str], int]:
    """Return what each rank found, or its error; and the most memory that all used together."""
    started: list[tuple[ForkServerProcess, Any]] = []
    answers: list[_Found | str] = []
    deadline, highest = time.monotonic() + _LIMIT, 0
    try:
        for rank in ranks:
            ours, theirs = _CONTEXT.Pipe(duplex=False)
            process = _CONTEXT.Process(target=_work, args=(rank, environment, theirs))
            process.start()
            theirs.close()
            started.append((process, ours))
        for process, ours in started:
            while not ours.poll(_LOOK):
                highest = max(highest, _memory(process for process, _ in started))
                if time.monotonic() > deadline:
                    raise TimeoutError(f"no end within {_LIMIT:.0f} seconds")
            answers.append(ours.recv())
        return answers, highest
    finally:
        for process, ours in started:
            process.kill()
            process.join()
            ours.close()


def _memory(processes: Iterable[ForkServerProcess]) -> int:
    """Return the bytes of these processes and their children: pages that they share count once."""
    total = 0
    for process in processes:
        with suppress(psutil.Error):
            found = psutil.Process(process.pid)
            for each in [found, *found.children(recursive=True)]:
                with suppress(psutil.Error):
                    total += each.memory_full_info().pss
    return total


def _summed(plan: Plan, sums: Sums, found: list[_Found | str], *, size: int, memory: int, seconds: float) -> Cold:
    shards, wrong = sums.of(".mdsx"), [each for each in found if isinstance(each, str)]
    good = [each for each in found if not isinstance(each, str)]
    times = Counter(number for each in good for number in each.ids)
    if not wrong and times != dict.fromkeys(range(plan.shards * plan.samples), plan.jobs):
        wrong.append("some samples were not read once by each job")
    return Cold(
        plan=plan,
        dataset=size,
        downloads=sum(each.whole for each in shards),
        downloaded=sum(each.whole_bytes for each in shards),
        most=max((each.whole for each in shards), default=0),
        ranges=sum(each.ranges for each in shards),
        ranged=sum(each.range_bytes for each in shards),
        index=sum(each.whole_bytes + each.range_bytes for each in sums.of("index.json")),
        requests=sums.answered,
        first=max((each.first for each in good), default=0.0),
        seconds=seconds,
        memory=memory,
        wrong=wrong,
    )
