"""What the doctor says of a dataset, and how it recommends to read it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import mdsx
from mdsx.checks.doctor.dataset import Job, check_dataset, plan, recommend
from mdsx.format import StoredIndex
from mdsx.order import DatasetCourse, Order, lane_spread
from mdsx.shards import read_index
from mdsx.storage import Storage, open_storage


def index_of(shards: int, samples: int, size: int) -> StoredIndex:
    """The numbers of an index with equal shards."""
    found = SimpleNamespace(
        counts=np.full(shards, samples),
        raw_sizes=np.full(shards, size),
        sizes=np.full(shards, size),
        samples=shards * samples,
        compression=None,
        format="mdsx",
        name=lambda number: f"shard.{number:05}.mdsx",
    )
    return cast(StoredIndex, found)


EMPTY = cast(Storage, SimpleNamespace(list=lambda: iter(())))
BIG = index_of(shards=2000, samples=5000, size=64 * 2**20)


@pytest.mark.parametrize(
    ("shards", "size", "state"),
    [(2000, 64 * 2**20, "ok"), (64, 1000, "ok"), (65, 1000, "warning"), (3, 2**31, "warning")],
)
def test_shards_have_a_good_size(shards: int, size: int, state: str) -> None:
    found = {finding.check: finding for finding in check_dataset(EMPTY, index_of(shards, 10, size), 0.02)}
    assert found["shard size"].state == state
    assert state == "ok" or 'mdsx.Writer(shard_size="64MiB")' in str(found["shard size"].advice)


def test_missing_and_cut_shards_are_counted(tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path, {"bits": "bytes"}, shard_size=2000) as out:
        for _ in range(20):
            out.write({"bits": bytes(500)})
    storage = open_storage(tmp_path)
    index = read_index(storage)
    assert [finding.state for finding in check_dataset(storage, index, 0.0)] == ["ok"] * 3
    (tmp_path / index.name(1)).unlink()
    (tmp_path / index.name(3)).write_bytes(b"cut")
    *_, last = check_dataset(storage, index, 0.0)
    assert last.state == "problem"
    assert last.found.startswith(
        f"2 of {len(index.counts)} shards are missing or have a wrong size; the first is shard"
    )


def test_an_empty_dataset_is_a_warning() -> None:
    (finding,) = check_dataset(EMPTY, index_of(0, 0, 0), 0.0)
    assert (finding.state, finding.advice) == ("warning", "write samples: the dataset is empty")


JOBS = [(1, 1, 7), (8, 1, 32), (64, 8, 7), (56, 7, 8), (6, 2, 5), (96, 12, 4)]


@pytest.mark.parametrize(("ranks", "nodes", "batch"), JOBS)
def test_lanes_keep_nodes_apart(ranks: int, nodes: int, batch: int) -> None:
    chosen = plan(BIG, Job(ranks, nodes, batch), room=2**50)
    assert lane_spread(ranks * batch, lanes=chosen.lanes, world_size=nodes) <= max(1, nodes / chosen.lanes)
    order = Order(BIG.counts, lanes=chosen.lanes, shuffle_block=chosen.shuffle_block)
    assert chosen.in_use == DatasetCourse(order).active_shards(chosen.lanes // nodes)


def test_the_cache_limit_fits_the_disk() -> None:
    total = int(BIG.raw_sizes.sum())
    job = Job(8, 1, 32)
    whole = plan(BIG, job, room=2 * total)
    assert whole.cache_limit == total
    part = plan(BIG, job, room=total // 2)
    assert (part.cache_limit, part.shuffle_block) == (total // 2, whole.shuffle_block)
    for share in (3, 10):
        little = plan(BIG, job, room=whole.needed // share)
        assert little.needed <= little.cache_limit == whole.needed // share
        assert little.lanes < whole.lanes
    finding, none = recommend(BIG, "s3://b/x", job, 1000, "/cache")
    assert none.needed > 1000
    assert (finding.state, "the cache has room for only 1 kB" in finding.found) == ("problem", True)


def test_the_recommendation_is_python_that_works() -> None:
    finding, chosen = recommend(BIG, "s3://b/x", Job(64, 8, 32), 2**38, "/nvme/cache")
    given: dict[str, Any] = {}
    names = {"mdsx": mdsx, "StreamingDataset": lambda url, **arguments: given.update(arguments, url=url)}
    exec(finding.figures["python"], names)
    assert given["shuffle"] == mdsx.Shuffle(chosen.lanes, chosen.shuffle_block)
    assert given["cache"].directory == "/nvme/cache"
    assert given["url"] == "s3://b/x"
    limit = mdsx.Cache(limit=given["cache"].limit).limit
    assert isinstance(limit, str)
    assert "no two nodes download the same shard" in finding.found
    in_place, _ = recommend(BIG, "/data", Job(), None, "/cache")
    assert "Cache" not in in_place.figures["python"]


def test_a_tiny_dataset_gets_a_cache_of_a_useful_size() -> None:
    finding, _ = recommend(index_of(1, 1000, 43_200), "s3://b/x", Job(8, 1, 32), 2**38, "/cache")
    assert 'limit="1.01GB"' in finding.figures["python"]
    finding, _ = recommend(index_of(1, 1000, 43_200), "s3://b/x", Job(8, 1, 32), 10**6, "/cache")
    assert 'limit="1.01MB"' in finding.figures["python"]


def test_a_run_needs_its_batches_in_time() -> None:
    assert Job(64, 8, 32, step=0.5).need(index_of(10, 100, 100_000)) == 8 * 32 * 1000 / 0.5
    assert Job(64).need(BIG) is None
