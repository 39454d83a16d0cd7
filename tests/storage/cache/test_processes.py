"""Many processes on one cache directory: right data, the limit never exceeded, kills that leave nothing behind."""

from __future__ import annotations

import fcntl
import gc
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType

import numpy as np
import pytest

from mdsx.storage.cache import Cache, CacheKey, Verdict
from mdsx.storage.cache.files import Write
from mdsx.storage.cache.locks import Hold
from tests.storage.cache.reader import SIZE
from tests.storage.cache.test_cache import SIZE as SMALL
from tests.storage.cache.test_cache import content, fetch, key

TIMEOUT = 120


class Watch:
    """Adds up the sizes of all files in a directory every 5 ms."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.highest = 0
        self.looks = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.005):
            self.highest = max(self.highest, sum(self._sizes()))
            self.looks += 1

    def _sizes(self) -> list[int]:
        sizes = []
        for directory, _, files in os.walk(self.directory):
            for name in files:
                try:
                    sizes.append(os.lstat(os.path.join(directory, name)).st_size)
                except FileNotFoundError:
                    continue
        return sizes


def start(directory: Path, limit: int, job: str, shards: int, rounds: int, seed: int) -> subprocess.Popen[str]:
    arguments = [str(directory), str(limit), job, str(shards), str(rounds), str(seed)]
    command = [sys.executable, "-m", "tests.storage.cache.reader", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_twelve_processes_of_two_jobs_within_five_shards(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with Watch(cache) as watch:
        jobs = [start(cache, 5 * SIZE, job, 16, 4, seed) for seed in range(6) for job in ("a", "b")]
        told = [process.communicate(timeout=TIMEOUT)[0] for process in jobs]
    assert all(process.returncode == 0 for process in jobs)
    assert all(text.startswith("ok") for text in told)
    assert watch.looks > 50
    assert 2 * SIZE < watch.highest <= 5 * SIZE


def test_killed_processes_leave_nothing_that_hinders_others(tmp_path: Path) -> None:
    cache, chance = tmp_path / "cache", random.Random(5)
    with Watch(cache) as watch:
        readers = [start(cache, 6 * SIZE, "a", 12, 12, seed) for seed in range(2)]
        for seed in range(20):
            victim = start(cache, 6 * SIZE, "b", 12, 1000, seed)
            deadline = time.monotonic() + 10
            while not (cache / "b".ljust(32, "0")).exists() and time.monotonic() < deadline:
                time.sleep(0.005)
            time.sleep(chance.uniform(0, 0.05))  # where in its work it dies is the point
            os.kill(victim.pid, signal.SIGKILL)
            victim.wait()
        for process in readers:
            assert process.communicate(timeout=TIMEOUT)[0].startswith("ok")
    assert watch.highest <= 6 * SIZE
    last = start(cache, 6 * SIZE, "c", 6, 1, 0)  # needs all the room: what the dead held is free again
    assert last.communicate(timeout=TIMEOUT)[0] == "ok 0\n"
    files = [path for path in cache.rglob("*") if path.is_file() and path.stat().st_size]
    assert sorted(path.suffix for path in files) == [".mdsx"] * 6


def test_a_forked_child_keeps_no_lease_and_ends_none(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache", SMALL)
    mapped = fetch(cache, 1)
    assert not isinstance(mapped, Verdict)
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            del mapped  # ends no lease of the parent's
            gc.collect()
            os.write(ready[1], b"x")
            os.read(go[0], 1)
            status = 0
        finally:
            os._exit(status)
    assert os.read(ready[0], 1) == b"x"
    (path,) = cache.directory.rglob("*.mdsx")
    other = Hold(path, os.O_RDONLY)
    assert not other.try_lock(fcntl.LOCK_EX)  # our lease stands
    other.release()
    assert fetch(cache, 2) is Verdict.NO_ROOM
    del mapped
    gc.collect()
    assert not isinstance(fetch(cache, 2), Verdict)  # the child, which lives, does not hold it
    os.write(go[1], b"x")
    assert os.waitpid(child, 0)[1] == 0
    for end in (*ready, *go):
        os.close(end)


def test_a_child_uses_the_cache_with_leases_of_its_own(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache", 2 * SMALL)
    fetch(cache, 1)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            found = fetch(cache, 2)
            again = cache.open(key(1))
            assert again is not None
            status = 0 if found[:] == content(2) and again[:] == content(1) else 1  # type: ignore[index]
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert cache.usage() == 2 * SMALL


def test_a_complete_cache_that_may_only_be_read_is_read(tmp_path: Path) -> None:
    writer = Cache(tmp_path / "cache", 4 * SMALL)
    mapped = fetch(writer, 1)
    assert not isinstance(mapped, Verdict)
    script = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from mdsx.storage.cache import Cache, CacheKey, Verdict\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "cache = Cache(sys.argv[1], 4000)\n"
        "found = cache.open(CacheKey(*sys.argv[2:4], int(sys.argv[4])))\n"
        "assert found is not None and len(found) == 1000\n"
        "other = CacheKey(sys.argv[2], 'e' * 32, 1000)\n"
        "assert cache.fetch(other, lambda write: None) is Verdict.NO_ROOM\n"
        "print(cache.limit)\n"
    )
    for path in [tmp_path, *tmp_path.parents]:
        if not path.stat().st_mode & 0o001:
            path.chmod(0o755)
    for path in (tmp_path / "cache").rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    (tmp_path / "cache").chmod(0o755)
    wanted = key(1)
    arguments = [str(tmp_path / "cache"), wanted.fingerprint, wanted.raw_hash, str(wanted.raw_size)]
    if os.geteuid() != 0:  # then we cannot become somebody else, but can take our own rights away
        script = script.replace("os.setgid(65534); os.setuid(65534)\n", "")
        (tmp_path / "cache").chmod(0o555)
        (tmp_path / "cache" / "lock").chmod(0o444)
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=TIMEOUT)
    (tmp_path / "cache").chmod(0o755)
    assert done.stdout == "4000\n", done.stderr


def test_a_hundred_admissions_among_two_thousand_shards_scan_only_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The books, not the directory, are read for each admission: counted in scans, not in seconds."""
    monkeypatch.setattr("mdsx.storage.cache.room._RESCAN", math.inf)  # else a slow disk makes scans grow old
    cache = Cache(tmp_path / "cache", 2000 * 10)
    directory = tmp_path / "cache" / ("f" * 32)
    directory.mkdir(parents=True)
    for number in range(2000):
        (directory / f"{number:032x}.mdsx").write_bytes(b"0123456789")
    assert cache.limit == 20_000
    scans = []
    ledger = cache._process().ledger
    scan = ledger.scan
    ledger.scan = lambda: scans.append(1) or scan()  # type: ignore[func-returns-value, method-assign]

    def fill(write: Write) -> None:
        write(b"x" * 10)

    for number in range(100):
        assert not isinstance(cache.fetch(CacheKey("a" * 32, f"{number:032x}", 10), fill), Verdict)
        gc.collect()
    assert len(scans) <= 3
    assert np.sum([path.stat().st_size for path in (tmp_path / "cache").rglob("*.mdsx")]) <= 20_000
