"""Parquet gives back values and types: those of the files, those that a converter kept, and otherwise ours."""

from __future__ import annotations

import base64
import datetime as dt
from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mdsx
from mdsx import UsageError
from mdsx.foreign.arrow import KEPT_SCHEMA
from tests.transfer.exporting.conftest import COLUMNS, sample, write

NESTED = pa.struct([("when", pa.timestamp("us")), ("prices", pa.list_(pa.decimal128(6, 2)))])


def table(start: int, stop: int) -> pa.Table:
    """Return rows whose types mdsx does not have."""
    numbers = range(start, stop)
    return pa.table(
        {
            "at": pa.array([1000 * n if n % 7 else None for n in numbers], pa.timestamp("ms", "UTC")),
            "day": pa.array(list(numbers), pa.date32()),
            "price": pa.array([Decimal(n) / 4 for n in numbers], pa.decimal128(12, 2)),
            "label": pa.array([f"class {n % 3}" for n in numbers]).dictionary_encode(),
            "text": pa.array([f"text {n}" for n in numbers], pa.large_string()),
            "code": pa.array([n.to_bytes(4) for n in numbers], pa.binary(4)),
            "tokens": pa.array([list(range(n % 5)) for n in numbers], pa.list_(pa.int32())),
            "more": pa.array([{"when": dt.datetime(2020, 1, 1), "prices": [Decimal(n)]} for n in numbers], NESTED),
            "sizes": pa.array([[("a", n)] for n in numbers], pa.map_(pa.string(), pa.int64())),
        }
    ).replace_schema_metadata({"made by": "a test"})


def back(folder: Path) -> pa.Table:
    """Return the table that pyarrow reads from files: each with its own types, which must be equal."""
    return pa.concat_tables([pq.read_table(path) for path in sorted(folder.glob("*.parquet"))])


def test_parquet_in_place_to_parquet_gives_back_values_and_types(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for file in range(2):
        pq.write_table(table(100 * file, 100 * file + 100), tmp_path / "in" / f"{file}.parquet", row_group_size=30)
    mdsx.index_parquet(tmp_path / "in")
    export = mdsx.export("parquet", mdsx.Dataset(tmp_path / "in", cache=tmp_path / "cache"), tmp_path / "out")
    found = back(tmp_path / "out")
    assert found.schema.equals(back(tmp_path / "in").schema, check_metadata=True)
    assert found.equals(table(0, 200))
    assert export.forms["at"] == "timestamp[ms, tz=UTC]"


def test_parquet_to_mdsx_to_parquet_gives_back_values_and_types(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(table(0, 100), tmp_path / "in" / "0.parquet")
    mdsx.convert("parquet", str(tmp_path / "in"), tmp_path / "dataset")
    mdsx.export("parquet", tmp_path / "dataset", tmp_path / "out")
    assert back(tmp_path / "out").equals(back(tmp_path / "in"))
    assert back(tmp_path / "out").schema.equals(back(tmp_path / "in").schema, check_metadata=True)


def kept(path: Path, given: pa.Table, schema: pa.Schema | None = None) -> Path:
    """Write a dataset of a table, with its schema in the metadata, as converters do."""
    text = base64.b64encode((schema or given.schema).serialize()).decode()
    with mdsx.Writer(path, mdsx.arrow_columns(given), metadata={KEPT_SCHEMA: text}) as out:
        out.write_batch(given)
    return path


def test_a_kept_schema_gives_back_values_and_types(tmp_path: Path) -> None:
    given = table(0, 100)
    mdsx.export("parquet", kept(tmp_path / "in", given), tmp_path / "out", file_samples=40)
    found = back(tmp_path / "out")
    assert found.unify_dictionaries().equals(given)
    assert found.schema.metadata == given.schema.metadata


def test_chosen_and_renamed_columns_keep_their_types_and_lose_metadata_of_the_whole(tmp_path: Path) -> None:
    given = table(0, 10)
    mdsx.export("parquet", kept(tmp_path / "in", given), tmp_path / "out", columns=["at", "price"], rename={"t": "at"})
    found = back(tmp_path / "out")
    assert found.equals(given.select(["at", "price"]).rename_columns(["t", "price"]))
    assert found.schema.metadata is None


def test_columns_that_differ_from_the_kept_schema_have_their_own_types(tmp_path: Path) -> None:
    given = pa.table({"a": [1, 2], "b": ["x", "y"]})
    path = kept(tmp_path / "in", given, pa.schema([("a", pa.date32()), ("b", pa.list_(pa.int8()))]))
    with pytest.warns(UserWarning, match=r"column 'b' of type 'str' is not exported as Arrow's list<item: int8>"):
        mdsx.export("parquet", path, tmp_path / "out")
    assert back(tmp_path / "out").schema == pa.schema([("a", pa.date32()), ("b", pa.string())])


def test_metadata_that_is_no_schema_is_ignored_with_a_warning(tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path / "in", {"a": "int8"}, metadata={KEPT_SCHEMA: "bm9uZQ=="}) as out:
        out.write({"a": 1})
    with pytest.warns(UserWarning, match="is not an Arrow schema"):
        mdsx.export("parquet", tmp_path / "in", tmp_path / "out")
    assert back(tmp_path / "out").equals(pa.table({"a": pa.array([1], pa.int8())}))


def test_a_value_that_does_not_fit_its_kept_type_is_an_error_that_names_the_column(tmp_path: Path) -> None:
    path = kept(tmp_path / "in", pa.table({"p": ["1.5", "no"]}), pa.schema([("p", pa.decimal128(5, 1))]))
    with pytest.raises(UsageError, match=r"column 'p'.*do not fit Arrow's decimal.*--drop p"):
        mdsx.export("parquet", path, tmp_path / "out")
    assert list((tmp_path / "out").glob("*.parquet")) == []


def test_a_kept_type_that_parquet_does_not_have_is_an_error(tmp_path: Path) -> None:
    path = kept(tmp_path / "in", pa.table({"x": [1], "empty": pa.array([{}], pa.struct([]))}))
    with pytest.raises(UsageError, match=r"Parquet cannot hold .*'empty'.*leave out"):
        mdsx.export("parquet", path, tmp_path / "out")
    assert mdsx.export("parquet", path, tmp_path / "other", columns=["x"]).samples == 1


@pytest.mark.parametrize("type", ["int32[0]", "int32[0]?", "int32[2,0]", "int32[0,*]", "int32[*,0]"])
def test_a_column_with_a_dimension_of_0_is_refused_before_anything_is_written(tmp_path: Path, type: str) -> None:
    shape = [2 if size == "*" else int(size) for size in type.removesuffix("?")[6:-1].split(",")]
    path = write(tmp_path / "in", {"x": "int8", "c": type}, [{"x": 1, "c": np.zeros(shape, np.int32)}] * 3)
    with pytest.raises(UsageError, match=r"in: column 'c': pyarrow cannot read lists of size 0 .*--drop c leaves"):
        mdsx.export("parquet", path, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    mdsx.export("parquet", path, tmp_path / "out", drop=["c"])
    assert back(tmp_path / "out").to_pylist() == [{"x": 1}] * 3


EMPTY = pa.list_(pa.int8(), 0)


@pytest.mark.parametrize(
    "type",
    [
        EMPTY,
        pa.large_list(EMPTY),
        pa.list_(EMPTY, 2),
        pa.map_(pa.string(), EMPTY),
        pa.struct([("a", pa.int8()), ("b", pa.list_(EMPTY))]),
    ],
    ids=str,
)
def test_kept_types_with_lists_of_size_0_are_refused_too(tmp_path: Path, type: pa.DataType) -> None:
    path = kept(tmp_path / "in", pa.table({"c": pa.nulls(2, type)}))
    with pytest.raises(UsageError, match=r"column 'c': pyarrow cannot read lists of size 0"):
        mdsx.export("parquet", path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_other_columns_have_the_types_of_the_documented_table(dataset: Path, tmp_path: Path) -> None:
    mdsx.export("parquet", dataset, tmp_path / "out", file_size="40kB")
    found, ds = back(tmp_path / "out"), mdsx.Dataset(dataset)
    assert found.equals(ds.take(range(len(ds)), as_arrow=True))
    assert found["jpg"].to_pylist() == [sample(n)["jpg"] for n in range(200)]


def test_polars_and_duckdb_read_the_files(dataset: Path, tmp_path: Path) -> None:
    mdsx.export("parquet", dataset, tmp_path / "out", columns=["cls", "tags"], file_size="40kB")
    expected = [(sample(n)["cls"], sample(n)["tags"]) for n in range(200)]
    assert pl.read_parquet(tmp_path / "out" / "*.parquet").rows() == expected
    assert duckdb.read_parquet(str(tmp_path / "out" / "*.parquet")).fetchall() == expected


def test_an_export_is_read_in_place_again(dataset: Path, tmp_path: Path) -> None:
    mdsx.export("parquet", dataset, tmp_path / "out", file_size="40kB")
    mdsx.index_parquet(tmp_path / "out")
    found = mdsx.Dataset(tmp_path / "out", cache=tmp_path / "cache")
    assert [each["txt"] for each in found] == [sample(n)["txt"] for n in range(200)]
    assert set(found.columns) == set(COLUMNS)


@pytest.mark.parametrize("compression", ["snappy", "none", "gzip:9", "zstd:19"])
def test_compression_and_row_groups_may_be_chosen(tmp_path: Path, compression: str) -> None:
    path = write(tmp_path / "in", {"x": "int64"}, ({"x": n} for n in range(40_000)))
    mdsx.export("parquet", path, tmp_path / "out", compression=compression, row_group_size="200kB")
    metadata = pq.read_metadata(tmp_path / "out" / "data-00000.parquet")
    assert metadata.num_row_groups == 2
    name = compression.partition(":")[0].upper().replace("NONE", "UNCOMPRESSED")
    assert metadata.row_group(0).column(0).compression == name


def test_row_groups_may_be_smaller_than_what_is_read_at_once(tmp_path: Path) -> None:
    path = write(tmp_path / "in", {"x": "str"}, ({"x": "a" * 1000} for n in range(2000)))
    mdsx.export("parquet", path, tmp_path / "out", row_group_size="64KiB")
    metadata = pq.read_metadata(tmp_path / "out" / "data-00000.parquet")
    rows = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    assert sum(rows) == 2000
    assert all(count * 1000 <= 2**16 for count in rows)
    assert len(rows) < 40


@pytest.mark.parametrize("converted", [False, True])
def test_the_null_type_of_a_first_file_yields_to_the_type_of_a_later_one(tmp_path: Path, converted: bool) -> None:
    """In place, and in the schema that a conversion keeps."""
    (tmp_path / "in").mkdir()
    empty, times = pa.nulls(3), pa.array([1, 2, None], pa.timestamp("ms"))
    nested = pa.array([{"k": 1}, None, {"k": 2}])
    for number, (at, any_value) in enumerate(((empty, empty), (times, empty), (empty, nested))):
        columns = {"at": at, "json": any_value, "none": empty}
        pq.write_table(pa.table(columns), tmp_path / "in" / f"{number}.parquet")
    mdsx.index_parquet(tmp_path / "in")
    given = mdsx.Dataset(tmp_path / "in", cache=tmp_path / "cache")
    if converted:
        mdsx.convert("parquet", tmp_path / "in", tmp_path / "converted")
        given = mdsx.Dataset(tmp_path / "converted")
    mdsx.export("parquet", given, tmp_path / "out")
    some = [None] * 3
    expected = {"at": some + times.to_pylist() + some, "json": some * 2 + nested.to_pylist(), "none": some * 3}
    schema = pa.schema([("at", times.type), ("json", nested.type), ("none", pa.null())])
    assert back(tmp_path / "out").equals(pa.table(expected, schema))


def test_bfloat16_becomes_float(tmp_path: Path) -> None:
    values = np.array([0.5, -2], np.float32)
    path = write(tmp_path / "in", {"x": "bfloat16[2]"}, [{"x": values.tolist()}])
    mdsx.export("parquet", path, tmp_path / "out")
    assert back(tmp_path / "out").equals(pa.table({"x": pa.array([values], pa.list_(pa.float32(), 2))}))
