"""`format("mdsx")` with a real Spark: types, columns, other stored formats, save modes, and what it refuses."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import mdsx
from mdsx.datasets import excerpt_of
from mdsx.format import filenames
from mdsx.storage import open_storage

VALUES: dict[str, tuple[str, str, list[Any], str]] = {
    "bool": ("bool", "boolean", [True, False, True], "bool"),
    "int8": ("int8", "tinyint", [-128, 0, 127], "int8"),
    "uint8": ("uint8", "smallint", [0, 7, 255], "uint8"),
    "uint16": ("uint16", "int", [0, 7, 2**16 - 1], "uint16"),
    "uint32": ("uint32?", "bigint", [0, None, 2**32 - 1], "uint32?"),
    "uint64": ("uint64", "decimal(20,0)", [0, 7, 2**64 - 1], "str"),
    "float16": ("float16", "float", [0.5, -1.0, 2.0], "float32"),
    "float64": ("float64?", "double", [0.1, None, -1e300], "float64?"),
    "text": ("str?", "string", ["ä", None, ""], "str?"),
    "bytes": ("bytes?", "binary", [b"\0", None, b""], "bytes?"),
    "json": ("json", "string", [{"a": 1}, [1, "b"], None], "str"),
    "tensor": ("uint8[2,2]", "array<array<smallint>>", [[[0, 255], [1, 2]]] * 3, "uint8[2,2]"),
    "varying": ("int64[*]?", "array<bigint>", [[1, 2], None, []], "int64[*]?"),
    "texts": ("str[*]", "array<string>", [["a", "ä"], [], [""]], "str[*]"),
}
"""Column -> its type, Spark's type for it, three values, and the type in which they are written again."""


def plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value.item() if isinstance(value, np.generic) else value


def samples(url: str | Path) -> list[dict[str, Any]]:
    return [{name: plain(value) for name, value in sample.items()} for sample in mdsx.Dataset(url)]


def numbers(url: str | Path) -> list[int]:
    return [int(sample["id"]) for sample in mdsx.Dataset(url)]


def read(spark: Any, url: str | Path, **options: str) -> Any:
    return spark.read.format("mdsx").options(**options).load(str(url))


def save(df: Any, url: str | Path, mode: str = "append", **options: str) -> None:
    df.write.format("mdsx").mode(mode).options(**options).save(str(url))


def refused(call: Any) -> str:
    """Return the message of the error of a call, which Spark brings from a process of its own."""
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as caught:
        call()
    return str(caught.value)


def test_what_is_read_and_written_is_the_same(spark: Any, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    with mdsx.Writer(first, {name: kind for name, (kind, *_) in VALUES.items()}) as out:
        for number in range(3):
            out.write({name: values[number] for name, (_, _, values, _) in VALUES.items()})
    df = read(spark, first)
    assert dict(df.dtypes) == {name: kind for name, (_, kind, *_) in VALUES.items()}
    save(df, second, columns=json.dumps({name: kind for name, (*_, kind) in VALUES.items()}))
    texts: dict[str, Callable[[Any], Any]] = {
        "uint64": str,
        "json": lambda value: json.dumps(value, separators=(",", ":")),
    }
    expected = [{name: texts.get(name, plain)(value) for name, value in sample.items()} for sample in samples(first)]
    assert samples(second) == expected


def test_columns_are_chosen_and_partitions_have_about_a_size(spark: Any, tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path, {"id": "int64", "data": "bytes"}, shard_size=2000) as out:
        for number in range(100):
            out.write({"id": number, "data": bytes(100)})
    df = read(spark, tmp_path, columns='{"number": "id"}', partition_size="4kB")
    assert df.columns == ["number"]
    assert [row.number for row in df.collect()] == list(range(100))
    partitions = df.selectExpr("spark_partition_id() AS part").distinct().count()
    assert 3 <= partitions <= 6 < len(excerpt_of(mdsx.Dataset(tmp_path)).shards.index.counts)


def test_a_dataframe_has_the_dataset_as_it_was_at_load(spark: Any, tmp_path: Path) -> None:
    save(spark.range(0, 10, 1, 2), tmp_path)
    before = mdsx.Dataset(tmp_path).fingerprint
    df, pinned = read(spark, tmp_path), read(spark, tmp_path, snapshot=before)
    with mdsx.Writer(tmp_path / "part-00007", {"id": "int64"}) as out:
        out.write({"id": 10})
    mdsx.append(tmp_path, "part-00007")
    connect = "connect" in type(spark).__module__  # it calls the source for each job
    assert [df.count(), pinned.count(), read(spark, tmp_path).count()] == [11 if connect else 10, 10, 11]
    save(spark.range(3), tmp_path, "overwrite")
    assert "MissingError" in refused(pinned.collect)


def test_other_stored_formats_are_read_in_place(spark: Any, tmp_path: Path) -> None:
    golden = Path(__file__).parents[2] / "foreign" / "mds" / "golden" / "hashes"
    texts = [row.txt for row in read(spark, golden, columns="txt").collect()]
    assert texts == [sample["txt"] for sample in mdsx.Dataset(golden, columns=["txt"])]
    (tmp_path / "parquet").mkdir()
    pa.parquet.write_table(pa.table({"id": range(100)}), tmp_path / "parquet" / "a.parquet", row_group_size=30)
    mdsx.index_parquet(tmp_path / "parquet")
    assert [row.id for row in read(spark, tmp_path / "parquet").collect()] == list(range(100))
    (tmp_path / "tars").mkdir()
    with tarfile.open(tmp_path / "tars" / "a.tar", "w") as tar:
        for number in range(5):
            member = tarfile.TarInfo(f"{number:03}.txt")
            member.size = 1
            tar.addfile(member, BytesIO(str(number).encode()))
    mdsx.index_tars(str(tmp_path / "tars" / "a.tar"))
    assert [row.txt for row in read(spark, tmp_path / "tars", columns="txt").collect()] == list("01234")


def test_datasets_without_samples_are_read_and_written(spark: Any, tmp_path: Path) -> None:
    save(spark.range(0), tmp_path)
    assert len(mdsx.Dataset(tmp_path)) == 0
    assert read(spark, tmp_path).collect() == []


def test_append_refuses_a_dataset_before_a_task_starts(spark: Any, tmp_path: Path) -> None:
    save(
        spark.range(10),
        tmp_path / "out",
        metadata='{"made": "here"}',
        shard_size="1kB",
        compression="zstd",
        lengths="id",
    )
    assert mdsx.Dataset(tmp_path / "out").metadata == {"made": "here"}
    assert (tmp_path / "out" / "_lengths" / "id.u32").exists()
    message = refused(lambda: save(noted(spark, tmp_path), tmp_path / "out"))
    assert "there is a dataset already" in message
    assert str(tmp_path / "out") in message
    assert not (tmp_path / "started").exists()


def test_overwrite_replaces_a_dataset_at_the_end(spark: Any, tmp_path: Path) -> None:
    save(spark.range(10), tmp_path / "out")
    save(noted(spark, tmp_path), tmp_path / "out", "overwrite")
    assert (tmp_path / "started").read_text() == "10"  # the old dataset, read by a task of the new one
    assert numbers(tmp_path / "out") == [0, 1, 2]
    save(read(spark, tmp_path / "out").selectExpr("id + 1 AS id"), tmp_path / "out", "overwrite")  # of itself
    assert numbers(tmp_path / "out") == [1, 2, 3]


def noted(spark: Any, folder: Path) -> Any:
    """Return rows whose task writes down how many samples the dataset has at that time."""

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        (folder / "started").write_text(str(len(mdsx.Dataset(folder / "out"))))
        yield from batches

    return spark.range(0, 3, 1, 1).mapInArrow(rows, "id long")


def test_a_failed_overwrite_leaves_the_dataset(spark: Any, tmp_path: Path) -> None:
    def fails(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        for batch in batches:
            yield batch
            if TaskContext.get().partitionId() == 1:
                raise ValueError("this row is wrong")

    save(spark.range(10), tmp_path)
    before = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    rows = spark.range(0, 100, 1, 2).mapInArrow(fails, "id long")
    assert "this row is wrong" in refused(lambda: save(rows, tmp_path, "overwrite"))
    assert numbers(tmp_path) == list(range(10))
    assert set(before) <= set(tmp_path.rglob("*"))
    assert not open_runs(tmp_path)


def open_runs(url: Path) -> list[str]:
    found = open_storage(str(url)).list(filenames.RUNS)
    return [entry.key for entry in found if filenames.parse_run_sign(entry.key)]


def test_a_value_that_does_not_fit_names_its_column(spark: Any, tmp_path: Path) -> None:
    message = refused(lambda: save(spark.range(300), tmp_path, columns='{"id": "uint8"}'))
    assert "column 'id'" in message
    assert not list(tmp_path.rglob("index.json"))


def test_the_errors_of_a_read_name_the_place_and_the_way_out(spark: Any, tmp_path: Path) -> None:
    missing = refused(lambda: read(spark, tmp_path / "nothing").schema)
    assert str(tmp_path / "nothing") in missing
    save(spark.range(10), tmp_path / "out")
    assert "there is no such column (expected id)" in refused(
        lambda: read(spark, tmp_path / "out", columns="number").schema
    )
    given = spark.read.format("mdsx").schema("id string")
    assert "remove .schema(...)" in refused(lambda: given.load(str(tmp_path / "out")).collect())
    assert "needs the URL of a dataset" in refused(lambda: spark.read.format("mdsx").load().schema)


def test_spark_refuses_a_write_without_a_mode(spark: Any, tmp_path: Path) -> None:
    message = refused(lambda: spark.range(3).write.format("mdsx").save(str(tmp_path)))
    assert 'use either the "Append" or "Overwrite" mode' in message
