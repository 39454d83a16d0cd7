"""A bucket's request limit: many clients at once against a server that answers 503 SlowDown above a rate.

S3 takes 5,500 GETs and 3,500 PUTs a second for each prefix. Here clients and limit are scaled down alike: 8
clients and 40 requests a second are as 1,100 clients and 5,500. A request above the limit is refused at once, as S3
does it.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import mdsx
from tools.fault_proxy import status
from tools.pages import table
from tools.processes import end_with_parent
from tools.scale.counting import CountingProxy
from tools.servers.s3 import S3Server

_CONTEXT = multiprocessing.get_context("forkserver")
_BURST = 0.25  # seconds of requests that may come at once
_AT_ONCE = 16  # samples of a random read
_SAMPLES, _WIDTH = 4096, 4096
_LONGEST = 300.0  # seconds


class Bucket:
    """A token bucket: `rate` requests a second, and `burst` at once."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst = rate, burst
        self._tokens, self._at = burst, time.monotonic()
        self._lock = threading.Lock()

    def take(self) -> bool:
        """Take a token, and return whether there was one."""
        with self._lock:
            now = time.monotonic()
            self._tokens, self._at = min(self._tokens + (now - self._at) * self._rate, self._burst), now
            if self._tokens < 1:
                return False
            self._tokens -= 1
            return True


@dataclass(frozen=True)
class Case:
    """What `clients` processes do for `seconds`, with a limit of `rate` requests a second for all of them."""

    name: str
    clients: int
    rate: float
    seconds: float


@dataclass
class Limited:
    """What came of it. `share`: answered requests as a share of what the limit allows; `per_answer`: requests that were
    sent for each one that was answered; `least` and `most`: units of work of a client (samples read, or written)."""

    case: Case
    seconds: float
    answered: int
    at_once: int  # those of the first `case.seconds`, in which all clients work
    refused: int
    least: int
    most: int
    longest: float  # seconds for a piece of work
    errors: list[str]

    @property
    def share(self) -> float:
        return self.at_once / (self.case.rate * (min(self.seconds, self.case.seconds) + _BURST))

    @property
    def per_answer(self) -> float:
        return (self.answered + self.refused) / max(self.answered, 1)


TITLES = {
    "random": "read random samples by range",
    "start": "open the dataset and read a first batch",
    "write": "write small shards",
}
CASES = (Case("random", 8, 40, 30), Case("start", 8, 40, 30), Case("write", 8, 40, 30))
PRELOAD = ("tools.scale.limits", "boto3")
"""What the fork server, from which the processes are forked, should import first."""


def sections(share: float = 1.0) -> Iterator[tuple[str, str]]:
    """Yield the table of all cases; `share` of their seconds."""
    _CONTEXT.set_forkserver_preload([*PRELOAD])
    rows = []
    for case in CASES:
        found = measure(replace(case, seconds=max(case.seconds * share, 2.0)))
        rows.append(
            [
                TITLES[case.name],
                f"{case.clients}",
                f"{case.rate:.0f}/s",
                f"{found.share:.0%}",
                f"{found.per_answer:.2f}",
                f"{found.least:,} to {found.most:,}",
                str(len(found.errors)),
            ]
        )
    heads = ("clients that", "clients", "limit", "used", "sent for each answer", "samples of a client", "errors")
    yield "limits", table(heads, rows, right=range(1, 7))


def measure(case: Case) -> Limited:
    """Run the clients against a server with the limit."""
    with (
        tempfile.TemporaryDirectory(prefix="mdsx-scale-") as scratch,
        S3Server(Path(scratch, "s3"), checksums=False) as server,
        CountingProxy(server) as proxy,
    ):
        url = server.make_bucket("scale") + "/data"
        _write_samples(Path(scratch, "s3", "scale", "data"))
        bucket = Bucket(case.rate, case.rate * _BURST)
        proxy.add(status(503, "SlowDown"), method="*", when=lambda exchange: not bucket.take())
        found = _run(case, url, scratch, proxy.env())
        times = proxy.sums.times
        good = [each for each in found if not isinstance(each, str)]
        return Limited(
            case=case,
            seconds=times[-1] - times[0],
            answered=proxy.sums.answered,
            at_once=sum(at <= times[0] + case.seconds for at in times),
            refused=proxy.sums.refused,
            least=min((each.done for each in good), default=0),
            most=max((each.done for each in good), default=0),
            longest=max((each.longest for each in good), default=0.0),
            errors=[each for each in found if isinstance(each, str)],
        )


def _write_samples(folder: Path) -> None:
    chance = random.Random(1)
    columns = {"id": "int64", "data": f"uint8[{_WIDTH}]"}
    with mdsx.Writer(folder, columns, shard_size="2MiB") as out:
        for number in range(_SAMPLES):
            out.write({"id": number, "data": np.frombuffer(chance.randbytes(_WIDTH), np.uint8)})


# --- the clients


class _Done(NamedTuple):
    done: int
    longest: float


@dataclass(frozen=True)
class _Client:
    case: Case
    number: int
    url: str
    scratch: str

    def random(self) -> _Done:
        """Read random samples by range, many at a time."""
        chance = random.Random(self.number)
        cache = mdsx.Cache(Path(self.scratch, f"cache-{self.number}"), "3MB")
        data = mdsx.Dataset(self.url, cache=cache)
        return self._repeat(lambda: self._read(data, chance.sample(range(len(data)), _AT_ONCE)))

    def start(self) -> _Done:
        """Open the dataset and read a first batch, as a job does that starts."""
        chance = random.Random(self.number)

        def once() -> int:
            data = mdsx.Dataset(self.url, cache=Path(self.scratch, f"cache-{self.number}"))
            return self._read(data, chance.sample(range(len(data)), _AT_ONCE))

        return self._repeat(once, times=1)

    def write(self) -> _Done:
        """Write a part of a dataset in small shards."""
        row = {"data": np.zeros(_WIDTH, np.uint8)}
        with mdsx.Writer(
            f"{self.url}-written/part-{self.number:05}", {"data": f"uint8[{_WIDTH}]"}, shard_size="8KiB"
        ) as out:

            def once() -> int:
                out.write(row)
                return 1

            return self._repeat(once)

    def _read(self, data: mdsx.Dataset, numbers: list[int]) -> int:
        if [sample["id"] for sample in data[numbers]] != numbers:
            raise ValueError("wrong samples")
        return len(numbers)

    def _repeat(self, once: Callable[[], int], times: int | None = None) -> _Done:
        """Work until the time is over, or `times`."""
        end, done, longest = time.monotonic() + self.case.seconds, 0, 0.0
        while time.monotonic() < end if times is None else times:
            began = time.monotonic()
            done += once()
            longest = max(longest, time.monotonic() - began)
            times = None if times is None else times - 1
        return _Done(done, longest)


def _work(client: _Client, environment: dict[str, str], answers: Any) -> None:
    gc.freeze()
    end_with_parent()
    os.environ.update(environment)
    try:
        answers.send(getattr(client, client.case.name)())
    except Exception as error:
        answers.send(f"{type(error).__name__}: {error}")


def _run(case: Case, url: str, scratch: str, environment: dict[str, str]) -> list[_Done | str]:
    started: list[tuple[Any, Any]] = []
    answers: list[_Done | str] = []
    try:
        for number in range(case.clients):
            ours, theirs = _CONTEXT.Pipe(duplex=False)
            process = _CONTEXT.Process(target=_work, args=(_Client(case, number, url, scratch), environment, theirs))
            process.start()
            theirs.close()
            started.append((process, ours))
        for _, ours in started:
            answers.append(ours.recv() if ours.poll(_LONGEST) else "no end")
        return answers
    finally:
        for process, ours in started:
            process.kill()
            process.join()
            ours.close()
