"""Pruning and clearing a cache: leases, needs, other files and the tally are respected, also while jobs read."""

from __future__ import annotations

import gc
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import mdsx
from mdsx.storage.cache import CacheDirectory, CacheKey, Verdict, clear, contents_of, filenames, prune
from mdsx.storage.cache.files import Cached
from mdsx.storage.cache.ledger import Ledger
from mdsx.storage.cache.removal import Removal
from tests.conftest import Often
from tests.forks import as_another_user, let_through
from tests.storage.cache import reading
from tests.storage.cache.reading import Reader, background, killed
from tests.storage.cache.test_announced import announce
from tests.storage.cache.test_cache import SIZE, content, fetch, key, names, tally, there, usage
from tests.storage.cache.test_kills import DEADLINE, read_all, wait_for_progress
from tests.storage.cache.watch import Watch, check

DAY = 86400.0


@pytest.fixture
def cache(tmp_path: Path) -> CacheDirectory:
    """Shards 0 to 4, used 0, 1, 2, 3 and 4 days ago."""
    cache = CacheDirectory(tmp_path / "cache", 10 * SIZE)
    for number in range(5):
        fetch(cache, number)
    gc.collect()
    for number in range(5):
        age(cache, number, number * DAY)
    return cache


def age(cache: CacheDirectory, number: int, seconds: float) -> None:
    os.utime(cache.path(key(number)), (time.time() - seconds, time.time()))


@pytest.fixture(autouse=True)
def _use_is_in_the_access_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """No call sets a file's time of change, which a real shard's last use sets too."""
    monkeypatch.setattr("mdsx.storage.cache.removal.last_used", lambda status, now: min(status.st_atime, now))


def amounts(found: Removal) -> tuple[int, int, int, int]:
    """Return the number of files removed, held, needed and left."""
    for amount in (found.removed, found.held, found.needed, found.left):
        assert amount.size == amount.files * SIZE
    return found.removed.files, found.held.files, found.needed.files, found.left.files


def test_prune_removes_what_was_not_used_for_that_long(cache: CacheDirectory) -> None:
    assert amounts(prune(cache.directory, idle=2.5 * DAY)) == (2, 0, 0, 3)
    assert there(cache) == names(0, 1, 2)
    assert tally(cache) == usage(cache) == 3 * SIZE


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> float:
    """The time, which stands still."""
    now = float(int(time.time()))
    monkeypatch.setattr(time, "time", lambda: now)
    return now


def test_a_shard_is_idle_from_the_given_time_on(cache: CacheDirectory, now: float) -> None:
    for number in range(5):
        age(cache, number, number * DAY)
    assert amounts(prune(cache.directory, idle=2 * DAY)) == (3, 0, 0, 2)
    assert there(cache) == names(0, 1)


def test_a_need_counts_up_to_the_given_time(cache: CacheDirectory, now: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdsx.storage.cache.removal.last_used", lambda status, now: now - 9 * DAY)
    for number, needed_in in enumerate([0.0, 1.0, 600.0, DAY, DAY + 1]):
        age(cache, number, -needed_in)
    assert amounts(prune(cache.directory, idle=DAY)) == (2, 0, 2, 3)  # shard 0 is used now, and not needed again
    assert there(cache) == names(1, 2, 3)


def test_prune_to_a_size_removes_the_least_needed_first(cache: CacheDirectory) -> None:
    cache.touch(key(0), needed_in=30 * DAY)
    assert amounts(prune(cache.directory, size=3 * SIZE + 10)) == (2, 0, 0, 3)
    assert there(cache) == names(1, 2, 3)
    assert amounts(prune(cache.directory, idle=0.0, size=0)) == (3, 0, 0, 0)
    assert tally(cache) == 0


def test_held_shards_stay_and_others_leave_for_them(cache: CacheDirectory) -> None:
    held = [cache.open(key(number)) for number in (3, 4)]
    for number in (3, 4):
        age(cache, number, number * DAY)
    assert amounts(prune(cache.directory, size=3 * SIZE)) == (2, 2, 0, 3)
    assert there(cache) == names(0, 3, 4)
    assert amounts(clear(cache.directory)) == (1, 2, 0, 2)
    assert [mapped[:] for mapped in held if mapped] == [content(3), content(4)]
    del held
    gc.collect()
    assert amounts(clear(cache.directory)) == (2, 0, 0, 0)


def test_what_a_job_needs_soon_is_not_pruned(cache: CacheDirectory) -> None:
    for number in (3, 4):
        cache.touch(key(number), needed_in=300)
    assert amounts(prune(cache.directory, size=1)) == (3, 0, 2, 2)
    assert there(cache) == names(3, 4)


def test_a_shard_needed_within_the_age_is_not_idle(cache: CacheDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdsx.storage.cache.removal.last_used", lambda status, now: now - 9 * DAY)
    for number in range(5):
        cache.touch(key(number), needed_in=number * DAY + 3600)
    assert amounts(prune(cache.directory, idle=2.5 * DAY)) == (2, 0, 0, 3)
    assert there(cache) == names(0, 1, 2)


def test_what_a_job_has_announced_is_not_pruned(cache: CacheDirectory) -> None:
    made = announce(CacheDirectory(cache.directory), s2=300.0, s3=2 * DAY, s4=5 * DAY)
    assert amounts(prune(cache.directory, idle=2.5 * DAY)) == (1, 0, 1, 4)
    assert there(cache) == names(0, 1, 2, 3)
    assert amounts(prune(cache.directory, size=2 * SIZE)) == (2, 0, 1, 2)
    assert there(cache) == names(0, 2)
    del made


def test_an_announced_need_decides_what_is_pruned_first(cache: CacheDirectory) -> None:
    made = announce(CacheDirectory(cache.directory), s4=DAY / 2)
    assert amounts(prune(cache.directory, size=3 * SIZE)) == (2, 0, 0, 3)
    assert there(cache) == names(0, 1, 4)
    del made


@pytest.fixture
def used_after_the_scan(cache: CacheDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job uses shard 3 after each scan."""
    scan = Ledger.scan

    def scan_and_use(ledger: Ledger) -> list[Cached]:
        found = scan(ledger)
        if key(3).raw_hash in there(cache):
            age(cache, 3, 5 * DAY)
        return found

    monkeypatch.setattr(Ledger, "scan", scan_and_use)


@pytest.mark.usefixtures("used_after_the_scan")
@pytest.mark.parametrize(("limits", "removed"), [({"idle": 2.5 * DAY}, 1), ({"size": 3 * SIZE}, 2)])
def test_what_a_job_uses_meanwhile_is_not_pruned(cache: CacheDirectory, limits: dict[str, Any], removed: int) -> None:
    assert amounts(prune(cache.directory, **limits)) == (removed, 0, 1, 5 - removed)
    assert names(3) <= there(cache)


@pytest.mark.usefixtures("used_after_the_scan")
def test_what_a_job_uses_meanwhile_is_cleared(cache: CacheDirectory) -> None:
    assert amounts(clear(cache.directory)) == (5, 0, 0, 0)


def test_clear_removes_all_even_what_is_needed_soon(cache: CacheDirectory) -> None:
    cache.touch(key(1), needed_in=5)
    assert amounts(clear(cache.directory)) == (5, 0, 0, 0)
    assert not list(cache.directory.glob("?" * 32))  # the dataset's folder
    assert tally(cache) == 0
    assert fetch(cache, 1) is not Verdict.NO_ROOM


@pytest.mark.parametrize(("name", "text"), [("from.s3:%2F%2Fb", ""), ("from.me", "mine"), ("notes", "")])
def test_only_records_of_urls_are_cleared_with_the_shards(cache: CacheDirectory, name: str, text: str) -> None:
    path = cache.path(key(1)).with_name(name)
    path.write_text(text)
    clear(cache.directory)
    assert path.parent.exists() == path.exists() == (name != "from.s3:%2F%2Fb")


def test_a_dry_run_removes_nothing_and_says_the_same(cache: CacheDirectory) -> None:
    held = cache.open(key(2))
    assert held is not None
    before = set(cache.directory.rglob("*"))
    assert amounts(prune(cache.directory, idle=3.5 * DAY, size=2 * SIZE, dry_run=True)) == (3, 0, 0, 5)
    assert amounts(clear(cache.directory, dry_run=True)) == (4, 1, 0, 5)
    assert set(cache.directory.rglob("*")) == before
    assert amounts(prune(cache.directory, idle=3.5 * DAY, size=2 * SIZE)) == (3, 0, 0, 2)
    assert there(cache) == names(0, 2)


def test_only_the_named_datasets_are_touched(cache: CacheDirectory) -> None:
    def fill(write: Callable[[bytes], object]) -> None:
        write(content(9))

    other = CacheKey("e" * 32, key(9).raw_hash, SIZE)
    cache.fetch(other, fill)
    gc.collect()
    assert amounts(clear(cache.directory, fingerprints={other.fingerprint})) == (1, 0, 0, 0)
    assert amounts(prune(cache.directory, size=1, fingerprints={other.fingerprint})) == (0, 0, 0, 0)
    assert len(there(cache)) == 5


def test_other_files_are_neither_counted_nor_removed(tmp_path: Path) -> None:
    """Somebody put other things into the cache's directory."""
    directory = tmp_path / "home"
    directory.mkdir()
    (directory / filenames.MARK).touch()
    names = ("thesis/text.mdsx", "x.part", f"{'f' * 32}/from.me", f"{'f' * 32}/notes.mdsx", f"{'c' * 32}/from.me")
    precious = [directory / name for name in names]
    for path in precious:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"precious" * SIZE)
        os.utime(path, (0, 0))
    cache = CacheDirectory(directory, 2 * SIZE)
    for number in range(6):
        assert fetch(cache, number) is not Verdict.NO_ROOM
        gc.collect()
    assert usage(cache) == 2 * SIZE
    assert amounts(prune(directory, idle=0.0, size=0)) == (2, 0, 0, 0)
    fetch(cache, 1)
    gc.collect()
    assert amounts(clear(directory)) == (1, 0, 0, 0)
    assert [path.read_bytes() for path in precious] == [b"precious" * SIZE] * 5


def test_what_dead_processes_left_is_pruned(cache: CacheDirectory) -> None:
    part = cache.path(key(7)).with_suffix(".mdsx.part")
    part.write_bytes(bytes(SIZE))
    assert amounts(prune(cache.directory, idle=9 * DAY)) == (1, 0, 0, 5)
    assert not part.exists()


def test_a_read_only_cache_is_a_clear_error(cache: CacheDirectory, tmp_path: Path) -> None:
    let_through(tmp_path)
    for path in (cache.directory, *cache.directory.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    with pytest.raises(mdsx.ForbiddenError, match=r"read-only .* belongs to .*uid \d+"):
        as_another_user(lambda: clear(cache.directory))
    assert len(there(cache)) == 5
    for path in (cache.directory, *cache.directory.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


def test_the_lock_is_released_between_slices(cache: CacheDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    locked, found = Ledger.locked, list[int]()

    @contextmanager
    def watched(ledger: Ledger) -> Iterator[None]:
        found.append(len(there(cache)))  # before it locks, another process could
        with locked(ledger):
            yield

    monkeypatch.setattr("mdsx.storage.cache.removal._SLICE", 0.0)
    monkeypatch.setattr(Ledger, "locked", watched)
    clear(cache.directory)
    assert found == [5, 4, 3, 2, 1, 0]
    fetch(cache, 1)
    fetch(cache, 2)
    gc.collect()
    found.clear()
    monkeypatch.setattr("mdsx.storage.cache.removal._SLICE", 1e9)
    clear(cache.directory)
    assert found == [2, 0]


# --- while jobs read


def remove(directory: Path, chance: random.Random) -> object:
    """Prune, clear or list the cache."""
    time.sleep(chance.uniform(0, 0.01))
    match chance.randrange(4):
        case 0:
            return clear(directory)
        case 1:
            return prune(directory, idle=0.0)
        case 2:
            return prune(directory, size=3 * reading.SIZE)
        case _:
            return contents_of(directory, time.time())


@pytest.mark.slow
def test_readers_are_exact_while_others_remove_and_die(tmp_path: Path, often: Often) -> None:
    directory, limit, chance = tmp_path / "cache", 6 * reading.SIZE, random.Random(3)
    read_all(directory, limit, "a", shards=6)
    with Watch(directory) as watch:
        readers = [Reader(directory, limit, "ab"[number % 2], 12, number) for number in range(3)]
        try:
            for kill in range(often(12, long=150)):
                remover = background(partial(remove, directory, random.Random(kill)))
                wait_for_progress(readers)
                time.sleep(chance.uniform(0, 0.05))
                assert killed(remover) == -9, "it failed"
                assert all(reader.silent < DEADLINE for reader in readers), "it hangs"
        finally:
            ends = [reader.stop(DEADLINE) for reader in readers]
    assert ends == [0, 0, 0]  # every byte was right
    assert 0 < watch.highest <= limit
    read_all(directory, limit, "c", shards=6)  # it needs all the room
    check(directory, limit)
