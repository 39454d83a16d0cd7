"""A configuration that works but wastes resources causes a warning that says what to change."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

import mdsx
from mdsx.order import DatasetCourse, Order
from mdsx.shards import View
from mdsx.stream import Batching, warn_of_small_cache, warn_of_spread


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """100 shards of about 4 KiB, compressed, so that they are read through a cache."""
    path = tmp_path_factory.mktemp("need") / "d"
    with mdsx.Writer(path, {"data": "uint8[512]"}, shard_size=4096, compression="zstd") as out:
        for number in range(700):
            out.write({"data": [number % 256] * 512})
    return path


def course(view: View, block: int) -> DatasetCourse:
    return DatasetCourse(Order(view.counts, seed=1, shuffle_block=block))


def test_a_cache_below_the_shards_in_use_warns(url: Path, tmp_path: Path) -> None:
    view = View([mdsx.Dataset(url, cache=mdsx.Cache(tmp_path / "cache", limit=65536)).excerpt])
    with pytest.warns(UserWarning, match=r"mdsx.Cache\(limit=") as caught:
        warn_of_small_cache(view, course(view, 350), ranks_here=1, world_size=1)
    needed = int(str(caught[0].message).split("limit=")[1].split(")")[0])
    ample = View([mdsx.Dataset(url, cache=mdsx.Cache(tmp_path / "ample", limit=needed)).excerpt])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_small_cache(ample, course(ample, 350), ranks_here=1, world_size=1)
        warn_of_small_cache(view, course(view, 8), ranks_here=1, world_size=8)  # a rank alone on its node has one lane


def test_shards_read_in_place_need_no_cache(tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path / "d", {"id": "int64"}) as out:
        out.write({"id": 1})
    view = View([mdsx.Dataset(tmp_path / "d").excerpt])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_small_cache(view, course(view, 1), ranks_here=8, world_size=8)


def test_the_warning_names_lanes_that_fit_the_batch() -> None:
    lanes_of_8 = DatasetCourse(Order([1000] * 50, seed=1))
    with pytest.warns(UserWarning, match=r"lanes=7 would keep each rank on its own"):
        warn_of_spread(lanes_of_8, Batching(50_000, 5, 7, drop_last=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_spread(lanes_of_8, Batching(50_000, 32, 4, drop_last=True))
        warn_of_spread(DatasetCourse(Order([1000] * 50, seed=1, lanes=7)), Batching(50_000, 5, 7, drop_last=True))
        warn_of_spread(lanes_of_8, Batching(50_000, 35, 1, drop_last=True))
