"""Engines read a dataset in pieces: at most as many as asked, cut at shards, each sample in one of them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

import mdsx
from mdsx.datasets import excerpt_of
from mdsx.engines.reading import Piece, pieces_of, tables


@pytest.fixture
def dataset(tmp_path: Path) -> mdsx.Dataset:
    with mdsx.Writer(tmp_path / "out", {"id": "int64", "text": "str"}, shard_size=500) as out:
        for number in range(300):
            out.write({"id": number, "text": "x" * (number % 40)})
    return mdsx.Dataset(tmp_path / "out")


@pytest.mark.parametrize("most", [1, 2, 3, 7, 1000])
def test_pieces_follow_one_another_and_end_with_shards(dataset: mdsx.Dataset, most: int) -> None:
    pieces = pieces_of(dataset, most)
    shards = excerpt_of(dataset).shards.index.counts.cumsum().tolist()
    assert len(pieces) == min(most, len(shards))
    assert pieces[0].start == 0
    assert all(before.stop == after.start for before, after in pairwise(pieces))
    assert {piece.stop for piece in pieces} <= set(shards)
    assert pieces[-1].stop == 300
    assert max(piece.size for piece in pieces) < 2 * 500 + sum(piece.size for piece in pieces) / most


def test_pieces_of_a_selection_have_no_empty_ones(dataset: mdsx.Dataset) -> None:
    assert not pieces_of(dataset.select(0, 0), 4)
    (piece,) = pieces_of(dataset.select(5, 8), 4)
    assert piece == Piece(0, 3, piece.size)
    assert sum(piece.stop - piece.start for piece in pieces_of(dataset.select(range(0, 300, 7)), 4)) == 43


def test_tables_have_the_samples_in_order(dataset: mdsx.Dataset) -> None:
    found = pa.concat_tables(tables(dataset.select(range(100, 250)), 10, 120))
    assert found["id"].to_pylist() == list(range(110, 220))
    assert found.equals(dataset.take(range(110, 220), as_arrow=True))


def test_a_damaged_sample_is_named(dataset: mdsx.Dataset, tmp_path: Path) -> None:
    path = sorted((tmp_path / "out").glob("*.mdsx"))[1]
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    with pytest.raises(mdsx.CorruptError, match=path.name):
        list(tables(mdsx.Dataset(tmp_path / "out"), 0, 300))
