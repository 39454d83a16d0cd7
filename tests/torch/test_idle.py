"""An idle loader uses no CPU: nothing in it polls."""

from __future__ import annotations

import time

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset
from tests.fork_server import call


def calm_moments(url: str, cache: str) -> int:
    """Return how many half seconds in a row use less than 1 % of a core: 3, or fewer after a minute."""
    data = StreamingDataset(url, cache=mdsx.Cache(cache, limit="10MB"))
    batches = iter(StreamingDataLoader(data, 8))
    next(batches)
    before, since, calm = time.process_time(), time.monotonic(), 0
    while calm < 3 and time.monotonic() - since < 60:  # let started work end first
        time.sleep(0.5)
        now = time.process_time()
        calm, before = (calm + 1 if now - before < 0.005 else 0), now
    return calm


def test_idle_loader_uses_no_cpu(remote_url: str, tmp_path: object) -> None:
    """A separate process uses less than 1 % of a core in three consecutive half seconds."""
    assert call(calm_moments, remote_url, f"{tmp_path}/cache") == 3
