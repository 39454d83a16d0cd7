"""Parquet files in memory: row groups of bounded size, and checksums of pages."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mdsx.foreign.parquet import ParquetFile
from mdsx.foreign.parquet import write as writing


def table(rows: int) -> pa.Table:
    return pa.table({"x": pa.array(range(rows), pa.int64())})


def group_rows(data: memoryview) -> list[int]:
    metadata = pq.ParquetFile(pa.BufferReader(data)).metadata
    return [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]


def test_row_groups_have_at_most_so_many_bytes() -> None:
    file = ParquetFile(table(0).schema, group_size=8000, compression="zstd", level=1)
    for rows in (400, 600, 1, 1500, 10):
        file.add(table(rows))
    assert group_rows(file.finish()) == [1000, 1, 1000, 510]


def test_a_row_that_is_larger_is_a_group_of_its_own() -> None:
    file = ParquetFile(table(0).schema, group_size=7, compression="zstd", level=1)
    file.add(table(3))
    assert group_rows(file.finish()) == [1, 1, 1]


def test_row_groups_have_at_most_so_many_rows() -> None:
    file = ParquetFile(table(0).schema, group_size=2**40, compression="none", level=None)
    for _ in range(3):
        file.add(table(writing._MOST_ROWS // 2))
    assert group_rows(file.finish()) == [writing._MOST_ROWS, writing._MOST_ROWS // 2]


def test_a_file_without_rows_has_a_schema() -> None:
    data = ParquetFile(table(0).schema, group_size=1, compression="zstd", level=None).finish()
    assert pq.read_table(pa.BufferReader(data)).equals(table(0))


def test_a_flipped_bit_in_a_page_is_found() -> None:
    file = ParquetFile(table(0).schema, group_size=2**20, compression="none", level=None)
    file.add(pa.table({"x": pa.array([2**40 + number for number in range(1000)], pa.int64())}))
    data = bytearray(file.finish())
    place = data.index((2**40 + 500).to_bytes(8, "little"))
    data[place] ^= 1
    with pytest.raises(OSError, match=r"(?i)crc"):
        pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True).read()
