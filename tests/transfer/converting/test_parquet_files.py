"""`mdsx convert parquet` copies the rows of Parquet files as they are read in place, in batches."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mdsx
from mdsx import CorruptError, Dataset, MissingError, SampleError, UsageError
from mdsx.storage import open_storage

ROWS = 300


def table(first: int = 0, rows: int = ROWS) -> pa.Table:
    numbers = range(first, first + rows)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int32()),
            "text": [f"text {number}" for number in numbers],
            "tokens": pa.array([list(range(number % 5)) for number in numbers], pa.list_(pa.uint16())),
            "when": pa.array([datetime.datetime(2020, 1, 1) for _ in numbers], pa.timestamp("ms")),
            "price": pa.array([decimal.Decimal(number) / 4 for number in numbers], pa.decimal128(10, 2)),
            "nested": [{"a": number, "b": None} for number in numbers],
            "perhaps": pa.array([None if number % 3 else number / 2 for number in numbers], pa.float64()),
        }
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    (data / "more").mkdir(parents=True)
    pq.write_table(table(), data / "a.parquet", row_group_size=70)
    pq.write_table(table(ROWS), data / "more" / "b.parquet", row_group_size=1000)
    pq.write_table(table(), data / "_temporary.parquet")
    return data


def columns_of(samples: Any) -> dict[str, list[Any]]:
    return {name: [np.asarray(sample[name]).tolist() for sample in samples] for name in samples[0]}


def test_the_samples_are_those_that_are_read_in_place(folder: Path, tmp_path: Path) -> None:
    made = mdsx.convert("parquet", str(folder), tmp_path / "out")
    mdsx.index_parquet(folder)
    place = Dataset(folder, cache=tmp_path / "cache")
    assert made.samples == 2 * ROWS
    assert dict(Dataset(tmp_path / "out").columns) == dict(place.columns) == dict(made.columns)
    assert columns_of(list(Dataset(tmp_path / "out"))) == columns_of(list(place))


def test_any_number_of_processes_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    for processes in (1, 2):
        mdsx.convert("parquet", str(folder), tmp_path / str(processes), shard_size="4KB", num_workers=processes)
    files = [
        {str(path.relative_to(tmp_path / one)): path.read_bytes() for path in (tmp_path / one).rglob("*.*")}
        for one in ("1", "2")
    ]
    assert files[0] == files[1]
    assert "part-00002/index.json" in files[0]


def test_parquet_comes_back_with_values_and_types(folder: Path, tmp_path: Path) -> None:
    mdsx.convert("parquet", str(folder), tmp_path / "out", rename={"number": "id"}, drop=["text"])
    mdsx.export("parquet", tmp_path / "out", tmp_path / "again")
    again = pq.read_table(tmp_path / "again")
    expected = pa.concat_tables([table(), table(ROWS)]).drop_columns(["text"])
    expected = expected.rename_columns(["number", *expected.column_names[1:]])
    assert again.schema.types == expected.schema.types
    assert again.to_pylist() == expected.to_pylist()


def test_columns_are_declared_renamed_and_dropped(folder: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"rename": {"n": "id"}, "drop": ["nested", "price", "when", "perhaps"]}
    made = mdsx.convert("parquet", f"{folder}/a.parquet", tmp_path / "out", columns={"n": "uint16"}, **options)
    assert list(made.columns) == ["n", "text", "tokens"]
    assert (made.columns["n"], made.columns["text"]) == ("uint16", "str")
    for wrong, problem in (
        ({"drop": ["lost"]}, "names a column that does not exist"),
        ({"nan": "null"}, "has no such option"),
    ):
        with pytest.raises(UsageError, match=problem):
            mdsx.convert("parquet", f"{folder}/a.parquet", tmp_path / "wrong", **wrong)


def test_a_value_that_does_not_fit_names_file_row_and_column(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": list(range(1000))}), tmp_path / "a.parquet", row_group_size=400)
    with pytest.raises(
        SampleError, match=r"a\.parquet: row group 0, row 256, column 'x': does not fit uint8 .*--column"
    ):
        mdsx.convert("parquet", f"{tmp_path}/a.parquet", tmp_path / "out", columns={"x": "uint8"})
    made = mdsx.convert("parquet", f"{tmp_path}/a.parquet", tmp_path / "some", columns={"x": "uint8"}, on_error="skip")
    assert (made.samples, made.skipped) == (256, 744)


def test_a_damaged_row_group_is_named_and_can_be_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(
        pa.table({"x": list(range(900))}),
        path,
        row_group_size=300,
        write_page_checksum=True,
        compression=None,
        use_dictionary=False,
    )
    data = bytearray(path.read_bytes())
    data[data.index(np.arange(310, 320).tobytes())] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptError, match=r"a\.parquet: row group 1"):
        mdsx.convert("parquet", str(path), tmp_path / "out")
    made = mdsx.convert("parquet", str(path), tmp_path / "some", on_error="skip")
    assert (made.samples, made.skipped) == (600, 300)


def test_rows_that_a_damaged_page_header_hides_are_named_and_counted(tmp_path: Path) -> None:
    """Arrow returns fewer rows without an error, if no other column is read."""
    path = tmp_path / "a.parquet"
    table = pa.table({"id": range(9000), "text": [f"document {number}" for number in range(9000)]})
    plain: dict[str, Any] = {"use_dictionary": False, "compression": None, "write_statistics": False}
    pq.write_table(table, path, write_page_checksum=True, data_page_size=20_000, **plain)
    whole, start = path.read_bytes(), pq.read_metadata(path).row_group(0).column(1).data_page_offset
    hidden = 0
    for bit in range(8 * 30):
        data = bytearray(whole)
        data[start + bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        made = mdsx.convert("parquet", str(path), tmp_path / str(bit), drop="id", on_error="skip")
        assert made.samples + made.skipped == 9000, bit
        if 0 < made.skipped < 9000:
            hidden += 1
            with pytest.raises(CorruptError, match=r"a\.parquet: row group 0: .* differs from the footer, so samples"):
                mdsx.convert("parquet", str(path), tmp_path / "out", drop="id")
    assert hidden


def test_files_that_are_missing_or_of_other_columns_are_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(MissingError, match=r"no \*\.parquet is in this folder"):
        mdsx.convert("parquet", str(tmp_path / "empty"), tmp_path / "out")
    with pytest.raises(MissingError):
        mdsx.convert("parquet", f"{folder}/lost.parquet", tmp_path / "out")
    pq.write_table(pa.table({"other": [1]}), folder / "c.parquet")
    with pytest.raises(UsageError, match="the files have different columns"):
        mdsx.convert("parquet", str(folder), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_only_the_columns_that_are_kept_must_be_the_same(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["a"], "meta": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"text": ["b"], "meta": ["z"], "extra": [1]}), tmp_path / "b.parquet")
    given = str(tmp_path / "*.parquet")
    made = mdsx.convert("parquet", given, tmp_path / "out", drop=["meta", "extra"])
    assert list(Dataset(made.url)) == [{"text": "a"}, {"text": "b"}]
    assert mdsx.tokenize(given, tmp_path / "tokens", "bytes").documents == 2
    for drop, problem in (
        (["meta"], "column 'extra': the files have different columns"),
        (["meta", "extra", "lost"], "--drop names a column that does not exist"),
        (["meta", "extra", "text"], "no column is left"),
    ):
        with pytest.raises(UsageError, match=problem):
            mdsx.convert("parquet", given, tmp_path / "wrong", drop=drop)


def test_from_s3_to_s3(folder: Path, s3_url: str, tmp_path: Path) -> None:
    storage = open_storage(f"{s3_url}/data", write=True)
    for path in folder.rglob("*.parquet"):
        storage.put(str(path.relative_to(folder)), path.read_bytes())
    assert mdsx.convert("parquet", f"{s3_url}/data", f"{s3_url}/out").samples == 2 * ROWS
    mdsx.convert("parquet", str(folder), tmp_path / "out")
    assert Dataset(f"{s3_url}/out", cache=tmp_path / "cache").fingerprint == Dataset(tmp_path / "out").fingerprint
