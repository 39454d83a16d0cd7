"""Many iterations in one process share its threads and do not block each other."""

from __future__ import annotations

import os
import threading
import time
import warnings
from pathlib import Path

import pytest

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset
from tests.fork_server import call
from tests.torch.conftest import write
from tests.waiting import wait_until
from tools.fault_proxy import Proxy, stall


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


def iterate(url: str, cache: str) -> tuple[int, int, int]:
    """Return the threads before 20 iterations and the most during them, and how many samples were read."""
    warnings.simplefilter("ignore")
    before, most, seen = threads(), 0, 0
    loaders = [
        StreamingDataLoader(StreamingDataset(url, seed=seed, cache=mdsx.Cache(f"{cache}/{seed % 4}", limit="40kB")), 20)
        for seed in range(20)
    ]
    iterations = [iter(loader) for loader in loaders]
    for turn in range(3):
        for batches in iterations:
            seen += len(next(batches)["id"])
            if turn:  # all 20 live
                most = max(most, threads())
    return before, most, seen


@pytest.mark.slow
def test_twenty_live_iterations_use_less_than_60_threads(s3_url: str, tmp_path: Path) -> None:
    write(f"{s3_url}/data", 240)  # twice as much as a cache holds
    before, most, seen = call(iterate, f"{s3_url}/data", str(tmp_path))
    assert seen == 20 * 3 * 20
    assert before < most < 60


@pytest.mark.slow
def test_stalled_downloads_do_not_starve_other_iterations(proxy: Proxy, s3_url: str, tmp_path: Path) -> None:
    for name in ("stalled", "undamaged"):
        write(f"{s3_url}/{name}", 1003)
    proxy.add(stall(0.5), key="*/stalled/shard*")
    stalled = [background(f"{s3_url}/stalled", tmp_path / f"stalled{seed}", seed) for seed in range(4)]
    assert all(thread.is_alive() for thread in stalled)
    wait_until(lambda: sum(asked.faulty for asked in proxy.asked) >= 16)
    began = time.monotonic()
    loader = StreamingDataLoader(StreamingDataset(f"{s3_url}/undamaged", cache=tmp_path / "undamaged"), 40)
    ids = [number for _ in range(2) for batch in loader for number in batch["id"].tolist()]
    assert len(ids) == 2000
    assert time.monotonic() - began < 20, "a stalled request ends after 30 s"
    assert all(thread.is_alive() for thread in stalled)


def background(url: str, cache: Path, seed: int) -> threading.Thread:
    """Start a thread with an iteration that yields no batch."""

    def read() -> None:
        next(iter(StreamingDataLoader(StreamingDataset(url, seed=seed, cache=cache), 40)))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread
