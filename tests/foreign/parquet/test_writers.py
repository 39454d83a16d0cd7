"""Files of other writers than pyarrow: Polars, DuckDB, Spark, Hugging Face's datasets."""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pytest

import mdsx
from tests.foreign.parquet.oracle import check_cells

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(scope="module")
def frame() -> pl.DataFrame:
    return pl.DataFrame(
        {
            "id": pl.Series(range(60), dtype=pl.UInt32),
            "text": [None if number % 7 == 3 else f"text {number} ü" for number in range(60)],
            "kind": pl.Series(["cat", "dog", "cat"] * 20, dtype=pl.Categorical),
            "level": pl.Series(["low", "high"] * 30, dtype=pl.Enum(["low", "high"])),
            "vector": pl.Series([[number, 0.5] for number in range(60)], dtype=pl.Array(pl.Float32, 2)),
            "tokens": pl.Series([[*range(number % 4)] for number in range(60)], dtype=pl.List(pl.Int64)),
            "data": [bytes([number]) * (number % 3) for number in range(60)],
            "pair": [{"a": number, "b": None if number % 2 else [number]} for number in range(60)],
            "flag": [None if number % 5 == 0 else number % 2 == 0 for number in range(60)],
            "price": pl.Series(["1.25", "-0.01", "3.00"] * 20).str.to_decimal(scale=2),
            "time": pl.datetime_range(pl.datetime(2024, 1, 1), pl.datetime(2024, 1, 1, 0, 59), "1m", eager=True),
            "day": pl.date_range(pl.date(1969, 12, 1), pl.date(1970, 1, 29), eager=True),
        }
    )


def test_files_of_polars(tmp_path: Path, frame: pl.DataFrame) -> None:
    frame[:25].write_parquet(tmp_path / "0.parquet", row_group_size=10)
    frame[25:].write_parquet(tmp_path / "1.parquet", compression="lz4", statistics=False)
    found = mdsx.index_parquet(tmp_path)
    assert found.columns["kind"] == "str?"
    assert found.columns["vector"] == "float32[2]?"
    check_cells(tmp_path, mdsx.Dataset(tmp_path, cache=tmp_path / "cache"))


@pytest.mark.parametrize("codec", ["uncompressed", "snappy", "gzip", "zstd", "brotli", "lz4_raw"])
def test_files_of_duckdb(tmp_path: Path, frame: pl.DataFrame, codec: str) -> None:
    connection = duckdb.connect()
    connection.register("frame", frame.drop("price").to_arrow())
    options = f"format parquet, compression {codec}, row_group_size 20"
    query = "select *, 1.50::decimal(5, 2) as price, map {'key': id} as counts, uuid() as uuid from frame"
    connection.sql(f"copy ({query}) to '{tmp_path}/0.parquet' ({options})")
    found = mdsx.index_parquet(tmp_path)
    assert {name: found.columns[name] for name in ("id", "text", "counts")} == {
        "id": "uint32",
        "text": "str?",
        "counts": "json",
    }
    check_cells(tmp_path, mdsx.Dataset(tmp_path, cache=tmp_path / "cache"))


def test_files_of_spark(tmp_path: Path) -> None:
    """INT96 timestamps, hidden checksums, _SUCCESS, its names of parts."""
    shutil.copytree(GOLDEN / "spark", tmp_path / "spark")
    found = mdsx.index_parquet(tmp_path / "spark")
    assert (found.files, found.samples) == (2, 12)
    assert found.columns == {
        "id": "int64",
        "small": "int16",
        "text": "str?",
        "data": "bytes",
        "time": "int64?",
        "day": "int32",
        "price": "str",
        "tokens": "int32[*]",
        "tags": "str[*]?",
        "point": "json",
        "counts": "json",
    }
    data = mdsx.Dataset(tmp_path / "spark", cache=tmp_path / "cache")
    assert data.metadata["parquet"]["types"]["time"] == "timestamp[us]"
    for number, sample in enumerate(data):
        assert sample["id"] == number
        assert sample["small"] == number - 5
        assert sample["text"] == (None if number % 4 == 3 else f"text {number} ü")
        assert sample["data"] == bytes([number, 0, 255])
        assert sample["time"] == [1709209800123456, 253402214400000000, None][number % 3]
        assert sample["day"] == number - 1
        assert sample["price"] == f"{number * 5 // 4}.{number * 125 % 100:02}" if number else "0.00"
        assert sample["tokens"].tolist() == [*range(number % 5)]
        assert sample["tags"] == [f"tag {number}"] * (number % 3)
        assert sample["point"] == {"x": number / 2, "y": None}
        assert sample["counts"] == {"a": number}


def test_files_of_datasets(tmp_path: Path) -> None:
    """Images and audio become their encoded bytes, sequences of a fixed length arrays."""
    shutil.copytree(GOLDEN / "datasets", tmp_path / "datasets")
    found = mdsx.index_parquet(tmp_path / "datasets")
    assert found.columns == {
        "image": "bytes",
        "audio": "bytes",
        "label": "int64",
        "vector": "float32[3]",
        "tokens": "int32[*]?",
        "matrix": "json",
        "messages": "json",
        "text": "str",
    }
    for number, sample in enumerate(mdsx.Dataset(tmp_path / "datasets", cache=tmp_path / "cache")):
        assert sample["image"].startswith(b"\x89PNG")
        assert sample["audio"] == b"RIFF audio %d" % number
        assert sample["label"] == number % 2
        assert np.array_equal(sample["vector"], np.array([number, 0.5, -1], np.float32))
        assert sample["tokens"].tolist() == [*range(number)]
        assert sample["matrix"] == [[number, 1], [2, 3]]
        assert sample["messages"][0] == {"role": "user", "content": f"hello {number}"}
        assert sample["messages"][1] == {"role": "assistant", "content": None}
        assert sample["text"] == f"text {number}"
