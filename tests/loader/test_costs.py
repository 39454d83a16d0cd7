"""A configuration that works but wastes resources causes a warning that says what to change."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest

import mdsx


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """100 shards of about 4 KiB, compressed, so that they are read through a cache."""
    path = tmp_path_factory.mktemp("need") / "d"
    with mdsx.Writer(path, {"data": "uint8[512]"}, shard_size=4096, compression="zstd") as out:
        for number in range(700):
            out.write({"data": [number % 256] * 512})
    return path


def warnings_of(loader: mdsx.Loader) -> list[str]:
    """Return the warnings of its first batch."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        next(iter(loader))
    return [str(warning.message) for warning in caught]


def loader(url: Path, cache: Path, limit: int, block: int, **ranks: Any) -> mdsx.Loader:
    return mdsx.Loader(url, 8, cache=mdsx.Cache(cache, limit), shuffle=mdsx.Shuffle(shuffle_block=block), **ranks)


def test_a_cache_below_the_shards_in_use_warns(url: Path, tmp_path: Path) -> None:
    (text,) = warnings_of(loader(url, tmp_path / "cache", 65536, 350))
    needed = int(re.split(r"mdsx\.Cache\(limit=|\)", text)[-2])
    assert warnings_of(loader(url, tmp_path / "ample", needed, 350)) == []
    alone = loader(url, tmp_path / "cache", 65536, 64, rank=0, world_size=64)  # a rank alone on its node has one lane
    assert warnings_of(alone) == []


def test_shards_read_in_place_need_no_cache(tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path / "d", {"id": "int64"}) as out:
        for number in range(64):
            out.write({"id": number})
    assert warnings_of(mdsx.Loader(tmp_path / "d", 1, rank=7, world_size=8)) == []


@pytest.fixture
def small(tmp_path: Path) -> Path:
    with mdsx.Writer(tmp_path / "d", {"id": "int64"}) as out:
        for number in range(500):
            out.write({"id": number})
    return tmp_path / "d"


def test_the_warning_names_lanes_that_fit_the_batch(small: Path) -> None:
    (text,) = warnings_of(mdsx.Loader(small, 5, rank=0, world_size=7, shuffle=mdsx.Shuffle(lanes=64)))
    lanes = int(re.split(r"mdsx\.Shuffle\(lanes=|\)", text)[1])
    assert lanes == 35
    assert warnings_of(mdsx.Loader(small, 5, rank=0, world_size=7, shuffle=mdsx.Shuffle(lanes=lanes))) == []
    assert warnings_of(mdsx.Loader(small, 32, rank=0, world_size=4, shuffle=mdsx.Shuffle(lanes=64))) == []
    assert warnings_of(mdsx.Loader(small, 35, rank=0, world_size=1, shuffle=mdsx.Shuffle(lanes=64))) == []


def test_ranks_of_one_node_may_share_lanes(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "7")
    assert warnings_of(mdsx.Loader(small, 5, rank=0, world_size=7, shuffle=mdsx.Shuffle(lanes=64))) == []
    assert len(warnings_of(mdsx.Loader(small, 5, rank=0, world_size=14, shuffle=mdsx.Shuffle(lanes=64)))) == 1
