"""A read of `format("mdsx")` has every sample once, in partitions of about a given size, in types that Spark knows."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import mdsx
from mdsx.datasets import excerpt_of
from mdsx.engines.spark_options import ReadOptions
from mdsx.engines.spark_scan import Scan

COLUMNS = {"number": "int64", "text": "str"}


def write(url: Path, samples: int = 100, first: int = 0) -> None:
    with mdsx.Writer(url, COLUMNS, shard_size=1000) as out:
        for number in range(first, first + samples):
            out.write({"number": number, "text": "x" * 90})


def begin(url: Path, **options: str) -> Scan:
    return Scan.begin(ReadOptions.parse({"path": str(url), **options}))


def read(scan: Scan) -> list[dict[str, Any]]:
    batches = [batch for part in scan.ranges() for batch in scan.read(*part, scan.arrow_schema())]
    assert {batch.schema for batch in batches} <= {scan.arrow_schema()}
    return [row for batch in batches for row in batch.to_pylist()]


def test_partitions_are_whole_shards_of_about_the_size(tmp_path: Path) -> None:
    write(tmp_path)
    counts = excerpt_of(mdsx.Dataset(tmp_path)).shards.index.counts.tolist()
    firsts = {sum(counts[:shard]) for shard in range(len(counts) + 1)}
    for size, parts in [("1B", len(counts)), ("4kB", 4), ("1GB", 1)]:
        ranges = begin(tmp_path, partition_size=size).ranges()
        assert abs(len(ranges) - parts) <= 1
        assert {place for each in ranges for place in each} <= firsts
        assert [number for start, stop in ranges for number in range(start, stop)] == list(range(100))


def test_a_dataset_without_samples_has_no_partition(tmp_path: Path) -> None:
    write(tmp_path, 0)
    assert begin(tmp_path).ranges() == []


def test_columns_are_chosen_and_renamed(tmp_path: Path) -> None:
    write(tmp_path, 3)
    assert read(begin(tmp_path, columns='{"n": "number"}')) == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_types_that_spark_lacks_become_wider_ones(tmp_path: Path) -> None:
    values: dict[str, tuple[str, Any, pa.DataType, Any]] = {
        "u8": ("uint8", 255, pa.int16(), 255),
        "u16": ("uint16", 2**16 - 1, pa.int32(), 2**16 - 1),
        "u32": ("uint32", 2**32 - 1, pa.int64(), 2**32 - 1),
        "u64": ("uint64", 2**64 - 1, pa.decimal128(20, 0), Decimal(2**64 - 1)),
        "half": ("float16", np.float16(0.1), pa.float32(), float(np.float16(0.1))),
        "brain": ("bfloat16", 3, pa.float32(), 3.0),
        "null": ("uint64?", None, pa.decimal128(20, 0), None),
        "json": ("json", {"a": 1}, pa.string(), '{"a":1}'),
        "tensor": ("uint8[2,2]", np.full((2, 2), 255), list_of(list_of(pa.int16())), [[255, 255]] * 2),
        "starred": ("float16[*]?", np.zeros(2, np.float16), list_of(pa.float32()), [0.0, 0.0]),
        "texts": ("str[*]", ["a", "b"], list_of(pa.string()), ["a", "b"]),
    }
    with mdsx.Writer(tmp_path, {name: kind for name, (kind, *_) in values.items()}) as out:
        out.write({name: value for name, (_, value, *_) in values.items()})
    scan = begin(tmp_path)
    assert {field.name: field.type for field in scan.arrow_schema()} == {k: type for k, (*_, type, _) in values.items()}
    assert {field.name for field in scan.arrow_schema() if field.nullable} == {"null", "starred"}
    assert read(scan) == [{name: found for name, (*_, found) in values.items()}]


def list_of(type: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", type, nullable=False))


def test_a_read_has_the_dataset_as_it_was_when_it_began(tmp_path: Path) -> None:
    write(tmp_path, 10)
    scan = begin(tmp_path)
    with mdsx.Writer(tmp_path / "part-00001", COLUMNS) as out:
        out.write({"number": 10, "text": ""})
    mdsx.append(tmp_path, "part-00001")
    assert [row["number"] for row in read(scan)] == list(range(10))
    assert len(read(begin(tmp_path))) == 11
    fingerprint = scan.options.snapshot or ""
    assert len(read(begin(tmp_path, snapshot=fingerprint))) == 10


def test_a_damaged_sample_is_named(tmp_path: Path) -> None:
    write(tmp_path, 30)
    scan = begin(tmp_path)
    shard = tmp_path / "shard.00001.mdsx"
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    with pytest.raises(mdsx.CorruptError, match=r"shard\.00001\.mdsx.*sample"):
        read(scan)
