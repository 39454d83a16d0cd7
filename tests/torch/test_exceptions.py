"""`next()` raises an exception of a batch once, with its type. Nothing leaks, and the run continues."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mdsx
from mdsx.datasets import Sample
from mdsx.torch import StreamingDataLoader, StreamingDataset
from tests.base.work.makers import living_workers

N, BATCH = 1003, 50
BAD = 700  # the sample that is spoilt, the first time


class TwoArguments(Exception):
    """Cannot be made from a message alone, as PyTorch tries to."""

    def __init__(self, code: int, *, why: str) -> None:
        super().__init__(code, why)
        self.code, self.why = code, why

    def __reduce__(self) -> tuple[object, ...]:
        return _two_arguments, (self.code, self.why)


def _two_arguments(code: int, why: str) -> TwoArguments:
    return TwoArguments(code, why=why)


class NoException(BaseException):
    """Derived from BaseException only, as frameworks' own interrupts are."""


RAISED: dict[str, Callable[[], BaseException]] = {
    "KeyError": lambda: KeyError("here"),
    "TwoArguments": lambda: TwoArguments(7, why="here"),
    "CorruptError": lambda: mdsx.CorruptError("here", file="a file", hint="a way out"),
    "SystemExit": lambda: SystemExit(3),
    "NoException": lambda: NoException("here"),
}


class Spoilt:
    """A `transform` or `collate_fn` that raises at one sample, once over all processes."""

    def __init__(self, marker: Path, make: Callable[[], BaseException]) -> None:
        self._marker, self._make = marker, make

    def transform(self, sample: Sample) -> Any:
        self._look_at(sample)
        return {"id": sample["id"]}

    def collate(self, samples: list[Sample]) -> Any:
        for sample in samples:
            self._look_at(sample)
        return {"id": [int(sample["id"]) for sample in samples]}

    def _look_at(self, sample: Sample) -> None:
        if sample["id"] == BAD and not self._marker.exists():
            self._marker.touch()
            raise self._make()


Left = tuple[set[str], set[int], set[str]]


def left_over() -> Left:
    gc.collect()
    descriptors = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            descriptors.add(f"{name} {os.readlink(f'/proc/self/fd/{name}')}")
        except OSError:
            continue
    threads = {f"{thread.name} {thread.ident}" for thread in threading.enumerate()}
    return threads, {child.pid or 0 for child in multiprocessing.active_children()}, descriptors


def wait_until_nothing_is_left(before: Left) -> None:
    deadline = time.monotonic() + 20
    while True:
        threads, children, descriptors = left_over()
        more = threads - before[0], children - before[1], descriptors - before[2]
        if not any(more):
            return
        assert time.monotonic() < deadline, more
        time.sleep(0.02)


def compare(error: BaseException, expected: BaseException, note: str) -> None:
    """Assert that type, message and attributes are the same, and that the user's frame and the place are visible."""
    assert type(error) is type(expected)
    assert str(error) == str(expected)
    shown = {name: value for name, value in vars(expected).items() if not name.startswith("_")}
    assert vars(error).items() >= shown.items()
    text = "".join(traceback.format_exception(error))
    assert text.count("in _look_at") == 1  # its traceback, once
    if isinstance(error, Exception):
        assert note in text
        assert "position" in text


def ids(batch: dict[str, Any]) -> list[int]:
    return [int(number) for number in batch["id"]]


@pytest.mark.slow_if("workers == 2 and id not in {'transform-CorruptError-2', 'collate_fn-SystemExit-2'}")
@pytest.mark.parametrize(
    ("where", "kind", "workers"),
    [
        *(("transform", kind, 0) for kind in RAISED),
        *(("transform", kind, 2) for kind in ("TwoArguments", "CorruptError", "NoException")),
        *(("collate_fn", kind, 2) for kind in ("KeyError", "SystemExit")),
        ("collate_fn", "KeyError", 0),
    ],
)
def test_exception_is_raised_once_and_no_sample_is_lost(
    local_url: str, tmp_path: Path, kind: str, where: str, workers: int
) -> None:
    before = left_over()
    spoilt = Spoilt(tmp_path / "raised", RAISED[kind])
    options: dict[str, Any] = {"transform": spoilt.transform} if where == "transform" else {}
    data = StreamingDataset(local_url, seed=4, **options)
    loader = StreamingDataLoader(
        data, BATCH, num_workers=workers, drop_last=False, collate_fn=spoilt.collate if where == "collate_fn" else None
    )
    batches, found, raised = iter(loader), list[int](), 0
    while True:
        try:
            found += ids(next(batches))
        except StopIteration:
            break
        except BaseException as error:
            raised += 1
            assert BAD not in found
            assert not living_workers()
            compare(error, RAISED[kind](), f"mdsx: in {where}")
    assert raised == 1
    assert sorted(found) == list(range(N))
    del batches, loader, data
    wait_until_nothing_is_left(before)


@pytest.mark.parametrize("workers", [0, 2])
def test_unpicklable_exception_keeps_type_message_and_traceback(local_url: str, tmp_path: Path, workers: int) -> None:
    class Local(Exception):
        pass

    spoilt = Spoilt(tmp_path / "raised", lambda: Local("here"))
    loader = StreamingDataLoader(StreamingDataset(local_url, transform=spoilt.transform), BATCH, num_workers=workers)
    with pytest.raises(RuntimeError if workers else Local) as raised:
        for _ in loader:
            pass
    text = "".join(traceback.format_exception(raised.value))
    for shown in ("Local", "here", "_look_at", "mdsx: in transform"):
        assert shown in text


@pytest.mark.slow_if("not persistent")
@pytest.mark.parametrize("persistent", [False, True])
def test_iteration_continues_after_a_killed_worker(local_url: str, tmp_path: Path, persistent: bool) -> None:
    """The kernel kills a worker in the same way when memory is short."""

    def die() -> BaseException:
        os.kill(os.getpid(), signal.SIGKILL)
        return AssertionError()

    before = left_over()
    spoilt = Spoilt(tmp_path / "died", die)
    data = StreamingDataset(local_url, seed=4, transform=spoilt.transform)
    loader = StreamingDataLoader(data, BATCH, num_workers=2, drop_last=False, persistent_workers=persistent)
    batches, found, raised = iter(loader), list[int](), list[str]()
    while True:
        try:
            found += ids(next(batches))
        except StopIteration:
            break
        except RuntimeError as error:
            raised.append(str(error))
    assert len(raised) == 1
    assert "worker" in raised[0]
    assert sorted(found) == list(range(N))
    assert sorted(number for batch in loader for number in ids(batch)) == list(range(N))  # the next epoch
    del batches, loader, data
    wait_until_nothing_is_left(before)


def test_next_raises_a_prefetch_error_once(remote_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Storage does not expect this error, so the reader of the shard would not see it."""
    from mdsx.shards import View

    bring, failed = View.bring, list[int]()

    def fails_once(self: View, *arguments: Any, **options: Any) -> Any:
        if not failed:
            failed.append(1)
            raise MemoryError("here")
        return bring(self, *arguments, **options)

    monkeypatch.setattr(View, "bring", fails_once)
    data = StreamingDataset(remote_url, seed=4, cache=mdsx.Cache(tmp_path / "cache", limit="1MB"))
    batches, found, raised = iter(StreamingDataLoader(data, BATCH, drop_last=False)), list[int](), list[str]()
    while True:
        try:
            found += ids(next(batches))
            time.sleep(0.01)
        except StopIteration:
            break
        except MemoryError as error:
            raised.append("".join(traceback.format_exception(error)))
    assert len(raised) == 1
    assert "fails_once" in raised[0]
    assert sorted(found) == list(range(N))


# --- forks


@pytest.mark.parametrize("workers", [0, 2])
def test_child_forked_during_reading_does_not_disturb_its_parent(local_url: str, workers: int) -> None:
    """The child cannot continue the parent's iteration. It can begin its own, and it can drop what it inherited."""
    from tests.forks import forked

    loader = StreamingDataLoader(StreamingDataset(local_url, seed=4), BATCH, num_workers=workers)
    batches = iter(loader)
    found = ids(next(batches))

    def child() -> tuple[str, list[int]]:
        nonlocal loader, batches
        try:
            next(batches)
            shown = ""
        except mdsx.UsageError as error:
            shown = str(error)
        own = ids(next(iter(StreamingDataLoader(StreamingDataset(local_url, seed=4), BATCH))))
        del loader, batches
        gc.collect()
        return shown, own

    shown, own = forked(child)
    assert "belongs to the process that began it" in shown
    assert own == found
    for batch in batches:
        found += ids(batch)
    assert len(set(found)) == len(found) == N // BATCH * BATCH


def test_a_forked_child_starts_persistent_workers_of_its_own(local_url: str) -> None:
    from tests.forks import forked

    dataset = StreamingDataset(local_url, seed=4)
    loader = StreamingDataLoader(dataset, BATCH, num_workers=2, persistent_workers=True)

    def read() -> list[list[int]]:
        return [ids(batch) for batch in loader]

    first, of_child, second = read(), forked(read), read()
    assert of_child == second != first


def test_unpicklable_views_raise_a_clear_error(tmp_path: Path) -> None:
    url = str(tmp_path / "data")
    with mdsx.Writer(url, {"id": "int64", "blob": "bytes"}) as out:
        out.write_batch({"id": range(40), "blob": [b"x" * 10] * 40})
    data = StreamingDataset(url, transform=lambda sample: sample, zero_copy=True)
    loader = StreamingDataLoader(data, 4, num_workers=2, collate_fn=lambda samples: samples)
    with pytest.raises(mdsx.UsageError, match=r"memory view.*zero_copy"):
        next(iter(loader))
