"""Threads and workers of an iteration end with it, without waiting for garbage collection."""

from __future__ import annotations

import gc
import multiprocessing
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from mdsx.torch import StreamingDataLoader, StreamingDataset


@pytest.fixture(autouse=True)
def no_garbage_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def children() -> set[int]:
    return {process.pid or 0 for process in multiprocessing.active_children()}


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_leaving_an_epoch_ends_its_workers(local_url: str, workers: int) -> None:
    before = children()
    loader = StreamingDataLoader(StreamingDataset(local_url), 32, num_workers=workers)
    for _ in loader:
        assert len(children() - before) == workers
        break
    assert children() == before
    assert loader.state_dict()["position"] == 32


def test_leaving_an_epoch_ends_its_thread(local_url: str) -> None:
    before = set(threading.enumerate())
    loader = StreamingDataLoader(StreamingDataset(local_url), 32)
    for _ in loader:
        (thread,) = set(threading.enumerate()) - before
        break
    thread.join(10)
    assert not thread.is_alive()


def test_persistent_workers_end_with_the_loader(local_url: str) -> None:
    before = children()
    loader = StreamingDataLoader(StreamingDataset(local_url), 32, num_workers=2, persistent_workers=True)
    for _ in loader:
        workers = children() - before
        break
    for _ in loader:
        assert children() - before == workers
        break
    del loader
    assert children() == before


def test_a_new_iteration_ends_the_kept_one(local_url: str) -> None:
    before = children()
    loader = StreamingDataLoader(StreamingDataset(local_url), 32, num_workers=1)
    kept = iter(loader)
    next(kept)
    first = children() - before
    other = iter(loader)
    next(other)
    assert not first & children()
    assert next(other) is not None


IMPORTS = """
import sys
from mdsx.torch import StreamingDataLoader, StreamingDataset

loader = StreamingDataLoader(StreamingDataset(sys.argv[1]), 32, num_workers=1, collate_fn=lambda _: set(sys.modules))
print(sorted(next(iter(loader)) - set(sys.modules)))
"""


def test_modules_are_imported_before_workers_fork(local_url: str) -> None:
    """An import in the worker can collect other loaders of the parent as garbage, which fails and takes time."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS, local_url], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
