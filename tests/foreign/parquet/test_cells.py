"""Every cell of a Parquet file is read as pyarrow reads it."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mdsx
from tests.foreign.parquet.oracle import check_cells

CODECS = ("none", "snappy", "gzip", "brotli", "zstd", "lz4")

_int32 = st.integers(-(2**31), 2**31 - 1)
_text = st.text(st.characters(codec="utf-8"), max_size=5)
_float = st.floats(allow_nan=False, width=32)
_time = st.datetimes(datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31))
_VALUES: dict[Any, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-128, 127),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.int32(): _int32,
    pa.float16(): st.floats(allow_nan=False, width=16),
    pa.float32(): _float,
    pa.float64(): st.floats(allow_nan=False),
    pa.string(): _text,
    pa.large_string(): _text,
    pa.binary(): st.binary(max_size=5),
    pa.binary(3): st.binary(min_size=3, max_size=3),
    pa.date32(): st.dates(),
    pa.timestamp("us"): _time,
    pa.timestamp("ms", "UTC"): st.integers(-(2**40), 2**40),
    pa.time64("us"): st.times(),
    pa.duration("us"): st.integers(-(2**40), 2**40),
    pa.decimal128(7, 2): st.integers(-(10**7) + 1, 10**7 - 1).map(lambda cents: Decimal(cents) / 100),
    pa.dictionary(pa.int32(), pa.string()): st.sampled_from(["a", "b", "ccc"]),
    pa.list_(pa.int32()): st.lists(_int32, max_size=4),
    pa.list_(pa.float32(), 2): st.lists(_float, min_size=2, max_size=2),
    pa.list_(pa.list_(pa.int32(), 2)): st.lists(st.lists(_int32, min_size=2, max_size=2), min_size=1, max_size=3),
    pa.large_list(pa.string()): st.lists(_text, max_size=3),
    pa.list_(pa.list_(pa.int32())): st.lists(st.lists(_int32 | st.none(), max_size=2) | st.none(), max_size=2),
    pa.struct({"a": pa.int32(), "b": pa.list_(pa.string())}): st.fixed_dictionaries(
        {"a": _int32 | st.none(), "b": st.lists(_text | st.none(), max_size=2) | st.none()}
    ),
    pa.map_(pa.string(), pa.int32()): st.dictionaries(_text, _int32 | st.none(), max_size=2).map(
        lambda d: [*d.items()]
    ),
}


@st.composite
def tables(draw: st.DrawFn) -> Any:
    rows = draw(st.integers(0, 40))
    columns = {}
    for number, kind in enumerate(draw(st.lists(st.sampled_from([*_VALUES]), min_size=1, max_size=4))):
        value = _VALUES[kind] | st.none() if draw(st.booleans()) else _VALUES[kind]
        some = draw(st.lists(value, min_size=1, max_size=8))
        columns[f"column {number}.{number}"] = pa.array([some[row % len(some)] for row in range(rows)], kind)
    return pa.table(columns)


@given(
    table=tables(),
    codec=st.sampled_from(CODECS),
    rows=st.integers(1, 50),
    dictionary=st.booleans(),
    version=st.sampled_from(["1.0", "2.0"]),
    cut=st.integers(0, 40),
    checksums=st.booleans(),
)
def test_every_cell_is_as_pyarrow_reads_it(
    tmp_path_factory: pytest.TempPathFactory,
    table: Any,
    codec: str,
    rows: int,
    dictionary: bool,
    version: str,
    cut: int,
    checksums: bool,
) -> None:
    """Two files of any types, with nulls, empty row groups, several pages, any codec."""
    folder = tmp_path_factory.mktemp("cells")
    for number, part in enumerate((table.slice(0, cut), table.slice(cut))):
        with pq.ParquetWriter(
            folder / f"{number}.parquet",
            table.schema,
            compression=codec,
            use_dictionary=dictionary,
            data_page_version=version,
            data_page_size=64,
            write_batch_size=4,
            write_page_checksum=checksums,
        ) as out:
            out.write_table(part.slice(0, 0))
            out.write_table(part, row_group_size=rows)
    mdsx.index_parquet(folder)
    check_cells(folder, mdsx.Dataset(folder, cache=folder / "cache"))


def test_a_column_of_nulls_agrees_with_any_type(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": pa.nulls(2), "y": [1, 2]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"y": pa.nulls(2), "x": ["a", "b"]}), tmp_path / "1.parquet")
    found = mdsx.index_parquet(tmp_path)
    assert found.columns == {"x": "str?", "y": "int64?"}
    check = [{"x": None, "y": 1}, {"x": None, "y": 2}, {"x": "a", "y": None}, {"x": "b", "y": None}]
    assert list(mdsx.Dataset(tmp_path, cache=tmp_path / "cache")) == check


def test_int96_timestamps_far_away_are_right(tmp_path: Path) -> None:
    """In nanoseconds, as pyarrow reads them by default, the year 9999 would become 1816."""
    times = pa.array([253402214400000000, -62135596800000000, None], pa.timestamp("us"))
    pq.write_table(pa.table({"time": times}), tmp_path / "0.parquet", use_deprecated_int96_timestamps=True)
    mdsx.index_parquet(tmp_path)
    found = mdsx.Dataset(tmp_path, cache=tmp_path / "cache")
    assert [sample["time"] for sample in found] == times.cast(pa.int64()).to_pylist()
    assert found.metadata["parquet"]["types"] == {"time": "timestamp[us]"}


def test_types_follow_schema_and_statistics(tmp_path: Path) -> None:
    schema = pa.schema(
        [pa.field("required", pa.int64(), nullable=False), ("counted", pa.int64()), ("null", pa.int64())]
    )
    table = pa.table({"required": [1], "counted": [2], "null": pa.array([None], pa.int64())}, schema=schema)
    pq.write_table(table, tmp_path / "0.parquet")
    assert mdsx.index_parquet(tmp_path).columns == {"required": "int64", "counted": "int64", "null": "int64?"}
    pq.write_table(table, tmp_path / "1.parquet", write_statistics=False)
    assert mdsx.index_parquet(tmp_path).columns == {"required": "int64", "counted": "int64?", "null": "int64?"}


def test_a_column_that_no_type_can_hold_is_left_out(tmp_path: Path) -> None:
    table = pa.table({'quote"': [1], "fine": [2]})
    pq.write_table(table, tmp_path / "0.parquet")
    with pytest.warns(UserWarning, match="is left out"):
        found = mdsx.index_parquet(tmp_path)
    assert found.columns == {"fine": "int64"}
    assert [*found.left_out] == ['quote"']
    assert list(mdsx.Dataset(tmp_path, cache=tmp_path / "cache")) == [{"fine": 2}]
