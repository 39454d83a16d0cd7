"""A large index is downloaded once for all processes of a node, and never trusted unchecked."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from mdsx.format import filenames
from mdsx.shards import Shards, index_keys, shared_files
from mdsx.shards.shared_files import get_shared
from mdsx.storage import open_storage
from mdsx.storage.cache import Cache, CacheDirectory, clear, contents_of, fingerprints_of
from tests.fork_server import call_all, start
from tests.waiting import wait_until
from tools.fault_proxy import Fault, Proxy, Rule, flip, stall, status
from tools.scale.made import Made, make
from tools.servers.s3 import S3Server

PROCESSES = 8


@pytest.fixture(scope="module")
def made() -> Made:
    return make()


@pytest.fixture(scope="module")
def large(made: Made) -> bytes:
    return made.whole(30, 1000)


@pytest.fixture
def url(s3_url: str, large: bytes) -> str:
    return stored(s3_url, large)


def stored(url: str, index: bytes) -> str:
    open_storage(url).put(filenames.INDEX, index)
    return url


def opened(url: str, cache: str) -> str:
    """Open the dataset as a rank does; return its fingerprint."""
    return Shards(url, cache=Cache(cache)).index.fingerprint


def sent(counting: Proxy) -> tuple[int, int]:
    """Return how often the whole index was sent, and how often a piece of it."""
    index = counting.sent(f"*/{filenames.INDEX}")
    return index.whole, index.ranges


def fault(counting: Proxy, fault: Fault, times: int | None = None) -> Rule:
    """Add a fault that requests for a whole index meet."""
    return counting.add(fault, key=f"*/{filenames.INDEX}", times=times, when=lambda exchange: not exchange.range)


def cached(cache: Path) -> list[Path]:
    return sorted(path for path in cache.glob("*/*") if ".index" in path.name)


def test_a_nodes_processes_download_a_large_index_once(counting: Proxy, url: str, large: bytes, tmp_path: Path) -> None:
    found = call_all(opened, [(url, str(tmp_path / "cache"))] * PROCESSES)
    assert found == [Shards(url, cache=Cache(tmp_path / "another")).index.fingerprint] * PROCESSES
    assert sent(counting) == (2, PROCESSES + 1)  # one of each is that of the other cache
    (file,) = cached(tmp_path / "cache")
    assert file.read_bytes() == large


def test_a_small_index_is_one_request(counting: Proxy, s3_url: str, made: Made, tmp_path: Path) -> None:
    stored(s3_url, made.whole(10, 1000))
    opened(s3_url, str(tmp_path / "cache"))
    assert sent(counting) == (0, 1)
    (key,) = {each.key for each in counting.asked if each.method == "GET"}
    assert key == f"/{s3_url.removeprefix('s3://')}/{filenames.INDEX}"
    assert not cached(tmp_path / "cache")


def test_a_killed_download_is_made_again(counting: Proxy, url: str, large: bytes, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    rule = fault(counting, stall(), times=1)
    process = start(opened, url, str(cache))
    wait_until(lambda: rule.hits)
    process.kill()
    process.join()
    (unfinished,) = cached(cache)
    assert unfinished.suffix == ".part"
    opened(url, str(cache))
    (file,) = cached(cache)
    assert file.read_bytes() == large


def test_the_wait_for_a_stalled_download_ends(
    counting: Proxy, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = fault(counting, stall(), times=1)
    process = start(opened, url, str(tmp_path / "cache"))
    try:
        wait_until(lambda: rule.hits)
        monkeypatch.setattr(shared_files, "_PATIENCE", 0.1)
        opened(url, str(tmp_path / "cache"))
        assert process.is_alive()
    finally:
        process.kill()
        process.join()


@pytest.mark.parametrize("place", [5, -5])
def test_a_damaged_file_is_fetched_again(counting: Proxy, url: str, large: bytes, tmp_path: Path, place: int) -> None:
    right = opened(url, str(tmp_path / "cache"))
    (file,) = cached(tmp_path / "cache")
    data = bytearray(large)
    data[place] ^= 1
    file.write_bytes(data)
    assert opened(url, str(tmp_path / "cache")) == right
    assert file.read_bytes() == large
    assert sent(counting) == (2, 2)


def test_damage_in_transfer_is_never_cached(counting: Proxy, url: str, large: bytes, tmp_path: Path) -> None:
    rule = fault(counting, flip(), times=1)
    opened(url, str(tmp_path / "cache"))
    assert rule.hits == 1
    assert not cached(tmp_path / "cache")
    opened(url, str(tmp_path / "cache"))
    (file,) = cached(tmp_path / "cache")
    assert file.read_bytes() == large


def test_a_replaced_index_is_another_file(url: str, made: Made, tmp_path: Path) -> None:
    before = opened(url, str(tmp_path / "cache"))
    stored(url, made.whole(31, 1000))
    after = opened(url, str(tmp_path / "cache"))
    assert after != before
    assert len(cached(tmp_path / "cache")) == 2
    stored(url, made.whole(30, 1000))
    assert opened(url, str(tmp_path / "cache")) == before


def test_an_index_replaced_between_two_requests_is_read_again(
    counting: Proxy, url: str, made: Made, tmp_path: Path
) -> None:
    rule = fault(counting, status(412, "PreconditionFailed"), times=1)
    opened(url, str(tmp_path / "cache"))
    assert rule.hits == 1
    assert not cached(tmp_path / "cache")


def test_buckets_with_equal_keys_do_not_mix(s3: S3Server, url: str, large: bytes, tmp_path: Path) -> None:
    other = stored(s3.make_bucket(f"{url.removeprefix('s3://')}-other"), large)
    for each in (url, other):
        opened(each, str(tmp_path / "cache"))
    assert len({file.parent for file in cached(tmp_path / "cache")}) == 2


def test_a_cache_without_room_is_left_out(url: str, large: bytes, tmp_path: Path) -> None:
    cache = CacheDirectory(tmp_path / "cache", limit=7 * len(large))
    assert get_shared(open_storage(url), filenames.INDEX, cache) == large
    assert not cached(tmp_path / "cache")


def test_an_index_without_a_checksum_is_not_shared(s3_url: str, tmp_path: Path) -> None:
    mds = b'{"shards":[' + bytes(2**20) + b'],"version":2}'
    stored(s3_url, mds)
    assert get_shared(open_storage(s3_url), filenames.INDEX, CacheDirectory(tmp_path / "cache")) == mds
    assert not cached(tmp_path / "cache")


def test_an_index_without_an_etag_is_not_shared(large: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with S3Server(tmp_path / "s3", checksums=False) as server:
        for name, value in server.env().items():
            monkeypatch.setenv(name, value)
        url = stored(server.make_bucket("bucket"), large)
        assert get_shared(open_storage(url), filenames.INDEX, CacheDirectory(tmp_path / "cache")) == large
    assert not cached(tmp_path / "cache")


def test_an_empty_index_is_read_as_it_is(s3_url: str, tmp_path: Path) -> None:
    stored(s3_url, b"")
    assert get_shared(open_storage(s3_url), filenames.INDEX, CacheDirectory(tmp_path / "cache")) == b""


@pytest.mark.parametrize("key", [*index_keys(), filenames.snapshot(32 * "0")])
def test_every_index_of_ours_is_shared(s3_url: str, large: bytes, tmp_path: Path, key: str) -> None:
    open_storage(s3_url).put(key, large)
    for _ in range(2):
        assert get_shared(open_storage(s3_url), key, CacheDirectory(tmp_path / "cache")) == large
    assert len(cached(tmp_path / "cache")) == 1


def test_people_see_and_clear_it_by_url(url: str, large: bytes, tmp_path: Path) -> None:
    opened(url, str(tmp_path / "cache"))
    (dataset,) = contents_of(tmp_path / "cache", time.time()).datasets
    assert (dataset.urls, dataset.shards, dataset.size) == ((url,), 0, len(large))
    clear(tmp_path / "cache", fingerprints=fingerprints_of(tmp_path / "cache", url, url))
    assert not list((tmp_path / "cache").glob("*/*.index*"))
    assert contents_of(tmp_path / "cache", time.time()).datasets == ()
