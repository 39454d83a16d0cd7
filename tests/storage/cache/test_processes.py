"""Many processes and forks on one cache directory: right data, the limit kept, leases of their own."""

from __future__ import annotations

import fcntl
import gc
import math
import os
from pathlib import Path

import numpy as np
import pytest

from mdsx.storage.cache import CacheDirectory, CacheKey, Verdict
from mdsx.storage.cache.files import Hold, Write
from mdsx.storage.cache.ledger import Ledger
from tests.fork_server import call_all
from tests.storage.cache.reader import read
from tests.storage.cache.reading import SIZE, counted_scans
from tests.storage.cache.test_cache import SIZE as SMALL
from tests.storage.cache.test_cache import content, fetch, key, usage
from tests.storage.cache.watch import Watch


def test_two_jobs_of_six_processes_stay_within_the_limit(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with Watch(cache) as watch:
        call_all(read, [(cache, 5 * SIZE, job, 16, 4, seed) for seed in range(6) for job in ("a", "b")])
    assert watch.looks > 50
    assert 2 * SIZE < watch.highest <= 5 * SIZE
    assert watch.blocks <= 5 * SIZE


def test_a_directory_without_live_processes_has_no_room(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "cache")
    with ledger.locked():
        assert ledger.limit() == 0


def test_a_forked_child_neither_keeps_nor_ends_leases(tmp_path: Path) -> None:
    cache = CacheDirectory(tmp_path / "cache", SMALL)
    mapped = fetch(cache, 1)
    assert not isinstance(mapped, Verdict)
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.write(ready[1], b"x")
            os.read(go[0], 1)  # it is still mapped
            status = 0 if bytes(memoryview(mapped)) == content(1) else 1  # type: ignore[arg-type]
        finally:
            os._exit(status)
    assert os.read(ready[0], 1) == b"x"
    (path,) = cache.directory.rglob("*.mdsx")
    other = Hold(path, os.O_RDONLY)
    assert not other.try_lock(fcntl.LOCK_EX)  # our lease still holds
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
    cache = CacheDirectory(tmp_path / "cache", 2 * SMALL)
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
    assert usage(cache) == 2 * SMALL


def test_admissions_rarely_scan_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each admission reads the tally, not the directory. The test counts scans, not seconds."""
    monkeypatch.setattr("mdsx.storage.cache.eviction._RESCAN", math.inf)  # otherwise a slow disk makes scans stale
    cache = CacheDirectory(tmp_path / "cache", 2000 * 10)
    directory = tmp_path / "cache" / ("f" * 32)
    directory.mkdir(parents=True)
    (tmp_path / "cache" / "mdsx-cache").touch()
    for number in range(2000):
        (directory / f"{number:032x}.mdsx").write_bytes(b"0123456789")
    scans = counted_scans(monkeypatch)
    assert cache.limit == 20_000
    scans.clear()

    def fill(write: Write) -> None:
        write(b"x" * 10)

    for number in range(100):
        assert not isinstance(cache.fetch(CacheKey("a" * 32, f"{number:032x}", 10), fill), Verdict)
    assert len(scans) <= 3
    assert np.sum([path.stat().st_size for path in (tmp_path / "cache").rglob("*.mdsx")]) <= 20_000
