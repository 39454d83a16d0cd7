"""A warning comes once in a run, at the user's line."""

from __future__ import annotations

import inspect
import queue
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from torch.utils.data import DataLoader

import mdsx
from mdsx.base.warn import leave_warnings_to_others, warn
from mdsx.torch import StreamingDataLoader, StreamingDataset
from tests.forks import forked

BLOCKS = mdsx.Shuffle(lanes=1, shuffle_block=14)  # of two shards


def line() -> int:
    """Return the line of the caller."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


def said(work: Callable[[], object]) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        work()
    return [warning for warning in caught if issubclass(warning.category, UserWarning)]


@pytest.fixture
def data(tmp_path: Path) -> StreamingDataset:
    """A dataset whose cache is far too small."""
    with mdsx.Writer(tmp_path / "d", {"data": "uint8[512]"}, shard_size=4096, compression="zstd") as out:
        for _ in range(700):
            out.write({"data": [7] * 512})
    cache = mdsx.Cache(tmp_path / "cache", limit=65536)
    return StreamingDataset(tmp_path / "d", batch_size=10, cache=cache, shuffle=mdsx.Shuffle(lanes=64))


def test_a_small_cache_is_reported_at_the_loop_once(data: StreamingDataset) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loader = StreamingDataLoader(data, 10)
        for _ in range(2):
            for _ in loader:
                pass
        first = line() - 2
        for _ in DataLoader(data, batch_size=None):
            pass
    (warning,) = caught
    assert (warning.filename, warning.lineno) == (__file__, first)
    assert "up to" in str(warning.message)
    assert "instead of 100, which can make it many times slower" in str(warning.message)


def test_a_cache_that_cannot_hold_a_window_is_reported(data: StreamingDataset, tmp_path: Path) -> None:
    """The shards in use fit; those of the samples that are grouped together do not."""
    for window, messages in ((1, []), (2**10, ["a smaller window"])):
        small = StreamingDataset(tmp_path / "d", cache=mdsx.Cache(tmp_path / "c", limit="128KiB"), shuffle=BLOCKS)
        loader = StreamingDataLoader(small, 10, batching=mdsx.Pack(512, length="data", window=window))
        warnings_of = [str(each.message) for each in said(partial(next, iter(loader)))]
        assert [warning[-len("a smaller window") :] for warning in warnings_of] == messages


def test_pytorchs_own_frames_are_skipped_too(data: StreamingDataset) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        next(iter(DataLoader(data, batch_size=None)))
    (warning,) = caught
    assert (warning.filename, warning.lineno) == (__file__, line() - 2)


def test_only_the_first_rank_warns(data: StreamingDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    loader = StreamingDataLoader(data, 10)
    assert not said(lambda: next(iter(loader)))
    loader.set_epoch(0)
    monkeypatch.setenv("RANK", "0")
    assert len(said(lambda: next(iter(loader)))) == 2  # a small cache, and unsuitable lanes


def test_a_given_rank_decides_who_warns(data: StreamingDataset, tmp_path: Path) -> None:
    for rank, expected in ((1, 0), (0, 2)):
        cache, shuffle = mdsx.Cache(tmp_path / "c", limit=65536), mdsx.Shuffle(lanes=64)
        one = StreamingDataset(tmp_path / "d", cache=cache, shuffle=shuffle, rank=rank, world_size=2)
        assert len(said(lambda one=one: next(iter(StreamingDataLoader(one, 10))))) == expected  # type: ignore[misc]


@pytest.mark.parametrize(
    ("environment", "run", "node"),
    [
        ({}, True, True),
        ({"RANK": "0", "LOCAL_RANK": "0"}, True, True),
        ({"RANK": "8", "LOCAL_RANK": "0"}, False, True),
        ({"RANK": "1", "LOCAL_RANK": "1"}, False, False),
        ({"RANK": "1"}, False, False),
    ],
)
def test_the_environments_rank_decides_who_warns(
    environment: dict[str, str], run: bool, node: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert bool(said(lambda: warn("of the run"))) == run
    assert bool(said(lambda: warn("of the node", seen_by="node"))) == node
    assert said(lambda: warn("of this process", seen_by="process"))


def test_a_worker_leaves_shared_warnings_to_others() -> None:
    def worker() -> tuple[bool, bool]:
        leave_warnings_to_others()
        shared = said(lambda: warn("of the node", seen_by="node"))
        return bool(shared), bool(said(lambda: warn("of this process", seen_by="process")))

    assert forked(worker) == (False, True)


def test_a_warning_in_our_thread_points_to_the_main_thread() -> None:
    namespace: dict[str, object] = {"__name__": "mdsx.anything", "warn": warn}
    exec("def work(): warn('from a thread')", namespace)
    work = namespace["work"]
    assert callable(work)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    (warning,) = caught
    assert warning.filename == __file__


def test_a_main_thread_in_pytorch_is_passed_over() -> None:
    asked: queue.Queue[int] = queue.Queue()
    main = threading.get_ident()

    def waits() -> bool:
        names = [frame.f_globals["__name__"] for frame, _ in traceback.walk_stack(sys._current_frames()[main])]
        return names[0] == "threading" and "queue" in names

    namespace: dict[str, object] = {"__name__": "mdsx.anything", "warn": warn, "waits": waits}
    exec("def work(asked):\n    while not waits(): pass\n    warn('from a thread')\n    asked.put(1)", namespace)
    work = namespace["work"]
    assert callable(work)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        thread = threading.Thread(target=work, args=(asked,))
        thread.start()
        asked.get()  # as a loader waits for its next batch
        thread.join()
    (warning,) = caught
    assert warning.filename == __file__


def test_a_damaged_shard_is_reported_at_the_writers_line(tmp_path: Path) -> None:
    out = mdsx.Writer(tmp_path / "d", {"id": "int64[64]"}, shard_size=4096).__enter__()
    for number in range(40):
        out.write({"id": [number] * 64})
    out.__exit__(KeyError, KeyError(), None)
    shard = next((tmp_path / "d").glob("shard.00001*"))
    shard.write_bytes(shard.read_bytes()[:-1] + b"\xff")
    with pytest.warns(UserWarning, match="rewritten") as caught:
        mdsx.Writer(tmp_path / "d", {"id": "int64[64]"}, shard_size=4096, resume=True).__enter__()
    assert (caught[0].filename, caught[0].lineno) == (__file__, line() - 1)
