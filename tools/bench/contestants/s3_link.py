"""An S3 server with a dataset, behind a link: each measurement starts both for itself, before it takes the time.

`prepare` of a contestant writes its dataset to `place(data)`, which is then `URL`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tools.bench.measure import Figures
from tools.bench.throttle import Throttle
from tools.s3_server import S3Server

BUCKET = "bucket"
PREFIX = "set"
URL = f"s3://{BUCKET}/{PREFIX}"
_PROGRAMS = Path(__file__).resolve().parent.parent.parent.parent / ".venv" / "bin"  # rclone is there


def place(data: str) -> Path:
    """The directory of the dataset, made if it is not there."""
    path = Path(data, BUCKET, PREFIX)
    path.mkdir(parents=True, exist_ok=True)
    return path


def size_of(directory: Path) -> int:
    """Bytes of all files below a directory."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


@contextmanager
def served(data: str, *, rtt: float = 0.0, rate: float | None = None) -> Iterator[Throttle]:
    """`URL` is `place(data)`, for boto3 in this process and its children, over a link: see Throttle."""
    os.environ["PATH"] = os.pathsep.join((os.environ.get("PATH", ""), str(_PROGRAMS)))
    with S3Server(data, checksums=False) as server, Throttle(server.endpoint, rtt=rtt, rate=rate) as link:
        os.environ.update(server.env())
        os.environ["AWS_ENDPOINT_URL"] = os.environ["S3_ENDPOINT_URL"] = link.endpoint
        yield link


def cold_epoch(data: str, rtt: float, rate: float | None, samples: int, loader: Callable[[], Iterable[Any]]) -> Figures:
    """A loader's first epoch over a link, from its making on. MB/s are of what lies in storage."""
    size = size_of(place(data))
    with served(data, rtt=rtt, rate=rate) as link:
        processor, started = time.process_time(), time.perf_counter()
        seen = sum(map(rows, loader()))
        took = time.perf_counter() - started
        if seen != samples:
            raise ValueError(f"{seen} samples came, of {samples}")
        counts = link.counts()
        return {
            "MB/s": size / took / 1e6,
            "received": counts.received / size,
            "requests": counts.requests,
            "cpu s": time.process_time() - processor,
        }


def first_batch(data: str, rtt: float, rate: float | None, loader: Callable[[], Iterable[Any]]) -> Figures:
    """A loader's first batch over a link, from its making on; nothing was connected before."""
    with served(data, rtt=rtt, rate=rate) as link:
        processor, started = time.process_time(), time.perf_counter()
        rows(next(iter(loader())))
        took = time.perf_counter() - started
        counts = link.counts()
        return {
            "s": took,
            "round trips": counts.round_trips,
            "requests": counts.requests,
            "MB received": counts.received / 1e6,
            "cpu s": time.process_time() - processor,
        }


def rows(batch: Any) -> int:
    """Samples in a batch of tokens."""
    return len(batch["tokens"] if isinstance(batch, dict) else batch)
