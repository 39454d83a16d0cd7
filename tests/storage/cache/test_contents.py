"""What a cache holds: by dataset, with sizes, times, leases and the processes that have them."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

import mdsx
from mdsx.storage.cache import CacheDirectory, CacheKey, contents_of, filenames, fingerprints_of
from mdsx.storage.cache.files import Write
from tests.forks import as_another_user, forked, let_through
from tests.storage.cache.test_cache import SIZE, content, key

FIRST, SECOND = "a" * 32, "b" * 32
URL = "s3://bucket/some corpus/ä"


def put(cache: CacheDirectory, fingerprint: str, number: int, url: str = URL) -> object:
    def fill(write: Write) -> None:
        write(content(number))

    return cache.fetch(CacheKey(fingerprint, key(number).raw_hash, SIZE), fill, source=url)


def test_datasets_are_listed_with_urls_and_sizes(tmp_path: Path) -> None:
    cache = CacheDirectory(tmp_path / "cache", 10 * SIZE)
    for number in range(3):
        put(cache, FIRST, number)
    put(cache, FIRST, 0, "s3://a-copy/of-it")  # it is there already: nothing is fetched
    put(cache, FIRST, 3, "/a/copy")
    put(cache, SECOND, 4, "")
    found = contents_of(cache.directory, time.time() + 60)
    assert {(each.fingerprint, each.urls, each.shards, each.size, each.fetching) for each in found.datasets} == {
        (FIRST, ("/a/copy", URL), 4, 4 * SIZE, 0),
        (SECOND, (), 1, SIZE, 0),
    }
    assert (found.size, found.limit, found.foreign) == (5 * SIZE, 10 * SIZE, ())
    assert all(55 < time.time() + 60 - each.used < 120 for each in found.datasets)


def test_the_dataset_used_last_comes_first(tmp_path: Path) -> None:
    cache = CacheDirectory(tmp_path / "cache", 10 * SIZE)
    for fingerprint in (FIRST, SECOND):
        put(cache, fingerprint, 0)
    now = time.time()
    for fingerprint, ago in ((FIRST, 10), (SECOND, 0)):
        (path,) = (cache.directory / fingerprint).glob("*.mdsx")
        os.utime(path, (now + 60 - ago, now))
    first, second = contents_of(cache.directory, now + 60).datasets
    assert (first.fingerprint, second.fingerprint) == (SECOND, FIRST)
    assert (first.used, second.used) == pytest.approx((now + 60, now + 50), abs=1e-3)


@pytest.mark.parametrize("gone", range(3))
def test_a_shard_evicted_meanwhile_is_not_listed(tmp_path: Path, gone: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = CacheDirectory(tmp_path / "cache", 10 * SIZE)
    for number in range(3):
        put(cache, FIRST, number)
    lstat = os.lstat

    def evicted(path: str, **options: Any) -> os.stat_result:
        if os.fspath(path).endswith(f"{key(gone).raw_hash}.mdsx"):
            raise FileNotFoundError
        return lstat(path, **options)

    monkeypatch.setattr(os, "lstat", evicted)
    assert [each.size for each in contents_of(cache.directory, time.time()).datasets] == [2 * SIZE]


def test_the_processes_that_hold_shards_are_named(tmp_path: Path) -> None:
    cache = CacheDirectory(tmp_path / "cache", 10 * SIZE)
    held = [put(cache, FIRST, number) for number in range(2)]
    put(cache, FIRST, 2)
    found = forked(lambda: contents_of(tmp_path / "cache", time.time()))  # its own process holds nothing
    assert found.users is not None
    (user,) = found.users
    assert (user.pid, user.limit, user.held) == (os.getpid(), 10 * SIZE, 2)
    assert user.name
    assert found.datasets[0].held == 2
    del held, cache
    found = contents_of(tmp_path / "cache", time.time())
    assert (found.users, found.limit, found.datasets[0].held) == ((), None, 0)


def test_a_system_without_proc_locks_says_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(CacheDirectory(tmp_path / "cache", SIZE), FIRST, 0)
    monkeypatch.setattr("mdsx.storage.cache.contents.lock_holders", lambda directory: None)
    found = contents_of(tmp_path / "cache", time.time())
    assert (found.users, found.datasets[0].held, found.datasets[0].shards) == (None, None, 1)


def test_an_announced_need_is_no_use(tmp_path: Path) -> None:
    """A shard is needed next in an hour: it was last used when a job noted this."""
    cache = CacheDirectory(tmp_path / "cache", SIZE)
    put(cache, FIRST, 0)
    cache.touch(CacheKey(FIRST, key(0).raw_hash, SIZE), needed_in=3600)
    (dataset,) = contents_of(cache.directory, time.time()).datasets
    assert abs(time.time() - dataset.used) < 60


def test_unfinished_and_foreign_files_are_listed(tmp_path: Path) -> None:
    cache = CacheDirectory(tmp_path / "cache", 10 * SIZE)
    put(cache, FIRST, 0)
    (tmp_path / "cache" / FIRST / f"{key(1).raw_hash}.mdsx.part").write_bytes(bytes(SIZE))
    (tmp_path / "cache" / FIRST / "notes").write_text("mine")
    (tmp_path / "cache" / "thesis").mkdir()
    found = contents_of(cache.directory, time.time())
    assert [(each.shards, each.fetching, each.size) for each in found.datasets] == [(1, 1, 2 * SIZE)]
    assert found.foreign == (f"{FIRST}/notes", "thesis")


def test_links_are_not_followed(tmp_path: Path) -> None:
    """A link to a folder is no folder of the cache. A link in place of a shard is: it will be removed."""
    cache = CacheDirectory(tmp_path / "cache", 10 * SIZE)
    put(cache, FIRST, 0)
    (cache.directory / SECOND).symlink_to(cache.directory / FIRST)
    (cache.directory / FIRST / f"{key(1).raw_hash}.mdsx").symlink_to(tmp_path)
    found = contents_of(cache.directory, time.time())
    assert [(each.fingerprint, each.shards) for each in found.datasets] == [(FIRST, 2)]
    assert found.foreign == (SECOND,)


def test_another_user_sees_the_contents_if_the_owner_lets_them(tmp_path: Path) -> None:
    cache = CacheDirectory(tmp_path / "cache", SIZE)
    put(cache, FIRST, 0)
    let_through(tmp_path)
    with pytest.raises(mdsx.ForbiddenError, match="belongs to"):
        as_another_user(lambda: contents_of(cache.directory, 0.0), denied=cache.directory)
    for path in (cache.directory, *cache.directory.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    found = as_another_user(lambda: contents_of(cache.directory, time.time()))
    assert found.datasets[0].urls == (URL,)


@pytest.mark.parametrize("what", ["missing", "a file", "another directory"])
def test_what_is_no_cache_raises(tmp_path: Path, what: str) -> None:
    path = tmp_path / "cache"
    if what == "a file":
        path.write_text("precious")
    elif what == "another directory":
        path.mkdir()
    with pytest.raises(mdsx.MissingError, match="there is no cache here"):
        contents_of(path, 0.0)
    assert what != "another directory" or not list(path.iterdir())


def test_a_dataset_is_meant_by_url_or_fingerprint(tmp_path: Path) -> None:
    cache = CacheDirectory(tmp_path / "cache", 10 * SIZE)
    other = FIRST[:20] + "0" * 12
    for fingerprint in (FIRST, SECOND, other):
        put(cache, fingerprint, 0, "" if fingerprint == SECOND else URL)
    find = fingerprints_of
    assert find(cache.directory, f"{URL}/", URL) == {FIRST, other}  # it was overwritten, with another content
    assert find(cache.directory, SECOND[:8], "/cwd/bbbbbbbb") == {SECOND}
    assert find(cache.directory, FIRST[:21], "/cwd/a") == {FIRST}
    with pytest.raises(mdsx.UsageError, match="several cached datasets"):
        find(cache.directory, FIRST[:20], "/cwd/a")
    for wrong in ("s3://bucket/other", SECOND[:7], "c" * 32):
        with pytest.raises(mdsx.MissingError, match=r"no shard of .* is in this cache"):
            find(cache.directory, wrong, wrong)


LONG = "s3://bucket/" + "/".join(f"folder-{number}" for number in range(100))


@pytest.mark.parametrize("url", [URL, LONG, "/data/\udcff%2F..", "s3://bucket/..", "https://h/x?a=b&c"])
def test_a_url_is_recorded_as_one_safe_name(tmp_path: Path, url: str) -> None:
    name = filenames.source(url)
    assert len(name) < 255
    assert "/" not in name
    (tmp_path / name).touch()
    found = filenames.url_of(name)
    assert found is not None
    assert found == url or "..." in found or "\udcff" in url


@pytest.mark.parametrize("size", [200, 201, 250])
def test_long_urls_are_shortened_in_the_middle(size: int) -> None:
    url = "host:" + "x" * (size - 10) + "=last"
    found = filenames.url_of(filenames.source(url))
    assert found == (url if size == 200 else f"{url[:100]}...{url[-100:]}")


def test_a_recorded_url_has_no_credentials() -> None:
    name = filenames.source("https://user:secret@host/x?X-Amz-Signature=secret")
    assert "secret" not in name
