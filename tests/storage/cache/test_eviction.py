"""Eviction without a clock: by predicted needs and by released shards."""

from __future__ import annotations

import gc
import os
import time
from pathlib import Path

import numpy as np
import pytest

from mdsx.storage.cache import CacheDirectory, Needs, ShardNames, ShardNeeds, Verdict
from tests.storage.cache.reading import counted_scans
from tests.storage.cache.test_cache import SIZE, fetch, key, names, tally, there, usage

FINGERPRINT = "f" * 32


def known(**seconds: float) -> Needs:
    """Return needs: shard "sk" is needed in seconds["sk"] seconds."""
    hashes = b"".join(bytes.fromhex(key(int(shard[1:])).raw_hash) for shard in seconds)
    names = ShardNames(np.frombuffer(hashes, np.uint8).reshape(-1, 16))
    return {FINGERPRINT: ShardNeeds(names, np.array([*seconds.values()], np.float64))}


def full(path: Path, *numbers: int, beside: int = 0) -> CacheDirectory:
    """Return a cache that has room for these shards and `beside` bytes more."""
    cache = CacheDirectory(path / "cache", len(numbers) * SIZE + beside)
    for number in numbers:
        fetch(cache, number)
    gc.collect()
    return cache


def test_the_shard_needed_last_is_evicted(tmp_path: Path) -> None:
    cache, needs = full(tmp_path, 1, 2, 3), known(s1=10, s2=30, s3=20)
    for number, seconds in ((1, 9999.0), (2, 1.0), (3, 5000.0)):  # an old estimate, at another pace
        cache.touch(key(number), seconds)
    assert not isinstance(fetch(cache, 4, needed_in=25.0, needs=needs), Verdict)
    assert there(cache) == names(1, 3, 4)


def test_a_shard_that_another_process_needs_soon_stays(tmp_path: Path) -> None:
    cache, needs = full(tmp_path, 1, 2, 3), known(s1=10, s2=30, s3=20)
    CacheDirectory(tmp_path / "cache").touch(key(2), 5.0)  # another process
    assert not isinstance(fetch(cache, 4, needed_in=15.0, needs=needs), Verdict)
    assert there(cache) == names(1, 2, 4)
    assert fetch(cache, 5, needed_in=15.0, needs=needs) is Verdict.NO_ROOM


def test_a_need_since_the_scan_keeps_a_known_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdsx.storage.cache.eviction._RESCAN", 1e9)
    cache, needs = full(tmp_path, 1, 2, 3, 4), known(s1=400, s2=300, s3=200, s4=100)
    assert not isinstance(fetch(cache, 5, needed_in=1.0, needs=needs), Verdict)
    gc.collect()
    CacheDirectory(tmp_path / "cache").touch(key(2), 2.0)  # another process
    assert not isinstance(fetch(cache, 6, needed_in=10.0, needs=needs), Verdict)
    assert there(cache) == names(2, 4, 5, 6)


def test_the_soonest_need_of_all_processes_stays(tmp_path: Path) -> None:
    cache, other = full(tmp_path, 1), CacheDirectory(tmp_path / "cache")

    def announced() -> int:
        return round((os.stat(cache.path(key(1))).st_atime - time.time()) / 10) * 10

    cache.touch(key(1), 400.0)
    assert announced() == 400
    assert not isinstance(fetch(other, 1, needed_in=100.0), Verdict)  # it is there already
    assert announced() == 100
    cache.touch(key(1), 900.0)  # its use is over
    other.open(key(1))
    assert announced() == 100
    other.touch(key(1), 0.0)
    assert announced() == 100


def test_a_process_replaces_its_own_sooner_need(tmp_path: Path) -> None:
    """The run came to the shard earlier than it had said, and its next use is far."""
    cache = full(tmp_path, 1)
    cache.touch(key(1), 100.0)
    cache.touch(key(1), 900.0)
    assert os.stat(cache.path(key(1))).st_atime > time.time() + 800


def test_a_need_that_is_over_is_replaced(tmp_path: Path) -> None:
    cache = full(tmp_path, 1)
    path = cache.path(key(1))
    os.utime(path, (time.time() - 5, os.stat(path).st_mtime))
    cache.touch(key(1), 900.0)
    assert os.stat(path).st_atime > time.time() + 800


def test_a_prefetch_evicts_only_shards_needed_later(tmp_path: Path) -> None:
    cache, needs = full(tmp_path, 1, 2), known(s1=10, s2=20, s3=20, s4=15)
    assert fetch(cache, 3, needed_in=20.0, needs=needs) is Verdict.NO_ROOM
    assert not isinstance(fetch(cache, 4, needed_in=15.0, needs=needs), Verdict)
    assert there(cache) == names(1, 4)


def test_released_shards_are_evicted_without_a_scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdsx.storage.cache.eviction._RESCAN", 1e9)
    monkeypatch.setattr("mdsx.storage.cache.eviction._RETRY", 1e9)
    scans = counted_scans(monkeypatch)
    cache = full(tmp_path, 1, 2)
    assert fetch(cache, 3, needed_in=0.5, needs=known(s1=0, s2=0.2)) is Verdict.NO_ROOM
    assert scans
    scans.clear()
    assert fetch(cache, 3, needed_in=0.5, needs=known(s1=0, s2=0.2)) is Verdict.NO_ROOM
    cache.touch(key(1), 99.0)  # not needed until the next epoch
    assert not isinstance(fetch(cache, 3, needed_in=0.5, needs=known(s1=99, s2=0.1)), Verdict)
    assert there(cache) == names(2, 3)
    assert not scans


def test_other_jobs_shards_are_compared_by_their_files_times(tmp_path: Path) -> None:
    cache = full(tmp_path, 1, 2)
    cache.touch(key(2), needed_in=5.0)
    assert not isinstance(fetch(cache, 3, needed_in=1.0, needs=known(s1=10)), Verdict)
    assert there(cache) == names(2, 3)


def test_a_shard_used_since_the_scan_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdsx.storage.cache.eviction._RESCAN", 1e9)
    cache = full(tmp_path, 1, 2, 3, 4)
    for number, seconds in ((1, 4000.0), (2, 3000.0), (3, 2000.0), (4, 1000.0)):
        cache.touch(key(number), seconds)
    assert not isinstance(fetch(cache, 5, needed_in=1.0), Verdict)
    gc.collect()
    CacheDirectory(tmp_path / "cache").touch(key(2), 2.0)  # another process
    assert not isinstance(fetch(cache, 6, needed_in=10.0), Verdict)
    assert there(cache) == names(2, 4, 5, 6)
    assert tally(cache) == usage(cache)


def test_vanished_files_and_withdrawn_needs_do_no_harm(tmp_path: Path) -> None:
    cache, needs = full(tmp_path, 1, 2, 3), known(s1=90, s2=80, s3=1)
    assert not isinstance(fetch(cache, 4, needed_in=1.0, needs=needs), Verdict)
    gc.collect()
    os.unlink(cache.path(key(2)))
    for number in (5, 6, 7):
        assert not isinstance(fetch(cache, number), Verdict)
        gc.collect()
        assert usage(cache) <= 3 * SIZE
    assert tally(cache) == usage(cache)


def test_what_a_scan_found_may_be_evicted_however_long_it_took(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdsx.storage.cache.eviction._RESCAN", 0.0)
    cache = full(tmp_path, 1, 2)
    assert not isinstance(fetch(cache, 3), Verdict)


def test_a_shard_needed_now_has_a_scan_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scan just before it found only shards in use."""
    monkeypatch.setattr("mdsx.storage.cache.eviction._RETRY", 1e9)
    cache = CacheDirectory(tmp_path / "cache", 2 * SIZE)
    leases = [fetch(cache, number) for number in (1, 2)]
    assert fetch(cache, 3) is Verdict.NO_ROOM
    leases.clear()
    gc.collect()
    assert not isinstance(fetch(cache, 3), Verdict)


def test_what_is_needed_now_replaces_even_what_is_needed_now(tmp_path: Path) -> None:
    cache = full(tmp_path, 1)
    assert not isinstance(fetch(cache, 2, needs=known(s1=0, s2=0)), Verdict)
    assert there(cache) == names(2)


def test_a_process_remembers_the_needs_that_it_noted_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdsx.storage.cache.eviction._NOTED", 2)
    cache, now = full(tmp_path, 1, 2, 3), time.time()
    for seconds in (100.0, 900.0):
        for number in (1, 2, 3):
            cache.touch(key(number), seconds)
    later = [os.stat(cache.path(key(number))).st_atime > now + 800 for number in (1, 2, 3)]
    assert later == [False, True, True]  # the first one could be another process's
