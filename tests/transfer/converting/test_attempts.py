"""Two attempts at the same part at the same time, as when a cluster takes a node for dead that is still at work.

Both work on the same files, one of them by another path, so that a test can stop it before one of its requests. The
result is the dataset, exactly once; or an error, after which one more attempt makes the dataset.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mdsx import MdsxError
from mdsx.storage import open_storage
from mdsx.storage.local import LocalStorage
from mdsx.transfer.converting import record
from mdsx.transfer.converting.pipeline import PartWork
from mdsx.transfer.converting.plan import ConversionPlan
from mdsx.transfer.converting.record import Tally
from tests.transfer.converting.numbers import Numbers

REQUESTS = ("get", "put", "create", "list", "delete", "discard_unfinished")
SOURCE = Numbers(4, 5)
PLAN = ConversionPlan.of(SOURCE, "", {"x": "int64"}, shard_size=200, compression=None, on_error="raise", parts=1)


class Attempt:
    """An attempt at the only part of the plan, in a thread. It waits before its request `stop`, a number or a text."""

    def __init__(self, folder: Path, stop: int | str = -1) -> None:
        self.requests: list[str] = []
        self.waits, self.may_continue = threading.Event(), threading.Event()
        self.folder, self._stop, self._at = folder, stop, 10**9
        self._thread = ThreadPoolExecutor(1)
        self._done: Future[Tally] | None = None

    def start(self) -> None:
        """Start, and return when it waits or is done."""
        work = PartWork(replace(PLAN, out=str(self.folder)), SOURCE, None)
        self._done = self._thread.submit(work, 0, lambda _: None)
        self._done.add_done_callback(lambda _: self.waits.set())
        assert self.waits.wait(60)

    def before(self, request: str, key: str) -> None:
        self.requests.append(f"{request} {key}")
        if self._stop in (len(self.requests) - 1, self.requests[-1]):
            self._at = len(self.requests) - 1
            self.waits.set()
            assert self.may_continue.wait(60)

    @property
    def removes(self) -> bool:
        """Whether the request before which it waits removes a shard: one that follows a missing one."""
        return any(each.startswith("delete shard.") for each in self.requests[self._at : self._at + 1])

    def result(self) -> Tally | MdsxError:
        assert self._done is not None
        self.may_continue.set()
        try:
            return self._done.result(60)
        except MdsxError as error:
            return error
        finally:
            self._thread.shutdown()


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch, *attempts: Attempt) -> Iterator[None]:
    """Let each attempt see the requests below its folder before they are made."""
    with monkeypatch.context() as patch:
        for name in REQUESTS:
            patch.setattr(LocalStorage, name, _watching(getattr(LocalStorage, name), name, attempts))
        yield


def _watching(made: Callable[..., Any], name: str, attempts: tuple[Attempt, ...]) -> Callable[..., Any]:
    def request(self: LocalStorage, key: str = "", *values: Any, **given: Any) -> Any:
        for attempt in attempts:
            if self.url == str(attempt.folder):
                attempt.before(name, key)
        return made(self, key, *values, **given)

    return request


def files(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def alone(folder: Path) -> Attempt:
    """Return an attempt that has made the dataset alone."""
    attempt = Attempt(folder)
    with watched(pytest.MonkeyPatch(), attempt):
        attempt.start()
        assert attempt.result() == Tally(20)
    return attempt


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files that one attempt alone leaves."""
    folder = tmp_path_factory.mktemp("right")
    alone(folder)
    return files(folder)


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a killed attempt may leave: of its shards, which it uploads side by side, number 2 is missing."""
    folder, left = tmp_path_factory.mktemp("unfinished"), tmp_path_factory.mktemp("left") / "out"
    attempt = Attempt(folder, stop="create index.json")
    with watched(pytest.MonkeyPatch(), attempt):
        attempt.start()
        shutil.copytree(folder, left)
        attempt.result()
    (left / "shard.00002.mdsx").unlink()
    return left


class Two:
    """Two attempts at the same part, by two paths of one folder."""

    def __init__(self, tmp_path: Path, unfinished: Path | None, first: int | str, second: int | str = -1) -> None:
        self.folder = tmp_path / f"{first}-{second}"
        if unfinished is None:
            self.folder.mkdir()
        else:
            shutil.copytree(unfinished, self.folder)
        other = tmp_path / f"{first}-{second}-again"
        other.symlink_to(self.folder)
        self.first, self.second = Attempt(self.folder, first), Attempt(other, second)


@pytest.mark.slow_if("not resumed")
@pytest.mark.parametrize("resumed", [False, True])
def test_an_attempt_that_was_taken_for_dead_changes_nothing(
    resumed: bool, tmp_path: Path, unfinished: Path, right: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stopped before each of its requests in turn, until another attempt has done the part.

    Only a removal that it has begun could still do harm: that of a shard that follows a missing one.
    """
    for stop in range(40):
        two = Two(tmp_path, unfinished if resumed else None, stop)
        with watched(monkeypatch, two.first, two.second):
            two.first.start()
            two.second.start()
            assert two.second.result() == Tally(20), two.first.requests
            assert files(two.folder) == right
            two.first.result()
        if not two.first.removes:
            assert files(two.folder) == right, two.first.requests[stop]
    assert len(two.first.requests) < 40  # all of them were tried


@pytest.mark.slow_if("resumed")
@pytest.mark.parametrize("resumed", [False, True])
def test_two_attempts_at_once_never_make_a_wrong_dataset(
    resumed: bool, tmp_path: Path, unfinished: Path, right: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second begins while the first waits, and waits itself until the first has ended."""
    for first in range(0, 35, 2):
        for second in range(first % 12, 35, 12):
            two = Two(tmp_path, unfinished if resumed else None, first, second)
            with watched(monkeypatch, two.first, two.second):
                two.first.start()
                two.second.start()
                found = [two.first.result(), two.second.result()]
            if two.first.removes or two.second.removes:
                continue
            if Tally(20) not in found:
                alone(two.folder)
            assert files(two.folder) == right, (first, second, found)


def test_the_record_of_the_attempt_that_is_further_stays(tmp_path: Path) -> None:
    storage = open_storage(tmp_path, write=True)
    one, other = record.PartTallies(storage, 0), record.PartTallies(storage, 0)
    one.put(0, Tally(5), last=False)
    one.put(1, Tally(6), last=True)
    other.put(0, Tally(5), last=True)
    assert record.PartTallies(storage, 0).tallies == [Tally(5), Tally(6)]
