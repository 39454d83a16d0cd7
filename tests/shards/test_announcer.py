"""A reader announces its own shards, by folder, and seldom where that takes long."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mdsx.shards.needs import CacheAnnouncer, Folder
from mdsx.storage.cache import Announced, CacheDirectory, Needs, ShardNames, ShardNeeds, filenames
from mdsx.storage.cache.announced import Announcements

FOLDERS = ("a" * 32, "b" * 32)
NAMES = ShardNames(np.arange(64, dtype=np.uint8)[::-1].reshape(4, 16).copy())
MINE = np.array([True, False, True, True])


def announcer(cache: CacheDirectory) -> CacheAnnouncer:
    return CacheAnnouncer({name: Folder(cache, *NAMES.by_head(MINE), largest=100) for name in FOLDERS})


def needs(first: float) -> Needs:
    """Return needs of four shards, in `first` and more seconds."""
    seconds = first + np.arange(4.0)
    return {FOLDERS[0]: ShardNeeds(NAMES, seconds, 60.0), FOLDERS[1]: ShardNeeds(NAMES, 10 * seconds, 60.0)}


def announced(cache: CacheDirectory) -> dict[str, list[Announced]]:
    return Announcements(cache.directory / filenames.NEEDS).scan()


def seconds(cache: CacheDirectory, folder: str) -> list[float]:
    (found,) = announced(cache)[folder]
    heads = [int(NAMES.by_head(np.arange(4) == shard)[1][0]) for shard in range(4)]
    return [float(each) for each in found.of(np.array(heads, np.uint64), 60.0)]


def test_a_reader_announces_its_own_shards(tmp_path: Path) -> None:
    cache = CacheDirectory(tmp_path, "1MB")
    found = announcer(cache)
    found.announce(lambda: needs(1.0))
    assert seconds(cache, FOLDERS[0]) == [1.0, np.inf, 3.0, 4.0]
    assert seconds(cache, FOLDERS[1]) == [10.0, np.inf, 30.0, 40.0]
    found.announce(lambda: needs(5.0))
    assert seconds(cache, FOLDERS[0]) == [5.0, np.inf, 7.0, 8.0]
    found.withdraw()
    found.announce(lambda: needs(5.0))
    assert announced(cache) == {}


def test_what_takes_long_is_announced_at_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdsx.shards.needs._CHEAP", -1.0)
    monkeypatch.setattr("mdsx.shards.needs._PAUSE", 1e9)
    cache = CacheDirectory(tmp_path, "1MB")
    found = announcer(cache)
    found.announce(lambda: needs(1.0))
    found.announce(lambda: needs(5.0))
    assert seconds(cache, FOLDERS[0]) == [1.0, np.inf, 3.0, 4.0]
    found.withdraw()


def test_a_reader_without_a_cache_computes_no_needs() -> None:
    def never() -> Needs:
        raise AssertionError

    found = CacheAnnouncer({})
    found.announce(never)
    found.withdraw()


def test_nothing_is_announced_in_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / filenames.MARK).touch()
    (tmp_path / filenames.NEEDS).write_bytes(b"a file")
    cache = CacheDirectory(tmp_path, "1MB")
    found = announcer(cache)
    found.announce(lambda: needs(1.0))
    assert announced(cache) == {}
    found.withdraw()
