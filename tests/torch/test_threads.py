"""Threads may take turns with an iterator. Of two at once, the second one gets an error, and no sample is lost."""

from __future__ import annotations

import multiprocessing
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

import numpy as np
import pytest

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset

N = 1003
Transform = Callable[[dict[str, Any]], dict[str, Any]] | None


def a_loader(url: str, transform: Transform) -> Any:
    return mdsx.Loader(url, 10, columns=["id"], transform=transform, rank=0, world_size=1, drop_last=False)


def of_threads(url: str, transform: Transform) -> Any:
    options: dict[str, Any] = {"rank": 0, "world_size": 1, "num_threads": 2, "drop_last": False}
    return mdsx.Loader(url, 10, columns=["id"], transform=transform, **options)


def of_torch(url: str, transform: Transform) -> Any:
    return StreamingDataLoader(StreamingDataset(url, columns=["id"], transform=transform), 10, drop_last=False)


def of_workers(url: str, transform: Transform) -> Any:
    data = StreamingDataset(url, columns=["id"], transform=transform)
    return StreamingDataLoader(data, 10, drop_last=False, num_workers=2)


def of_batches(url: str, transform: Transform) -> Any:
    return StreamingDataset(url, columns=["id"], transform=transform, batch_size=10, drop_last=False)


def of_samples(url: str, transform: Transform) -> Any:
    return StreamingDataset(url, columns=["id"], transform=transform)


MADE = [a_loader, of_threads, of_torch, of_workers, of_batches, of_samples]


def ids(batch: Any) -> list[int]:
    found: list[int] = np.ravel(batch["id"]).tolist()
    return found


@pytest.mark.parametrize("make", MADE)
def test_a_second_thread_gets_an_error_and_takes_its_turn_later(
    local_url: str, make: Callable[[str, Transform], Any]
) -> None:
    begun, may_end = multiprocessing.Event(), multiprocessing.Event()

    def slow(sample: dict[str, Any]) -> dict[str, Any]:
        begun.set()
        may_end.wait()
        return sample

    source = make(local_url, slow)
    batches = iter(source)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(lambda: ids(next(batches)))
        try:
            begun.wait()
            with pytest.raises(mdsx.UsageError, match="another thread is inside next"):
                threads.submit(next, batches).result()
            if isinstance(source, StreamingDataLoader | mdsx.Loader):
                with pytest.raises(mdsx.UsageError, match="another thread is inside next"):
                    next(iter(source))  # would end the first iteration
        finally:
            may_end.set()
        seen = first.result() + threads.submit(lambda: ids(next(batches))).result()
    assert sorted(seen + [number for batch in batches for number in ids(batch)]) == list(range(N))


@pytest.mark.parametrize("call", ["load_state_dict", "set_epoch", "reweight", "change"])
def test_a_call_during_another_threads_next_changes_nothing(local_url: str, call: str) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def slow(sample: dict[str, Any]) -> dict[str, Any]:
        if sample["id"] == slow_at:
            begun.set()
            may_end.wait()
        return sample

    whole = mdsx.Dataset(local_url)
    mixture = mdsx.Mixture([(whole.select(0, 500), 0.9), (whole.select(500, 1000), 0.1)], epoch_samples=400)
    options: dict[str, Any] = {"columns": ["id"], "rank": 0, "world_size": 1}
    right = [ids(batch) for batch in mdsx.Loader(mixture, 40, **options)]
    slow_at = right[1][0]
    loader = mdsx.Loader(mixture, 40, transform=slow, **options)
    batches = iter(loader)
    found = [ids(next(batches))]
    state = {**loader.state_dict(), "epoch": 3}
    arguments: dict[str, Any] = {
        "load_state_dict": state,
        "set_epoch": 3,
        "reweight": [0.5, 0.5],
        "change": mdsx.Phase([0.5, 0.5]),
    }
    with ThreadPoolExecutor(1) as threads:
        second = threads.submit(lambda: ids(next(batches)))
        try:
            begun.wait()
            before = loader.state_dict()
            with pytest.raises(mdsx.UsageError, match="another thread is inside next"):
                getattr(loader, call)(arguments[call])
            assert loader.state_dict() == before
        finally:
            may_end.set()
        found.append(second.result())
    assert found + [ids(batch) for batch in batches] == right


@pytest.mark.parametrize("make", MADE)
def test_threads_that_share_an_iterator_lose_and_repeat_nothing(
    local_url: str, make: Callable[[str, Transform], Any]
) -> None:
    batches = iter(make(local_url, None))
    seen: Counter[int] = Counter()
    lock = threading.Lock()

    def work() -> None:
        while True:
            try:
                batch = next(batches)
            except mdsx.UsageError:
                continue
            except StopIteration:
                return
            with lock:
                seen.update(ids(batch))

    with ThreadPoolExecutor(3) as threads:
        for worker in [threads.submit(work) for _ in range(3)]:
            worker.result()
    assert seen == Counter(range(N))


def test_an_interrupt_while_an_iteration_is_made_leaves_nothing(
    local_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ignored: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    loader = a_loader(local_url, None)

    def interrupt(at: int) -> Callable[[FrameType, str, Any], Any]:
        """Return a trace function that raises at line `at` of the code that makes an iteration."""
        lines: Iterator[int] = iter(range(at + 1))

        def trace(frame: FrameType, event: str, argument: object) -> Any:
            code = frame.f_code
            if code.co_name == "__init__" and code.co_filename.endswith(("loader/passes.py", "stream/run.py")):
                if next(lines, None) == at:
                    raise KeyboardInterrupt
                return trace
            return None

        return trace

    interrupted = 0
    for at in range(100):
        sys.settrace(interrupt(at))
        try:
            iter(loader)
        except KeyboardInterrupt:
            interrupted += 1
        else:
            break
        finally:
            sys.settrace(None)
    assert interrupted > 8
    assert ignored == []
    assert len(list(loader)) == 101
