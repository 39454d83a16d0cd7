"""A setting run for real: processes that train, one cache, and a link to a server that counts what it sends."""

from __future__ import annotations

import gc
import multiprocessing
import os
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from multiprocessing.synchronize import Barrier
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

import numpy as np

import mdsx
from mdsx.format import filenames
from mdsx.storage import open_storage
from tools.fault_proxy import Proxy
from tools.link import Link
from tools.processes import end_with_parent, free_port, torchrun_environment
from tools.servers.s3 import S3Server
from tools.simulated.settings import Setting

_CONTEXT = multiprocessing.get_context("forkserver")
_BUCKET, _SET = "data", "set"
_SHARDS = f"/{_BUCKET}/{_SET}/shard.*"
_LIMIT = 300.0  # seconds for a run
_PROBES = 15
_QUIET = 1.5  # seconds after the last answer in which nothing may come
_PRELOAD = ("tools.simulated.measured", "mdsx.torch", "boto3")
_together: Barrier  # of all ranks, in the process of each


@dataclass
class Found:
    """What the ranks of a node got and how long they waited, for real or simulated.

    `bytes`, `whole` and `ranges` count requests for shards: whole ones and single samples. `distinct`: different shards
    among the whole ones. `waits`: seconds, by rank and step. `latency`: seconds that one small request takes. `step`:
    seconds of a step, on average.
    """

    bytes: int
    whole: int
    ranges: int
    distinct: int
    waits: list[list[float]]
    latency: float
    step: float

    @property
    def counts(self) -> tuple[int, int, int]:
        """What must be equal: bytes, requests for whole shards, and requests for ranges."""
        return self.bytes, self.whole, self.ranges

    @property
    def first(self) -> float:
        """The seconds to the first batch of the last rank."""
        return max(waits[0] for waits in self.waits)

    @property
    def waited(self) -> float:
        """For how many seconds steps waited: of each the rank that waited longest, as the others wait for it."""
        return float(np.array(self.waits).max(axis=0).sum())


@dataclass
class Place:
    """Where a setting's dataset is. `folder`: in the server; `size`: bytes of its shards; `limit`: of the cache."""

    setting: Setting
    url: str
    server: S3Server
    folder: Path
    size: int

    @property
    def limit(self) -> int:
        return int(self.setting.cache * self.size)

    def options(self, endpoint: str) -> dict[str, str]:
        """Return what mdsx must know of the server, reached at `endpoint`."""
        keys = {"access_key_id": self.server.key, "secret_access_key": self.server.secret}
        return {"endpoint": endpoint, "region": "us-east-1", **keys}


@contextmanager
def written(setting: Setting) -> Iterator[Place]:
    """Write the setting's dataset, and serve it while the context lasts."""
    with tempfile.TemporaryDirectory(prefix="mdsx-simulated-") as scratch, S3Server(scratch, checksums=False) as server:
        url, folder = f"{server.make_bucket(_BUCKET)}/{_SET}", Path(scratch, _BUCKET, _SET)
        yield Place(setting, url, server, folder, setting.write(folder))


def measure(place: Place) -> Found:
    """Let the ranks read all epochs through an empty cache."""
    setting = place.setting
    _CONTEXT.set_forkserver_preload([*_PRELOAD])
    with (
        Proxy(place.server) as proxy,
        Link(proxy.endpoint, rtt=setting.rtt, rate=setting.rate) as link,
        tempfile.TemporaryDirectory(prefix="mdsx-simulated-") as cache,
    ):
        environment = {**place.server.env(), "AWS_ENDPOINT_URL": link.endpoint}
        latency = _latency(place, link.endpoint)
        found = _train(place, mdsx.Cache(cache, place.limit), environment, proxy)
        sent = proxy.sent(_SHARDS)
        distinct = {each.key for each in proxy.asked if each.whole and fnmatchcase(each.key, _SHARDS)}
    waits, steps = [rank.waits for rank in found], mean(rank.step for rank in found)
    return Found(sent.whole_bytes + sent.range_bytes, sent.whole, sent.ranges, len(distinct), waits, latency, steps)


def _latency(place: Place, endpoint: str) -> float:
    """Return the seconds that a small request takes on an open connection: of the link, the server and mdsx."""
    storage, times = open_storage(place.url, place.options(endpoint)), []
    for _ in range(_PROBES):
        before = time.monotonic()
        storage.get(filenames.INDEX, stop=1)
        times.append(time.monotonic() - before)
    return median(times)


def _train(place: Place, cache: mdsx.Cache, environment: Mapping[str, str], proxy: Proxy) -> list[_Trained]:
    """Return what each rank found, in a process of its own. All have ended then."""
    ranks = place.setting.ranks
    together = _CONTEXT.Barrier(ranks, timeout=_LIMIT)
    with ProcessPoolExecutor(ranks, _CONTEXT, initializer=_begin, initargs=(together, environment)) as pool:
        try:
            arguments = zip(*((rank, place.setting, place.url, cache) for rank in range(ranks)), strict=True)
            found = list(pool.map(train, *arguments, timeout=_LIMIT))
            number = -1
            while number != len(proxy.asked):  # downloads in flight come to their end
                number = len(proxy.asked)
                time.sleep(_QUIET)
        except BaseException:
            for process in multiprocessing.active_children():
                process.kill()
            raise
    return found


# --- a rank


class _Trained(NamedTuple):
    """For how many seconds each step of a rank waited, and how long a step took on average."""

    waits: list[float]
    step: float


def _begin(together: Barrier, environment: Mapping[str, str]) -> None:
    global _together
    gc.freeze()
    end_with_parent()
    os.environ.update(environment)
    _together = together


def train(rank: int, setting: Setting, url: str, cache: mdsx.Cache) -> _Trained:
    """Take all steps, after the other ranks have opened the dataset too."""
    warnings.simplefilter("ignore")  # more processes than cores
    os.environ.update(torchrun_environment(rank, setting.ranks, free_port()))
    from mdsx.torch import StreamingDataLoader, StreamingDataset

    try:
        data = StreamingDataset(url, cache=cache, shuffle=mdsx.Shuffle(shuffle_block=setting.block))
        workers: dict[str, Any] = {"multiprocessing_context": "fork"} if setting.workers else {}
        loader = StreamingDataLoader(data, setting.batch, num_workers=setting.workers, **workers)
        time.sleep(0.5 + 4 * setting.rtt)  # connections are open
        _together.wait()
        waits, steps = list[float](), list[float]()
        for _ in range(setting.epochs):
            batches = iter(loader)
            while True:
                before = time.monotonic()
                if next(batches, None) is None:
                    break
                waits.append(time.monotonic() - before)
                _together.wait()
                before = time.monotonic()
                time.sleep(setting.step)
                steps.append(time.monotonic() - before)
        return _Trained(waits, mean(steps))
    except BaseException:
        _together.abort()
        raise
