"""All processes evict by what all of them announce."""

from __future__ import annotations

import gc
import os
import signal
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from mdsx.storage.cache import (
    Announced,
    Announcement,
    Cached,
    CacheDirectory,
    Evictor,
    Needs,
    ShardNames,
    ShardNeeds,
    Verdict,
    filenames,
)
from mdsx.storage.cache.announced import Announcements, heads_of, soonest
from mdsx.storage.cache.contents import contents_of
from tests.forks import forked
from tests.storage.cache.test_cache import SIZE, fetch, key, names, there, usage
from tests.storage.cache.test_eviction import FINGERPRINT, known
from tests.storage.cache.test_eviction import full as shards_only

full = partial(shards_only, beside=200)  # room for announcements


@pytest.fixture(autouse=True)
def _every_try_scans(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine, a scan takes long, and then others come later."""
    monkeypatch.setattr("mdsx.storage.cache.eviction._RETRY", 0.0)


def announce(cache: CacheDirectory, epoch: float = 0.0, **seconds: float) -> Announcement:
    """Announce that shard "sk" is needed in seconds["sk"] seconds."""
    shards, heads = names_of(*seconds).by_head(np.ones(len(seconds), np.bool_))
    made = cache.announce(FINGERPRINT, heads, 0)
    assert made is not None
    made.update(np.array([*seconds.values()])[shards], epoch)
    return made


def names_of(*shards: str) -> ShardNames:
    hashes = b"".join(bytes.fromhex(key(int(shard[1:])).raw_hash) for shard in shards)
    return ShardNames(np.frombuffer(hashes, np.uint8).reshape(-1, 16))


def other(cache: CacheDirectory) -> CacheDirectory:
    """Return the cache as another process has it."""
    return CacheDirectory(cache.directory)


def announced(cache: CacheDirectory) -> list[Announced]:
    return Announcements(cache.directory / filenames.NEEDS).scan().get(FINGERPRINT, [])


def test_a_shard_that_another_process_announces_stays(tmp_path: Path) -> None:
    cache, needs = full(tmp_path, 1, 2, 3), known(s1=10, s2=30, s3=20)
    made = announce(other(cache), s2=5.0, s1=50.0, s9=0.0)
    assert not isinstance(fetch(cache, 4, needed_in=15.0, needs=needs), Verdict)
    assert there(cache) == names(1, 2, 4)
    assert fetch(cache, 5, needed_in=15.0, needs=needs) is Verdict.NO_ROOM
    made.withdraw()
    assert not isinstance(fetch(cache, 5, needed_in=15.0, needs=needs), Verdict)
    assert there(cache) == names(1, 4, 5)


def test_an_announced_need_replaces_what_a_file_says(tmp_path: Path) -> None:
    """Paces differ: what a file says in seconds is not compared with a share of an epoch."""
    cache, needs = full(tmp_path, 1, 2), known(s1=20, s2=30)
    other(cache).touch(key(2), 1.0)
    made = announce(other(cache), s1=90.0, s2=90.0)
    assert not isinstance(fetch(cache, 3, needed_in=15.0, needs=needs), Verdict)
    assert there(cache) == names(1, 3)
    del made


def test_needs_of_a_dataset_that_this_process_does_not_read_count(tmp_path: Path) -> None:
    cache = full(tmp_path, 1, 2)
    made = announce(other(cache), epoch=1000.0, s1=900.0, s2=5.0)
    cache.touch(key(1), 1.0)
    assert not isinstance(fetch(cache, 3, needed_in=15.0), Verdict)
    assert there(cache) == names(2, 3)
    del made


def test_a_need_announced_since_the_scan_keeps_a_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdsx.storage.cache.eviction._RESCAN", 1e9)
    cache, needs = full(tmp_path, 1, 2, 3, 4), known(s1=400, s2=300, s3=200, s4=100)
    made = announce(other(cache), s2=300.0)
    assert not isinstance(fetch(cache, 5, needed_in=1.0, needs=needs), Verdict)
    gc.collect()
    made.update(np.array([2.0]), 0.0)
    assert not isinstance(fetch(cache, 6, needed_in=1.0, needs=needs), Verdict)
    assert there(cache) == names(2, 4, 5, 6)


def test_epochs_are_compared_and_not_paces(tmp_path: Path) -> None:
    """Another process believes that it is ten times as fast. It needs shard 2 half an epoch later than this one."""
    cache = full(tmp_path, 1, 2)
    names_, seconds = names_of("s1", "s2"), np.array([40.0, 60.0])
    needs = {FINGERPRINT: ShardNeeds(names_, seconds, epoch=100.0)}
    made = announce(other(cache), epoch=10.0, s1=9.0, s2=5.0)
    assert not isinstance(fetch(cache, 3, needed_in=15.0, needs=needs), Verdict)
    assert there(cache) == names(1, 3)
    del made


def test_what_is_announced_ends_with_its_process(tmp_path: Path) -> None:
    cache = CacheDirectory(tmp_path / "cache", 10 * SIZE)
    told, pipe = os.pipe()
    child = os.fork()
    if child == 0:
        made = announce(cache, s1=1.0)
        os.write(pipe, b"1")
        signal.pause()
        made.withdraw()
    assert os.read(told, 1)
    assert len(announced(cache)) == 1
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert announced(cache) == []
    assert list((cache.directory / filenames.NEEDS).iterdir()) == []


def test_a_child_neither_changes_nor_withdraws_what_is_announced(tmp_path: Path) -> None:
    cache = CacheDirectory(tmp_path / "cache", 10 * SIZE)
    made = announce(cache, s1=1.0)

    def change() -> None:
        made.update(np.array([9.0]), 0.0)
        made.withdraw()

    forked(change)
    (found,) = announced(cache)
    assert found.seconds.tolist() == [1.0]
    made.update(np.array([2.0]), 0.0)
    assert found.seconds.tolist() == [2.0]


def test_an_announcement_that_is_dropped_is_withdrawn(tmp_path: Path) -> None:
    cache = CacheDirectory(tmp_path / "cache", 10 * SIZE)
    made = announce(cache, s1=1.0)
    del made
    assert list((cache.directory / filenames.NEEDS).iterdir()) == []


def test_nothing_is_announced_after_it_is_withdrawn(tmp_path: Path) -> None:
    cache = CacheDirectory(tmp_path / "cache", 10 * SIZE)
    made = announce(cache, s1=1.0)
    (found,) = announced(cache)
    made.withdraw()
    for number in range(20):  # one of them has the descriptor now
        (tmp_path / str(number)).touch()
    files = [(tmp_path / str(number)).open("r+b") for number in range(20)]
    made.update(np.array([2.0]), 0.0)
    made.withdraw()
    assert (found.seconds.tolist(), found.epoch.tolist()) == ([np.inf], [0.0])
    for file in files:
        assert file.read() == b""
        file.close()


def test_nothing_is_needed_before_the_first_update(tmp_path: Path) -> None:
    cache = CacheDirectory(tmp_path / "cache", 10 * SIZE)
    made = cache.announce(FINGERPRINT, np.array([5], np.uint64), 0)
    (found,) = announced(cache)
    assert (found.heads.tolist(), found.seconds.tolist(), found.epoch.tolist()) == ([5], [np.inf], [0.0])
    del made


def test_announcements_are_neither_contents_nor_foreign(tmp_path: Path) -> None:
    cache = full(tmp_path, 1, 2)
    made = announce(cache, s1=1.0)
    found = contents_of(cache.directory, 0.0)
    assert found.foreign == ()
    assert found.size == 2 * SIZE
    del made


def test_an_announcement_makes_room_for_itself(tmp_path: Path) -> None:
    """Shards and announcements together keep the limit, and a withdrawn one leaves its room to shards."""
    cache = CacheDirectory(tmp_path / "cache", 3 * SIZE)
    mapped = [fetch(cache, number) for number in (1, 2, 3)]
    del mapped[1:]
    gc.collect()
    heads = names_of("s1").by_head(np.ones(1, np.bool_))[1]
    made = cache.announce(FINGERPRINT, heads, 0, known(s1=0.1, s2=0.9, s3=0.5))
    assert made is not None
    assert there(cache) == names(1, 3)
    assert fetch(cache, 2, needed_in=1.0, needs=known(s1=0.5, s2=1, s3=0.5)) is Verdict.NO_ROOM
    made.withdraw()
    assert not isinstance(fetch(cache, 2, needed_in=1.0), Verdict)
    assert there(cache) == names(1, 2, 3)


def test_an_announcement_that_fits_evicts_nothing(tmp_path: Path) -> None:
    cache = full(tmp_path, 1, 2, beside=24)
    made = cache.announce(FINGERPRINT, np.zeros(1, np.uint64), 0)
    assert made is not None
    assert there(cache) == names(1, 2)


def test_nothing_is_announced_where_all_shards_are_held(tmp_path: Path) -> None:
    cache = CacheDirectory(tmp_path / "cache", 2 * SIZE)
    mapped = [fetch(cache, number) for number in (1, 2)]
    assert cache.announce(FINGERPRINT, np.zeros(1, np.uint64), 0) is None
    assert there(cache) == names(1, 2)
    assert usage(cache) == 2 * SIZE
    del mapped


def test_announcements_take_at_most_a_32nd_of_the_limit(tmp_path: Path) -> None:
    """Otherwise they would push out the shards that they are about."""
    cache = CacheDirectory(tmp_path / "cache", 32 * 56)
    made = announce(cache, s1=1.0)
    assert cache.announce(FINGERPRINT, np.zeros(2, np.uint64), 0) is None
    assert cache.announce(FINGERPRINT, np.zeros(1, np.uint64), 0) is not None
    del made


def test_what_dead_processes_announced_leaves_its_share_to_others(tmp_path: Path) -> None:
    cache = CacheDirectory(tmp_path / "cache", 32 * 24)
    made = announce(cache, s1=1.0)
    left = (cache.directory / filenames.NEEDS) / filenames.needs(FINGERPRINT, "0" * 16)
    (path,) = (cache.directory / filenames.NEEDS).iterdir()
    os.link(path, left)
    made.withdraw()
    assert left.exists()
    assert cache.announce(FINGERPRINT, np.zeros(1, np.uint64), 0) is not None
    assert not left.exists()


def test_nothing_is_announced_in_a_cache_of_one_shard(tmp_path: Path) -> None:
    """Otherwise the shard would no longer fit."""
    cache = CacheDirectory(tmp_path / "cache", SIZE)
    assert cache.announce(FINGERPRINT, np.zeros(1, np.uint64), SIZE) is None
    assert not isinstance(fetch(cache, 1), Verdict)


@pytest.mark.parametrize("content", [b"", b"x", bytes(8), bytes(16), bytes(17), b"\xff" * 24])
def test_a_damaged_announcement_keeps_nothing(tmp_path: Path, content: bytes) -> None:
    cache, needs = full(tmp_path, 1), known(s1=10)
    made = announce(cache, s1=1.0)
    (path,) = (cache.directory / filenames.NEEDS).iterdir()
    path.write_bytes(content)
    assert not isinstance(fetch(cache, 2, needed_in=5.0, needs=needs), Verdict)
    del made


def test_only_files_of_announcements_are_removed(tmp_path: Path) -> None:
    cache = CacheDirectory(tmp_path / "cache", 10 * SIZE)
    announce(cache, s1=1.0).withdraw()
    folder = cache.directory / filenames.NEEDS
    (folder / "mine").touch()
    assert announced(cache) == []
    assert [path.name for path in folder.iterdir()] == ["mine"]
    elsewhere = tmp_path / "elsewhere"
    folder.rename(elsewhere)
    precious = elsewhere / filenames.needs(FINGERPRINT, "0" * 16)
    precious.write_bytes(bytes(24))
    folder.symlink_to(elsewhere)
    assert announced(cache) == []
    assert Announcements(folder).size() == 0
    assert precious.exists()
    assert cache.announce(FINGERPRINT, np.zeros(0, np.uint64), 0) is None


def test_without_shards_nothing_is_announced() -> None:
    nobody = Announced(np.zeros(1), np.zeros(0, np.uint64), np.zeros(0))
    heads = np.array([0, 7], np.uint64)
    assert nobody.of(heads, 1.0).tolist() == [np.inf, np.inf]
    some = Announced(np.ones(1), np.array([7], np.uint64), np.array([3.0]))
    assert soonest([nobody, some], heads, 2.0).tolist() == [np.inf, 6.0]
    assert heads_of(np.zeros((2, 16), np.uint8)).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("theirs", "epoch", "expected"),
    [
        (2.0, 4.0, [0.0, 6.0, np.inf, np.inf]),
        (2.0, 1.0, [0.0, 1.5, np.inf, np.inf]),
        (2.0, 0.0, [0.0, 3.0, np.inf, np.inf]),  # an unknown epoch
        (0.0, 4.0, [0.0, 3.0, np.inf, np.inf]),
        (np.inf, 4.0, [0.0, 3.0, np.inf, np.inf]),
    ],
)
def test_needs_are_scaled_to_the_readers_epoch(theirs: float, epoch: float, expected: list[float]) -> None:
    heads = np.array([1, 2, 3, 4], np.uint64)
    damaged = np.array([0.0, 3.0, -1.0, np.nan])
    assert Announced(np.array([theirs]), heads, damaged).of(heads, epoch).tolist() == expected


# --- as a state machine

SHARDS, PROCESSES, ROOM = 8, 3, 4
PATHS = [f"/cache/{FINGERPRINT}/{filenames.shard(key(number).raw_hash)}" for number in range(SHARDS)]
NAMES = names_of(*(f"s{number}" for number in range(SHARDS)))


class Memory:
    """Files in memory."""

    def __init__(self) -> None:
        self.paths: set[str] = set()
        self.leased: set[str] = set()
        self.needs: dict[int, Announced] = {}

    def scan(self) -> list[Cached]:
        return [Cached(path, 1, 0.0) for path in sorted(self.paths)]

    def announced(self) -> dict[str, list[Announced]]:
        return {FINGERPRINT: [*self.needs.values()]}

    def look_at(self, path: str) -> Cached | None:
        return Cached(path, 1, 0.0) if path in self.paths else None

    def evict(self, path: str) -> bool:
        if path not in self.leased:
            self.paths.discard(path)
        return path not in self.leased

    def set_next_use(self, path: str, then: float) -> None:
        return

    def time(self) -> float:
        return 0.0

    def monotonic(self) -> float:
        return 0.0


class Later(Memory):
    """Files with a clock. A scan takes a second."""

    now = 0.0

    def scan(self) -> list[Cached]:
        self.now += 1.0
        return super().scan()

    def monotonic(self) -> float:
        return self.now


def test_a_need_that_came_nearer_since_the_scan_is_ranked_among_the_others() -> None:
    def needs(*seconds: float) -> Needs:
        return {FINGERPRINT: ShardNeeds(NAMES, np.array([*seconds, *[1000.0] * (SHARDS - len(seconds))]))}

    files = Later()
    files.paths = set(PATHS[:3])
    evictor = Evictor(files)
    evictor.scan(needs(100, 25, 35))
    files.now += 10
    assert evictor.make_room(3, 1, 2, 1.0, needs(20, 15, 25)) == 1
    assert files.paths == {PATHS[1]}


@pytest.mark.parametrize("why", ["vanished", "leased"])
def test_what_is_not_evicted_frees_nothing(why: str) -> None:
    files, needs = Memory(), {FINGERPRINT: ShardNeeds(NAMES, np.arange(SHARDS, 0.0, -1.0))}
    files.paths = set(PATHS[:3])
    evictor = Evictor(files)
    evictor.scan(needs)
    if why == "vanished":
        files.paths.remove(PATHS[0])
    else:
        files.leased.add(PATHS[0])
    assert evictor.make_room(3, 1, 3, 0.0, needs) == 2
    assert files.paths == ({PATHS[2]} if why == "vanished" else {PATHS[0], PATHS[2]})


class Processes(RuleBasedStateMachine):
    """Processes read, announce, end and make room as they like: a need of any process that lives keeps a shard."""

    def __init__(self) -> None:
        super().__init__()
        self.files = Memory()
        self.evictors = [Evictor(self.files) for _ in range(PROCESSES)]
        self.needs = [np.full(SHARDS, 1000.0) for _ in range(PROCESSES)]

    @rule(process=st.integers(0, PROCESSES - 1), shard=st.integers(0, SHARDS - 1), seconds=st.integers(0, 1000))
    def plan(self, process: int, shard: int, seconds: int) -> None:
        self.needs[process][shard] = seconds

    @rule(process=st.integers(0, PROCESSES - 1), epoch=st.sampled_from([10.0, 1000.0]))
    def announce(self, process: int, epoch: float) -> None:
        """Its own pace does not matter."""
        shards, heads = NAMES.by_head(np.ones(SHARDS, np.bool_))
        seconds = self.needs[process][shards] * epoch / 1000.0
        self.files.needs[process] = Announced(np.array([epoch]), heads, seconds)

    @rule(process=st.integers(0, PROCESSES - 1))
    def end(self, process: int) -> None:
        self.files.needs.pop(process, None)

    @rule(shard=st.integers(0, SHARDS - 1))
    def lease(self, shard: int) -> None:
        self.files.leased ^= {PATHS[shard]}

    @rule(process=st.integers(0, PROCESSES - 1), shard=st.integers(0, SHARDS - 1))
    def bring(self, process: int, shard: int) -> None:
        """Bring a shard, as a process does that looks at the cache now."""
        if PATHS[shard] in self.files.paths:
            return
        before, own = set(self.files.paths), self.needs[process]
        needed_in = max(float(own[shard]), 0.001)
        needs: Needs = {FINGERPRINT: ShardNeeds(NAMES, own, 1000.0)}
        self.evictors[process].scan(needs)
        total = self.evictors[process].make_room(len(before), 1, ROOM, needed_in, needs)
        assert total == len(self.files.paths)
        evicted = before - self.files.paths
        soonest_of = {path: self.soonest(process, number) for number, path in enumerate(PATHS)}
        for path in evicted:
            assert path not in self.files.leased
            assert soonest_of[path] > needed_in
            stay = self.files.paths - self.files.leased
            assert all(soonest_of[path] >= soonest_of[other] - 1e-6 for other in stay)
        if total < ROOM:
            self.files.paths.add(PATHS[shard])
        else:
            assert all(path in self.files.leased or soonest_of[path] <= needed_in + 1e-6 for path in self.files.paths)

    def soonest(self, process: int, shard: int) -> float:
        """Return when any process needs a shard, in seconds of `process`, as it knows it."""
        found = float(self.needs[process][shard])
        for each in self.files.needs.values():
            (seconds,) = each.of(NAMES.by_head(np.arange(SHARDS) == shard)[1], 1000.0)
            found = min(found, float(seconds))
        return found


TestProcesses = Processes.TestCase
TestProcesses.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
