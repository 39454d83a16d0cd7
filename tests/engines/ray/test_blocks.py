"""Blocks of all kinds are written as their users expect, about one shard for each task, and read again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mdsx
from mdsx.datasets import excerpt_of
from tests.engines.ray.scenarios import BLOCKS, ROWS, result, start

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shapes")


@pytest.fixture(scope="module")
def found(ray_python: Path, folder: Path) -> Any:
    return result(start(ray_python, "shapes", folder))


def test_arrays_of_one_shape_have_that_shape(found: Any, folder: Path) -> None:
    assert found["images"] == {"image": "uint8[4,5,3]", "mask": "bool[4,5]", "name": "str?"}
    sample = mdsx.Dataset(folder / "images")[123]
    assert np.array_equal(sample["image"], np.full((4, 5, 3), 123))
    assert sample["mask"].all()


def test_arrays_of_several_shapes_vary_in_all_dimensions(found: Any, folder: Path) -> None:
    assert found["ragged"] == {"values": "float32[*,*]"}
    assert [sample["values"].shape for sample in mdsx.Dataset(folder / "ragged")][:3] == [(0, 2), (1, 2), (2, 2)]
    assert mdsx.Dataset(folder / "ragged")[8]["values"].tolist() == [[8, 8], [8, 8]]


def test_columns_that_arrow_lets_be_null_get_a_question_mark(found: Any, folder: Path) -> None:
    assert found["frames"] == {"id": "int64?", "text": "str?"}
    assert [sample["text"] for sample in mdsx.Dataset(folder / "frames")] == ["even", None] * 5


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nulls", "the first block does not show the type"),
        ("objects", "so Ray has pickled them"),
        ("nothing", "columns are unknown"),
        ("other", "other columns than those to write"),
        ("same", "there is a dataset already"),
        ("tolerant", "with Ray's max_errored_blocks, samples may be lost"),
    ],
)
def test_what_cannot_be_written_is_refused(found: Any, name: str, says: str) -> None:
    assert says in found[name]


def test_an_empty_dataset_is_a_dataset(found: Any, folder: Path) -> None:
    assert found["empty"] == 0
    assert len(mdsx.Dataset(folder / "empty")) == 0


def test_small_blocks_are_written_in_shards_of_full_size(found: Any, folder: Path) -> None:
    """500 blocks of 2 rows."""
    total = int(excerpt_of(mdsx.Dataset(folder / "small blocks")).shards.index.raw_sizes.sum())
    assert total / 4096 <= found["small blocks"] <= 3 * total / 4096


def test_preserved_order_and_equal_blocks_give_equal_bytes(found: Any, folder: Path) -> None:
    same, again = mdsx.Dataset(folder / "same"), mdsx.Dataset(folder / "again")
    assert [sample["id"] for sample in same] == list(range(ROWS))
    assert same.fingerprint == again.fingerprint
    assert len(excerpt_of(same).shards.index.counts) < BLOCKS
    shards = [sorted(path.read_bytes() for path in (folder / name).rglob("*.mdsx")) for name in ("same", "again")]
    assert shards[0] == shards[1]


def test_each_sample_is_read_once_in_order(found: Any) -> None:
    assert found["read"] == list(range(ROWS))
    assert found["count"] == ROWS


def test_selections_and_other_formats_are_read(found: Any) -> None:
    assert found["read images"] == list(range(10, 20))
    assert found["read parquet"] == list(range(ROWS))
