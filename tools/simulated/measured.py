"""A setting run for real: processes that train, one cache, and a link to a server that counts what it sends."""

from __future__ import annotations

import gc
import multiprocessing
import os
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

import numpy as np

import mdsx
from mdsx.format import filenames
from mdsx.storage import open_storage
from tools.fault_proxy import Exchange, Reply
from tools.link import Link
from tools.processes import end_with_parent
from tools.scale.counting import CountingProxy
from tools.servers.s3 import S3Server
from tools.simulated.settings import Setting

_CONTEXT = multiprocessing.get_context("forkserver")
_BUCKET, _SET = "data", "set"
_LIMIT = 300.0  # seconds for a run
_PROBES = 15
_QUIET = 1.5  # seconds after the last answer in which nothing may come
PRELOAD = ("tools.simulated.measured", "mdsx.torch", "boto3")
"""What the fork server, from which the processes are forked, should import first."""


class Request(NamedTuple):
    """A request for bytes of a shard that was answered. `answered`: by the monotonic clock."""

    answered: float
    shard: str
    whole: bool
    size: int


@dataclass
class Found:
    """What the ranks of a node got and how long they waited, for real or simulated.

    `bytes`, `whole` and `ranges` count requests for shards: whole ones and single samples. `waits`: seconds, by rank
    and step. `first`: seconds to the first batch of the last rank. `latency`: seconds that one small request takes.
    `step`: seconds of a step, on average.
    """

    bytes: int
    whole: int
    ranges: int
    waits: list[list[float]]
    first: float
    latency: float
    step: float
    requests: list[Request] = field(default_factory=list)

    @property
    def waited(self) -> float:
        """Return for how many seconds steps waited: of each the rank that waited longest, as the others wait for it."""
        return float(np.array(self.waits).max(axis=0).sum())


@dataclass
class Place:
    """Where a setting's dataset is. `size`: bytes of its shards; `limit`: of the cache."""

    setting: Setting
    url: str
    server: S3Server
    scratch: Path
    size: int

    @property
    def folder(self) -> Path:
        """Return where the server has the dataset."""
        return self.scratch / "s3" / _BUCKET / _SET

    @property
    def limit(self) -> int:
        return int(self.setting.cache * self.size)

    def options(self, endpoint: str) -> dict[str, str]:
        """Return what mdsx must know of the server, reached at `endpoint`."""
        server = self.server
        keys = {"access_key_id": server.key, "secret_access_key": server.secret}
        return {"endpoint": endpoint, "region": "us-east-1", **keys}


@contextmanager
def written(setting: Setting) -> Iterator[Place]:
    """Write the setting's dataset, and serve it while the context lasts."""
    with (
        tempfile.TemporaryDirectory(prefix="mdsx-simulated-") as scratch,
        S3Server(Path(scratch, "s3"), checksums=False) as server,
    ):
        url = f"{server.make_bucket(_BUCKET)}/{_SET}"
        place = Place(setting, url, server, Path(scratch), 0)
        place.size = setting.write(place.folder)
        yield place


def measure(place: Place) -> Found:
    """Let the ranks read all epochs through an empty cache."""
    setting = place.setting
    _CONTEXT.set_forkserver_preload([*PRELOAD])
    with (
        _Proxy(place.server) as proxy,
        Link(proxy.endpoint, rtt=setting.rtt, rate=setting.rate) as link,
        tempfile.TemporaryDirectory(prefix="mdsx-simulated-") as cache,
    ):
        environment = {**place.server.env(), "AWS_ENDPOINT_URL": link.endpoint}
        latency = _latency(place, link.endpoint)
        found = _train(place, cache, environment, proxy)
    return Found(
        sum(request.size for request in proxy.requests),
        sum(request.whole for request in proxy.requests),
        sum(not request.whole for request in proxy.requests),
        [rank.waits for rank in found],
        max(rank.waits[0] for rank in found),
        latency,
        mean(rank.step for rank in found),
        proxy.requests,
    )


def _latency(place: Place, endpoint: str) -> float:
    """Return the seconds that a small request takes on an open connection: of the link, the server and mdsx."""
    storage, times = open_storage(place.url, place.options(endpoint)), []
    for _ in range(_PROBES):
        before = time.monotonic()
        storage.get(filenames.INDEX, stop=1)
        times.append(time.monotonic() - before)
    return median(times)


class _Proxy(CountingProxy):
    """The proxy, with the requests for shards."""

    def __init__(self, server: S3Server) -> None:
        super().__init__(server)
        self.requests: list[Request] = []

    def answered(self, exchange: Exchange, reply: Reply) -> None:
        super().answered(exchange, reply)
        name = exchange.key.rpartition("/")[2]
        if exchange.command == "GET" and name.startswith("shard."):
            whole = not exchange.range or exchange.range.endswith("-")
            self.requests.append(Request(time.monotonic(), name, whole, len(reply.body)))


# --- the ranks


class _Trained(NamedTuple):
    """For how many seconds each step of a rank waited, and how long a step took on average."""

    waits: list[float]
    step: float


@dataclass(frozen=True)
class _Rank:
    """A rank, in a process of its own."""

    setting: Setting
    url: str
    cache: mdsx.Cache
    rank: int

    def environment(self) -> dict[str, str]:
        rank, ranks = str(self.rank), str(self.setting.ranks)
        return {
            "RANK": rank,
            "LOCAL_RANK": rank,
            "WORLD_SIZE": ranks,
            "LOCAL_WORLD_SIZE": ranks,
            "OMP_NUM_THREADS": "1",
        }

    def train(self, together: Any) -> _Trained:
        """Take all steps, after the other ranks have opened the dataset too."""
        warnings.simplefilter("ignore")  # more processes than cores
        from mdsx.torch import StreamingDataLoader, StreamingDataset

        setting = self.setting
        data = StreamingDataset(self.url, cache=self.cache, shuffle=mdsx.Shuffle(shuffle_block=setting.block))
        workers: dict[str, Any] = {"multiprocessing_context": "fork"} if setting.workers else {}
        loader = StreamingDataLoader(data, setting.batch, num_workers=setting.workers, **workers)
        time.sleep(0.5 + 4 * setting.rtt)  # connections are open
        together.wait()
        waits, steps = list[float](), list[float]()
        for _ in range(setting.epochs):
            batches = iter(loader)
            while True:
                before = time.monotonic()
                if next(batches, None) is None:
                    break
                waits.append(time.monotonic() - before)
                together.wait()
                before = time.monotonic()
                time.sleep(setting.step)
                steps.append(time.monotonic() - before)
        return _Trained(waits, mean(steps))


def _work(rank: _Rank, environment: dict[str, str], together: Any, answers: Any, end: Any) -> None:
    gc.freeze()
    end_with_parent()
    os.environ.update(environment, **rank.environment())
    try:
        answers.send(rank.train(together))
    except Exception as error:
        together.abort()
        answers.send(f"{type(error).__name__}: {error}")
    end.wait()  # downloads in flight come to their end


def _train(place: Place, cache: str, environment: dict[str, str], proxy: _Proxy) -> list[_Trained]:
    """Return what each rank found."""
    setting, started = place.setting, []
    together, end = _CONTEXT.Barrier(setting.ranks), _CONTEXT.Event()
    deadline = time.monotonic() + _LIMIT
    try:
        for number in range(setting.ranks):
            ours, theirs = _CONTEXT.Pipe(duplex=False)
            rank = _Rank(setting, place.url, mdsx.Cache(cache, place.limit), number)
            process = _CONTEXT.Process(target=_work, args=(rank, environment, together, theirs, end))
            process.start()
            theirs.close()
            started.append((process, ours))
        found: list[_Trained] = []
        for _, ours in started:
            if not ours.poll(max(deadline - time.monotonic(), 0)):
                raise AssertionError(f"{setting.title}: no end within {_LIMIT:.0f} seconds")
            answer = ours.recv()
            assert isinstance(answer, _Trained), f"{setting.title}: {answer}"
            found.append(answer)
        _wait_for_quiet(proxy)
        end.set()
        for process, _ in started:
            process.join()
        return found
    finally:
        for process, ours in started:
            process.kill()
            process.join()
            ours.close()


def _wait_for_quiet(proxy: _Proxy) -> None:
    """Wait until no request came for a while."""
    number = -1
    while number != len(proxy.requests):
        number = len(proxy.requests)
        time.sleep(_QUIET)
