"""Open shards: bounded over all datasets of a process, closed in a forked child, with errors at the limit."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pickle
import resource
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mdsx
from mdsx.datasets import excerpt_of
from mdsx.format import Index
from mdsx.shards import opened as opened_module
from mdsx.storage.cache import held
from tests.forks import forked

N, PER_SHARD, SIZE = 400, 4, 272


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The same samples, plain and compressed: compressed ones are read through the cache."""
    folder = tmp_path_factory.mktemp("datasets")
    for compression in (None, "zstd"):
        url = folder / str(compression)
        with mdsx.Writer(url, {"id": "int64", "text": "str"}, shard_size=SIZE, compression=compression) as out:
            for number in range(N):
                out.write({"id": number, "text": f"{number:04}"})
    assert set(excerpt_of(mdsx.Dataset(folder / "None")).shards.index.counts.tolist()) == {PER_SHARD}
    return str(folder / "None"), str(folder / "zstd")


def read_all(data: mdsx.Dataset) -> None:
    assert [int(data[number]["id"]) for number in range(N)] == list(range(N))
    assert data.take(range(N))["text"] == [f"{number:04}" for number in range(N)]


def with_limit(files: int, work: Callable[[], Any]) -> Any:
    def limited() -> Any:
        for name in os.listdir("/proc/self/fd"):  # what earlier tests have left open, but for the pipe of the answer
            with contextlib.suppress(OSError):
                if int(name) > 2 and not stat.S_ISFIFO(os.fstat(int(name)).st_mode):
                    os.close(int(name))
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
        return work()

    return forked(limited)


def opened(data: mdsx.Dataset) -> int:
    return sum(excerpt_of(data).shards.is_open(shard) for shard in range(N // PER_SHARD))


def leased(cache: Path) -> int:
    count = 0
    for path in cache.glob("*/*.mdsx"):
        with open(path, "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                count += 1
    return count


def test_all_datasets_share_the_leases_of_their_process(urls: tuple[str, str], tmp_path: Path) -> None:
    def work() -> tuple[int, int]:
        several = [mdsx.Dataset(urls[1], cache=mdsx.Cache(tmp_path / "cache", limit="1GB")) for _ in range(4)]
        for number in range(N):
            for data in several:
                assert data[number]["id"] == number
        return held(), sum(opened(data) > 0 for data in several)

    leases, in_use = with_limit(160, work)
    assert leases <= 20
    assert in_use == 4


def test_mappings_are_bounded_too(urls: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opened_module, "MAPPINGS", 10)
    several = [mdsx.Dataset(urls[0]) for _ in range(4)]
    for data in several:
        read_all(data)
    assert sum(map(opened, several)) <= 10


def test_the_least_recently_used_is_closed(urls: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    data = mdsx.Dataset(urls[0])
    monkeypatch.setattr(opened_module, "mapped_files", lambda: 10_000 + opened(data))
    monkeypatch.setattr(opened_module, "MAPPINGS", 10_010)
    for shard in range(30):
        data[shard * PER_SHARD]
        data[0]
    assert excerpt_of(data).shards.is_open(0)
    assert not excerpt_of(data).shards.is_open(10)


def test_a_forked_child_holds_no_lease_and_keeps_reading(urls: tuple[str, str], tmp_path: Path) -> None:
    data = mdsx.Dataset(urls[1], cache=mdsx.Cache(tmp_path / "cache", limit="1GB"))
    read_all(data)
    assert leased(tmp_path / "cache") > 10
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.write(ready[1], b"x")
            os.read(go[0], 1)
            read_all(data)  # the parent's open shards are evicted now
            status = 0
        finally:
            os._exit(status)
    os.read(ready[0], 1)
    del data
    try:
        assert leased(tmp_path / "cache") == 0  # while the child lives
        other = mdsx.Dataset(urls[1], cache=mdsx.Cache(tmp_path / "cache", limit=5 * SIZE))
        other[0]
        assert sum(path.stat().st_size for path in (tmp_path / "cache").glob("*/*.mdsx")) <= 5 * SIZE
    finally:
        os.write(go[1], b"x")
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_child_closes_what_its_parent_had_open(urls: tuple[str, str]) -> None:
    data = mdsx.Dataset(urls[0])
    read_all(data)
    assert forked(lambda: "None" in Path("/proc/self/maps").read_text()) is False


def verified(data: mdsx.Dataset, monkeypatch: pytest.MonkeyPatch, *opened: int) -> Callable[[], list[int]]:
    """Return a function that opens shards of a dataset, and returns which of them it verified as a whole."""
    shards, found, verify = excerpt_of(data).shards, list[int](), Index.verify

    def noted(self: Index, shard: int, *args: Any, **how: Any) -> None:
        found.append(shard)
        verify(self, shard, *args, **how)

    monkeypatch.setattr(Index, "verify", noted)

    def work() -> list[int]:
        for shard in opened:
            assert shards.open(shard, whole=True)
        return found

    return work


def test_a_check_counts_in_processes_forked_later(urls: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """As the workers of the next epoch are, which would read each shard once more for it."""
    data = mdsx.Dataset(urls[0])
    assert forked(verified(data, monkeypatch, 0, 1)) == [0, 1]
    assert forked(verified(data, monkeypatch, 0, 1, 2)) == [2]
    copy = pickle.loads(pickle.dumps(data))
    assert forked(verified(copy, monkeypatch, 0)) == [0]


def test_a_shard_that_changed_since_is_verified_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with mdsx.Writer(tmp_path, {"id": "int64", "text": "str"}, shard_size=SIZE) as out:
        for number in range(N):
            out.write({"id": number, "text": f"{number:04}"})
    data = mdsx.Dataset(tmp_path)
    assert forked(verified(data, monkeypatch, 0)) == [0]
    path = tmp_path / "shard.00000.mdsx"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(mdsx.CorruptError):
        forked(verified(data, monkeypatch, 0))


@pytest.mark.parametrize("kind", [0, 1])
def test_too_many_open_files_raise_naming_the_limit(urls: tuple[str, str], tmp_path: Path, kind: int) -> None:
    def work() -> str:
        data = mdsx.Dataset(urls[kind], cache=mdsx.Cache(tmp_path / "cache", limit="1GB"))
        data[0]
        users = []
        try:
            while True:
                users.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            pass
        with pytest.raises(mdsx.TransportError) as caught:
            data[N - 1]
        for each in users:
            os.close(each)
        assert data[N - 1]["id"] == N - 1
        return str(caught.value)

    message = with_limit(100, work)
    assert "at most 100" in message
    assert "ulimit -n" in message


def test_other_jobs_can_evict_shards_a_dataset_read(urls: tuple[str, str], tmp_path: Path) -> None:
    limit = 20 * SIZE
    data = mdsx.Dataset(urls[1], cache=mdsx.Cache(tmp_path / "cache", limit=limit))
    for number in range(N):
        assert data[number]["id"] == number
        assert excerpt_of(data).shards.is_open(number // PER_SHARD)  # not by range for ever
    assert leased(tmp_path / "cache") <= 20 // 8 + 1
    other = mdsx.Dataset(urls[1], cache=mdsx.Cache(tmp_path / "cache", limit=limit))
    for number in range(20 * PER_SHARD):
        assert other[number]["id"] == number
        assert excerpt_of(other).shards.is_open(number // PER_SHARD)


def test_a_dataset_evicts_its_own_shards(urls: tuple[str, str], tmp_path: Path) -> None:
    """Even if its share is larger than what others leave of the cache."""
    data = mdsx.Dataset(urls[1], cache=mdsx.Cache(tmp_path / "cache", limit="1MB"))
    for number in range(40):
        data[number]
    small = mdsx.Dataset(urls[1], cache=mdsx.Cache(tmp_path / "cache", limit=2 * SIZE))  # counts for all
    small[N - 1]
    del small
    data[N - 1]
    assert excerpt_of(data).shards.is_open(N // PER_SHARD - 1)
