"""SIGKILL at any place in processes that share a cache: no wrong byte, no hang, no leaked file, the limit kept."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from mdsx.storage.cache import CacheDirectory, Verdict
from tests.conftest import Often
from tests.forks import forked
from tests.storage.cache.reading import PLACES, SIZE, Reader, content, fetch
from tests.storage.cache.watch import Watch, check

DEADLINE = 30.0  # seconds; a download takes some milliseconds
LIMIT = 6 * SIZE


def read_all(directory: Path, limit: int, *jobs: str, shards: int = 12) -> None:
    """Read everything in a fresh process, and check that the cache has room for it."""

    def work() -> None:
        cache = CacheDirectory(directory, limit)
        assert cache.limit == limit  # as every reader does at its start
        for job in jobs:
            for number in range(shards):
                found = fetch(cache, job, number)
                assert not isinstance(found, Verdict), found
                assert found[:] == content(job, number)
                del found

    forked(work, deadline=DEADLINE)


@pytest.mark.parametrize("place", PLACES)
def test_a_death_anywhere_blocks_no_other_process(tmp_path: Path, place: str) -> None:
    directory = tmp_path / "cache"
    read_all(directory, LIMIT, "a", shards=6)  # it is full: a shard must be evicted
    other = CacheDirectory(directory, LIMIT)
    assert other.limit == LIMIT
    child = os.fork()
    if child == 0:
        try:
            PLACES[place](1)
            fetch(CacheDirectory(directory, LIMIT), "b", 7)
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    files = [path.stat().st_size for path in directory.rglob("*") if path.is_file()]
    assert sum(files) <= LIMIT
    found = fetch(other, "b", 7)  # the shard that the dead process was reading
    assert not isinstance(found, Verdict)
    assert found[:] == content("b", 7)
    del found
    read_all(directory, LIMIT, "b", shards=8)
    check(directory, LIMIT)


def test_every_process_removes_dead_processes_files(tmp_path: Path) -> None:
    directory = tmp_path / "cache"
    read_all(directory, LIMIT, "a", shards=2)
    child = os.fork()
    if child == 0:
        try:
            PLACES["half of the shard is written"](1)
            fetch(CacheDirectory(directory, LIMIT), "a", 5)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert list(directory.rglob("*.part"))
    read_all(directory, LIMIT, "a", shards=2)
    check(directory, LIMIT)


def wait_for_progress(readers: list[Reader]) -> None:
    """Wait until any of them has read one more shard: none blocks the others."""
    before, deadline = sum(reader.read for reader in readers), time.monotonic() + DEADLINE
    while sum(reader.read for reader in readers) <= before:
        assert time.monotonic() < deadline, "they hang"
        time.sleep(0.001)


@pytest.mark.slow
def test_readers_survive_random_kills_of_others(tmp_path: Path, often: Often) -> None:
    """Two jobs, four processes each; half of the dead die at one of the places above, half at any instant."""
    directory, chance, kills = tmp_path / "cache", random.Random(5), often(12, long=200)
    killed = read = 0

    def begin(number: int) -> Reader:
        place = chance.choice([*PLACES, *[None] * len(PLACES)]) if number > 1 else None  # at least two continue
        return Reader(directory, LIMIT, "ab"[number % 2], 12, chance.randrange(2**32), place)

    with Watch(directory) as watch:
        readers = [begin(number) for number in range(8)]
        try:
            while killed < kills:
                wait_for_progress(readers)
                time.sleep(chance.uniform(0, 0.1))
                number = chance.randrange(8)
                assert (readers[number].ended() or readers[number].kill()) == -signal.SIGKILL
                killed, read = killed + 1, read + readers[number].read
                readers[number] = begin(number)
                for other, reader in enumerate(readers):
                    assert reader.silent < DEADLINE, "it hangs"
                    if (status := reader.ended()) is not None:  # at its place
                        assert status == -signal.SIGKILL
                        killed, read = killed + 1, read + reader.read
                        readers[other] = begin(other)
            wait_for_progress(readers)
        finally:
            ends = [reader.stop(DEADLINE) for reader in readers]
        read += sum(reader.read for reader in readers)
    assert set(ends) <= {0, -signal.SIGKILL}
    assert read > kills
    assert watch.looks > 5
    assert 2 * SIZE < watch.highest <= LIMIT
    assert watch.blocks <= LIMIT
    read_all(directory, LIMIT, "c", shards=6)  # it needs all the room
    check(directory, LIMIT)
    print(f"killed {killed}, shards read {read}, looks {watch.looks}, highest {watch.highest / LIMIT:.0%} of the limit")
