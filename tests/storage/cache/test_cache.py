"""The cache in one process: admission, leases, the limit, damage."""

from __future__ import annotations

import gc
import os
import pickle
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
import xxhash
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import mdsx
from mdsx.base.system import fcntl
from mdsx.storage.cache import CacheDirectory, CacheKey, Needs, Verdict, clear, prune
from mdsx.storage.cache.contents import contents_of
from mdsx.storage.cache.files import Hold, Write
from mdsx.storage.cache.ledger import Ledger

SIZE = 1000


def content(number: int, size: int = SIZE) -> bytes:
    return (f"shard {number} ".encode() * size)[:size]


def key(number: int, size: int = SIZE) -> CacheKey:
    return CacheKey("f" * 32, xxhash.xxh3_128_hexdigest(content(number, size)), size)


def fetch(
    cache: CacheDirectory, number: int, needed_in: float = 0.0, size: int = SIZE, needs: Needs | None = None
) -> object:
    def fill(write: Write) -> None:
        for start in range(0, size, 300):
            write(content(number, size)[start : start + 300])

    return cache.fetch(key(number, size), fill, needed_in=needed_in, needs=needs or {})


def there(cache: CacheDirectory) -> set[str]:
    return {path.stem for path in cache.directory.rglob("*.mdsx")}


def usage(cache: CacheDirectory) -> int:
    """Return the bytes that the directory holds, with those in flight."""
    return sum(file.size for file in Ledger(cache.directory).scan())


def tally(cache: CacheDirectory) -> int:
    """Return the bytes that the directory holds, as the cache has recorded it."""
    (path,) = cache.directory.glob("tally.*")
    return int(path.suffix[1:])


def fill_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have all writes fail from now on, as on a file system that does not reserve blocks."""

    def refuse(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", refuse)


def names(*numbers: int) -> set[str]:
    return {key(number).raw_hash for number in numbers}


def test_every_process_finds_a_fetched_shard(tmp_path: Path) -> None:
    cache = CacheDirectory(tmp_path / "cache", "10kB")
    assert cache.open(key(1)) is None
    assert cache.is_empty()
    mapped = fetch(cache, 1)
    assert not cache.is_empty()
    assert bytes(memoryview(mapped)) == content(1)  # type: ignore[arg-type]
    other = CacheDirectory(tmp_path / "cache").open(key(1))
    assert other is not None
    assert other[:] == content(1)
    assert usage(cache) == SIZE
    assert [each.urls for each in contents_of(cache.directory, 0.0).datasets] == [()]
    assert os.stat(tmp_path / "cache").st_mode & 0o777 == 0o700


def test_a_shard_that_another_process_made_meanwhile_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, other = (CacheDirectory(tmp_path / "cache", 2 * SIZE) for _ in range(2))
    real, opened = CacheDirectory.open, list[object]()

    def made_just_after(self: CacheDirectory, wanted: CacheKey) -> object:
        found = real(self, wanted)
        opened.append(found)
        if len(opened) == 1:
            fetch(other, 1)
        return found

    monkeypatch.setattr(CacheDirectory, "open", made_just_after)
    found = cache.fetch(key(1), lambda write: pytest.fail("it is there"))
    assert opened[0] is None
    assert bytes(memoryview(found)) == content(1)  # type: ignore[arg-type]


def test_a_shard_that_is_locked_is_not_there_yet(tmp_path: Path) -> None:
    """Another process is finishing or evicting it."""
    cache = CacheDirectory(tmp_path / "cache", 2 * SIZE)
    fetch(cache, 1)
    gc.collect()
    hold = Hold(cache.path(key(1)), os.O_RDWR)
    hold.lock(fcntl.LOCK_EX)
    assert cache.open(key(1)) is None
    hold.release()
    assert cache.open(key(1)) is not None


def test_a_shard_of_another_size_is_made_again(tmp_path: Path) -> None:
    cache = CacheDirectory(tmp_path / "cache", 2 * SIZE)
    fetch(cache, 1)
    gc.collect()
    os.truncate(cache.path(key(1)), SIZE - 1)
    assert cache.open(key(1)) is None
    assert bytes(memoryview(fetch(cache, 1))) == content(1)  # type: ignore[arg-type]


def test_too_many_open_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = CacheDirectory(tmp_path / "cache", 2 * SIZE)
    fetch(cache, 1)

    def refused(*_: object, **__: object) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(mdsx.MdsxError) as raised:
        cache.open(key(1))
    monkeypatch.undo()
    assert raised.value.file == str(cache.path(key(1)))


def test_a_file_of_lengths_is_zeros_that_all_holders_fill_in(tmp_path: Path) -> None:
    cache, wanted = CacheDirectory(tmp_path / "cache", 3 * SIZE), CacheKey("f" * 32, "1" * 32, SIZE, kind="lengths")
    assert not cache.write(wanted, [(0, b"x")])
    first, second = cache.fetch(wanted, None), CacheDirectory(tmp_path / "cache").fetch(wanted, None)
    assert not isinstance(first, Verdict)
    assert not isinstance(second, Verdict)
    assert first[:] == bytes(SIZE)
    assert cache.write(wanted, [(SIZE - 2, b"yz"), (0, b"x")])
    assert (second[0], second[SIZE - 2 :]) == (ord("x"), b"yz")
    assert usage(cache) == SIZE
    path = cache.path(wanted)
    assert os.stat(path).st_mode & 0o777 == 0o600
    fetch(cache, 1)
    fetch(cache, 2)
    assert fetch(cache, 3) is not Verdict.NO_ROOM  # instead of another shard: lengths in use stay
    assert path.exists()
    del first, second
    gc.collect()
    assert not isinstance(fetch(cache, 4, size=3 * SIZE), Verdict)
    assert not path.exists()
    path.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_bytes(bytes(SIZE))
    assert not cache.write(wanted, [(0, b"x")])


@pytest.mark.parametrize("way", ["another size", "a pipe", "a full disk"])
def test_lengths_that_cannot_be_written_are_left(tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, wanted = CacheDirectory(tmp_path / "cache", 3 * SIZE), CacheKey("f" * 32, "1" * 32, SIZE, kind="lengths")
    held = cache.fetch(wanted, None)
    path = cache.path(wanted)
    if way == "another size":
        os.truncate(path, SIZE - 1)
    elif way == "a pipe":
        path.unlink()
        os.mkfifo(path)
    else:
        fill_the_disk(monkeypatch)
    assert not cache.write(wanted, [(0, b"x")])
    assert way == "a pipe" or not path.read_bytes().strip(b"\0")
    del held


def test_a_side_object_counts_is_kept_while_it_is_used_and_evicted(tmp_path: Path) -> None:
    cache, wanted = CacheDirectory(tmp_path / "cache", 3 * SIZE), CacheKey("f" * 32, "1" * 32, 7, kind="side object")

    def fill(write: Write) -> None:
        write(b"pointer")

    mapped = cache.fetch(wanted, fill)
    assert not isinstance(mapped, Verdict)
    assert mapped[:] == b"pointer"
    assert usage(cache) == 7
    fetch(cache, 1)
    (dataset,) = contents_of(tmp_path / "cache", 0.0).datasets
    assert (dataset.shards, dataset.size) == (1, SIZE + 7)
    assert fetch(cache, 2, size=3 * SIZE) is Verdict.NO_ROOM
    del mapped
    gc.collect()
    assert not isinstance(fetch(cache, 2, size=3 * SIZE), Verdict)
    assert not cache.path(wanted).exists()


def test_eviction_is_by_last_use_and_spares_leases(tmp_path: Path) -> None:
    cache = CacheDirectory(tmp_path / "cache", 3 * SIZE)
    leases = {number: fetch(cache, number) for number in (1, 2, 3)}
    assert fetch(cache, 4) is Verdict.NO_ROOM
    assert tally(cache) == usage(cache)
    view = np.frombuffer(leases[2], np.uint8)[100:200]  # type: ignore[call-overload]
    leases.clear()
    gc.collect()
    cache.touch(key(1), needed_in=500)  # the furthest away
    del_4 = fetch(cache, 4)
    assert there(cache) == names(2, 3, 4)
    del del_4
    gc.collect()
    assert fetch(cache, 5, size=2 * SIZE) is not Verdict.NO_ROOM
    assert key(2).raw_hash in there(cache)  # a view of a view keeps the lease
    assert view.tobytes() == content(2)[100:200]


def test_an_unfinished_shard_counts_at_its_full_size(tmp_path: Path) -> None:
    cache = CacheDirectory(tmp_path / "cache", 2 * SIZE)
    seen: list[object] = []

    def fill(write: Write) -> None:
        write(content(1)[:10])
        seen.append(usage(cache))
        seen.append(fetch(cache, 1))
        seen.append(cache.open(key(1)))
        seen.append(fetch(cache, 2, size=SIZE + 1))
        write(content(1)[10:])

    assert not isinstance(cache.fetch(key(1), fill), Verdict)
    assert seen == [SIZE, Verdict.BUSY, None, Verdict.NO_ROOM]


def test_a_shard_is_being_made_until_it_is_there_or_failed(tmp_path: Path) -> None:
    cache, other = (CacheDirectory(tmp_path / "cache", 2 * SIZE) for _ in range(2))
    seen: list[bool] = []

    def fill(write: Write) -> None:
        seen.extend(each.is_being_made(key(1)) for each in (cache, other))
        write(content(1))

    def fail(write: Write) -> None:
        seen.append(other.is_being_made(key(2)))
        raise mdsx.TransportError("lost")

    assert not other.is_being_made(key(1))
    assert not isinstance(cache.fetch(key(1), fill), Verdict)
    with pytest.raises(mdsx.TransportError):
        cache.fetch(key(2), fail)
    assert seen == [True] * 3
    assert not other.is_being_made(key(1))
    assert not other.is_being_made(key(2))


def test_a_shard_of_a_dead_process_is_not_being_made(tmp_path: Path) -> None:
    cache = CacheDirectory(tmp_path / "cache", 2 * SIZE)
    part = cache.path(key(1)).with_suffix(".mdsx.part")
    part.parent.mkdir(parents=True)
    part.write_bytes(bytes(SIZE))
    assert not cache.is_being_made(key(1))


@pytest.mark.parametrize("wrong", ["raises", "short", "long"])
def test_a_failed_fill_leaves_nothing(tmp_path: Path, wrong: str) -> None:
    cache = CacheDirectory(tmp_path / "cache", 2 * SIZE)

    def fill(write: Write) -> None:
        write(content(1)[:-1] if wrong == "short" else content(1))
        if wrong == "long":
            write(b"more")
        if wrong == "raises":
            raise mdsx.CorruptError("damaged")

    with pytest.raises(mdsx.MdsxError):
        cache.fetch(key(1), fill)
    assert usage(cache) == 0
    assert bytes(memoryview(fetch(cache, 1))) == content(1)  # type: ignore[arg-type]


@pytest.mark.parametrize("estimate", [1, SIZE // 2, SIZE])
def test_a_shard_of_unknown_size_counts_with_its_real_size(tmp_path: Path, estimate: int) -> None:
    """The cache makes room for the estimate, then for the shard, and never exceeds its limit."""
    cache = CacheDirectory(tmp_path / "cache", 2 * SIZE)

    def guessed(number: int, size: int = SIZE, estimate: int = estimate) -> object:
        guess = CacheKey("f" * 32, key(number, size).raw_hash, estimate, exact=False)

        def fill(write: Write) -> None:
            write(content(number, size))

        return cache.fetch(guess, fill)

    held = [guessed(1, estimate=2 * SIZE), guessed(2)]
    assert cache.open(CacheKey("f" * 32, key(1).raw_hash, estimate, exact=False)) is not None
    assert [bytes(memoryview(one)) for one in held] == [content(1), content(2)]  # type: ignore[arg-type]
    assert tally(cache) == usage(cache) == 2 * SIZE
    assert guessed(3) is Verdict.NO_ROOM
    held.clear()
    assert bytes(memoryview(guessed(3))) == content(3)  # type: ignore[arg-type]
    assert usage(cache) <= 2 * SIZE
    assert guessed(4, 2 * SIZE + 1) is Verdict.NO_ROOM
    assert Ledger(cache.directory).take_tally() == usage(cache) <= 2 * SIZE


def test_a_right_estimate_evicts_nothing_more(tmp_path: Path) -> None:
    cache = CacheDirectory(tmp_path / "cache", 3 * SIZE)
    fetch(cache, 1)
    gc.collect()
    estimate = CacheKey("f" * 32, key(2).raw_hash, SIZE, exact=False)

    def fill(write: Write) -> None:
        write(content(2))

    assert not isinstance(cache.fetch(estimate, fill), Verdict)
    assert there(cache) == names(1, 2)


def test_a_file_that_took_the_place_of_an_unfinished_shard_stays(tmp_path: Path) -> None:
    """Somebody removed the directory, and another process makes the shard too."""
    cache = CacheDirectory(tmp_path / "cache", 3 * SIZE)
    part = cache.path(key(1)).with_suffix(".mdsx.part")

    def fill(write: Write) -> None:
        part.unlink()
        part.write_bytes(b"other")
        raise mdsx.TransportError("lost")

    with pytest.raises(mdsx.TransportError, match="lost"):
        cache.fetch(key(1), fill)
    assert part.read_bytes() == b"other"
    assert tally(cache) == SIZE  # until the next scan


def test_a_dead_processs_partial_file_is_taken_over(tmp_path: Path) -> None:
    cache = CacheDirectory(tmp_path / "cache", 2 * SIZE)
    fetch(cache, 1)
    gc.collect()
    for number in (1, 2):
        part = tmp_path / "cache" / key(2).fingerprint / f"{key(number).raw_hash}.mdsx.part"
        part.write_bytes(b"\0" * SIZE)
    for recorded in (tmp_path / "cache").glob("tally.*"):
        recorded.unlink()  # as after a kill during an admission
    assert not isinstance(fetch(cache, 2), Verdict)
    assert there(cache) == names(1, 2)
    assert tally(cache) == usage(cache) == 2 * SIZE


def test_the_smallest_live_limit_applies(tmp_path: Path) -> None:
    first = CacheDirectory(tmp_path / "cache", 5 * SIZE)
    for number in range(5):
        fetch(first, number)
    gc.collect()
    assert usage(first) == 5 * SIZE
    second = CacheDirectory(tmp_path / "cache", 2 * SIZE)
    assert second.limit == first.limit == 2 * SIZE
    assert usage(first) <= 2 * SIZE


def test_the_default_limit_is_a_share_of_free_space(tmp_path: Path) -> None:
    first = CacheDirectory(tmp_path / "cache")
    assert first.limit > 10**6
    assert CacheDirectory(tmp_path / "cache").limit == first.limit


def test_a_limit_that_a_shard_fills_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "9")
    monkeypatch.setenv("WORLD_SIZE", "16")
    monkeypatch.setenv("LOCAL_RANK", "0")  # of the second machine, which has a cache of its own
    cache = CacheDirectory(tmp_path / "cache", SIZE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.check(SIZE, "data")
    with pytest.raises(mdsx.UsageError, match=r"the cache's limit is 1 kB, below the largest shard \(1.1 kB\)"):
        cache.check(SIZE + 100, "data")
    other = CacheDirectory(tmp_path / "cache", SIZE - 1)  # another job
    assert other.limit == SIZE - 1
    with pytest.warns(UserWarning, match="may hold 999 B, below the largest shard"):
        cache.check(SIZE, "data")


def test_discarding_a_damaged_shard_frees_its_room(tmp_path: Path) -> None:
    cache = CacheDirectory(tmp_path / "cache", SIZE)
    fetch(cache, 1)
    for _ in range(2):  # it is no longer there
        cache.discard(key(1))
        assert tally(cache) == 0
    assert cache.open(key(1)) is None
    assert not isinstance(fetch(cache, 2), Verdict)


def test_a_cache_removed_while_in_use_is_recreated(tmp_path: Path) -> None:
    cache = CacheDirectory(tmp_path / "cache", 3 * SIZE)
    mapped = fetch(cache, 1)
    os.rename(tmp_path / "cache", tmp_path / "removed")
    assert cache.open(key(1)) is None
    assert not isinstance(fetch(cache, 1), Verdict)
    assert bytes(memoryview(mapped)) == content(1)  # type: ignore[arg-type]
    assert cache.limit == 3 * SIZE


def test_the_cache_works_across_pickle_and_threads(tmp_path: Path) -> None:
    used = CacheDirectory(tmp_path / "cache", 4 * SIZE)
    fetch(used, 1)
    cache = pickle.loads(pickle.dumps(used))
    errors: list[str] = []

    def work(seed: int) -> None:
        for step in range(60):
            number = (seed * 7 + step * step) % 9
            mapped = fetch(cache, number)
            if not isinstance(mapped, Verdict) and bytes(memoryview(mapped)) != content(number):  # type: ignore[arg-type]
                errors.append(f"wrong bytes of {number}")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors
    gc.collect()
    assert usage(cache) <= 4 * SIZE


class CacheMachine(RuleBasedStateMachine):
    """Compare two caches on one directory with a model: right bytes, limit kept, leased files stay."""

    numbers = st.integers(0, 5)
    which = st.integers(0, 1)

    def __init__(self) -> None:
        super().__init__()
        import tempfile

        self.place = tempfile.TemporaryDirectory()
        self.caches = [CacheDirectory(self.place.name, 3 * SIZE) for _ in range(2)]
        self.leases: dict[int, object] = {}

    @rule(number=numbers, which=which, needed_in=st.sampled_from([0.0, 5.0, 50.0]))
    def fetch(self, number: int, which: int, needed_in: float) -> None:
        before = there(self.caches[0])
        found = fetch(self.caches[which], number, needed_in)
        if isinstance(found, Verdict):
            assert found is Verdict.NO_ROOM
            assert not names(number) & before
            assert needed_in or len(self.leases) == 3
        else:
            assert found[:] == content(number)  # type: ignore[index]
            self.leases[number] = found

    @rule(number=numbers, which=which)
    def open(self, number: int, which: int) -> None:
        found = self.caches[which].open(key(number))
        assert (found is not None) == bool(names(number) & there(self.caches[0]))
        if found is not None:
            assert found[:] == content(number)

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def end_lease(self, data: st.DataObject) -> None:
        del self.leases[data.draw(st.sampled_from(sorted(self.leases)))]
        gc.collect()

    @rule(number=numbers, needed_in=st.sampled_from([0.0, 10.0, 100.0]))
    def touch(self, number: int, needed_in: float) -> None:
        self.caches[0].touch(key(number), needed_in)

    @precondition(lambda self: (self.caches[0].directory / "lock").exists())
    @rule(kept=st.integers(0, 3))
    def prune(self, kept: int) -> None:
        before = usage(self.caches[0])
        found = prune(self.caches[0].directory, size=kept * SIZE)
        assert found.left.size == usage(self.caches[0]) == before - found.removed.size
        assert found.left.files <= max(kept, found.held.files + found.needed.files)
        assert found.held.files <= len(self.leases)

    @precondition(lambda self: (self.caches[0].directory / "lock").exists())
    @rule()
    def clear(self) -> None:
        clear(self.caches[0].directory)
        assert there(self.caches[0]) == names(*self.leases)

    @rule()
    def die_in_mid_admission(self) -> None:
        for recorded in Path(self.place.name).glob("tally.*"):
            recorded.unlink()

    @invariant()
    def the_limit_holds_and_leased_shards_are_there(self) -> None:
        assert usage(self.caches[0]) <= 3 * SIZE
        assert names(*self.leases) <= there(self.caches[0])

    def teardown(self) -> None:
        self.leases.clear()
        gc.collect()
        self.place.cleanup()


CacheMachine.TestCase.settings = settings(max_examples=12, stateful_step_count=25, deadline=None)
TestCacheMachine = CacheMachine.TestCase


def test_a_death_during_admission_leaves_a_right_tally(tmp_path: Path) -> None:
    """The process made the file, but did not yet record how full the cache is."""
    cache = CacheDirectory(tmp_path / "cache", 2 * SIZE)
    fetch(cache, 1)
    child = os.fork()
    if child == 0:
        Ledger.write_tally = lambda self, total: os._exit(9)  # type: ignore[method-assign]
        fetch(cache, 2)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert not list(cache.directory.glob("tally.*"))
    for number in (3, 4, 5):
        fetch(cache, number)
        gc.collect()
        assert sum(path.stat().st_size for path in cache.directory.rglob("*") if path.is_file()) <= 2 * SIZE


def test_a_shard_evicted_during_opening_is_a_miss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process may remove the file between its opening and locking: nobody would count its bytes."""
    cache = CacheDirectory(tmp_path / "cache", 2 * SIZE)
    fetch(cache, 1)
    gc.collect()
    try_lock = Hold.try_lock

    def evicted_before(self: Hold, kind: int) -> bool:
        for path in cache.directory.rglob("*.mdsx"):
            path.unlink()
        return try_lock(self, kind)

    monkeypatch.setattr(Hold, "try_lock", evicted_before)
    assert cache.open(key(1)) is None


def test_a_shard_that_cannot_be_mapped_is_an_error_of_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = CacheDirectory(tmp_path / "cache", 2 * SIZE)
    fetch(cache, 1)
    gc.collect()

    def refuse(*_: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr("mdsx.storage.cache.files.map_file", refuse)
    with pytest.raises(mdsx.TransportError, match="the cache failed: Cannot allocate memory"):
        fetch(cache, 1)
