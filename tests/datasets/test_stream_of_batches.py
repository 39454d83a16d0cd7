"""`to_batches`: a whole dataset as an Arrow stream, for the libraries that read such streams."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import mdsx
from mdsx.datasets import decoded

COLUMNS = {"id": "int64", "tokens": "uint16[*]", "score": "float32?", "text": "str"}
N = 500


@pytest.fixture
def dataset(tmp_path: Path) -> mdsx.Dataset:
    with mdsx.Writer(tmp_path / "data", COLUMNS, shard_size=4000) as out:
        for number in range(N):
            score = None if number % 3 == 0 else number / 2
            out.write({"id": number, "tokens": np.arange(number % 5), "score": score, "text": f"text {number}"})
    return mdsx.Dataset(tmp_path / "data")


def test_the_stream_has_all_samples_in_order(dataset: mdsx.Dataset) -> None:
    reader = dataset.to_batches(batch_size=64)
    assert isinstance(reader, pa.RecordBatchReader)
    batches = list(reader)
    assert all(0 < batch.num_rows <= 64 for batch in batches)
    assert pa.Table.from_batches(batches) == dataset.take(range(N), as_arrow=True)


def test_polars_duckdb_and_pandas_read_it(dataset: mdsx.Dataset) -> None:
    assert pl.from_arrow(dataset.to_batches())["id"].to_list() == list(range(N))  # type: ignore[index]
    scores = duckdb.from_arrow(dataset.to_batches()).filter("score > 200").aggregate("count(*)")
    expected = sum(1 for number in range(N) if number % 3 and number / 2 > 200)
    assert scores.fetchall() == [(expected,)]
    assert dataset.to_batches().read_pandas()["text"].tolist() == [f"text {number}" for number in range(N)]


def test_selections_columns_and_changes_are_streamed(dataset: mdsx.Dataset, tmp_path: Path) -> None:
    chosen = dataset.select([3, 4, 400]).select_columns({"n": "id", "s": "score"})
    rows = chosen.to_batches().read_all().to_pylist()
    assert rows == [{"n": 3, "s": None}, {"n": 4, "s": 2.0}, {"n": 400, "s": 200.0}]
    dtypes = {"tokens": "int64", "id": "int16"}
    changed = mdsx.Dataset(tmp_path / "data", dtypes=dtypes, fill={"score": (-1, "has_score")})
    table = changed.to_batches().read_all()
    assert [str(field.type) for field in table.schema] == ["int16", "list<item: int64>", "float", "string", "bool"]
    assert table.equals(changed.take(range(N), as_arrow=True))
    assert table["score"].to_pylist()[:3] == [-1.0, 0.5, 1.0]
    assert table["has_score"].to_pylist()[:3] == [False, True, True]
    assert table["tokens"].to_pylist()[4] == [0, 1, 2, 3]


def test_an_empty_dataset_is_an_empty_stream(tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path, COLUMNS):
        pass
    table = mdsx.Dataset(tmp_path).to_batches().read_all()
    assert table.num_rows == 0
    assert table.column_names == list(COLUMNS)


def test_a_damaged_sample_is_an_error_that_names_it(dataset: mdsx.Dataset, tmp_path: Path) -> None:
    shard = sorted((tmp_path / "data").glob("shard.*"))[3]
    data = bytearray(shard.read_bytes())
    data[-20] ^= 1
    shard.write_bytes(data)
    with pytest.raises(mdsx.CorruptError, match=r"shard\.00003\.mdsx"):
        mdsx.Dataset(tmp_path / "data").to_batches().read_all()


def test_an_error_that_no_sample_repeats_is_looked_for_in_one_shard(dataset: mdsx.Dataset, tmp_path: Path) -> None:
    read = list[int]()

    class Watched(mdsx.Dataset):
        def __getitem__(self, place: Any) -> Any:
            read.append(place)
            return super().__getitem__(place)

    def fail(columns: object, first: int) -> None:
        if first >= 100:
            raise mdsx.CorruptError("here")

    firsts = dataset._first.tolist()
    start = next(first for first in firsts if first >= 100)
    with pytest.raises(mdsx.CorruptError, match="here"):
        list(decoded(Watched(tmp_path / "data"), 0, N, fail, most=1000))
    assert read == list(range(start, firsts[firsts.index(start) + 1]))


@pytest.mark.parametrize("size", [0, -1, 2.0, True])
def test_a_batch_size_is_a_number_of_samples(dataset: mdsx.Dataset, size: Any) -> None:
    with pytest.raises(mdsx.UsageError, match="batch_size must be an integer of at least 1"):
        dataset.to_batches(batch_size=size)
