"""`mdsx.engines.spark.write` with a real Spark: rows, types, partitions, and what it refuses before a job starts."""

from __future__ import annotations

import decimal
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mdsx
from mdsx.engines.spark import columns_of, write
from mdsx.engines.spark_batches import MOST, SETTING

ROWS = 1000
TYPES = [
    ("CAST(1 AS tinyint)", "int8", 1),
    ("true", "bool", True),
    ("2.5f", "float32", 2.5),
    ("2.5d", "float64", 2.5),
    ("X'ff00'", "bytes", b"\xff\x00"),
    ("CAST('1.10' AS decimal(10, 2))", "str", "1.10"),
    ("DATE'1970-01-11'", "int32", 10),
    ("TIMESTAMP'1970-01-01 00:00:01.000002+00:00'", "int64", 1_000_002),
    ("TIMESTAMP_NTZ'1970-01-01 00:00:01'", "int64", 1_000_000),
    ("INTERVAL '1' SECOND", "int64", 1_000_000),
    ("array(1.5f, 2.5f)", "float32[*]", [1.5, 2.5]),
    ("array('a', 'b')", "str[*]", ["a", "b"]),
    ("struct(1 AS one, DATE'1970-01-02' AS day)", "json", {"one": 1, "day": 1}),
    ("map('key', 1)", "json", {"key": 1}),
    ("array(array(1), array(2, 3))", "json", [[1], [2, 3]]),
    ("struct(X'ff' AS data)", "msgpack", {"data": b"\xff"}),
    ("CAST(NULL AS string)", "str", None),
    ("NULL", "json", None),
]
"""Expressions, and the type and value that they are stored as."""


def numbers(url: str | Path) -> list[int]:
    return [int(sample["id"]) for sample in mdsx.Dataset(url)]


def parts(url: Path) -> list[str]:
    return sorted(path.name[: len("part-00000")] for path in url.glob("run-*/part-*"))


def test_every_row_is_written_once_in_the_order_of_the_partitions(spark: Any, tmp_path: Path) -> None:
    df = spark.range(0, ROWS, 1, 3).selectExpr("id", "concat('row ', id) AS text")
    written = write(df, str(tmp_path / "out"), metadata={"made": "here"}, lengths=["text"])
    assert numbers(tmp_path / "out") == list(range(ROWS))
    assert mdsx.Dataset(tmp_path / "out")[7] == {"id": 7, "text": "row 7"}
    assert (written.samples, written.shards, written.columns) == (ROWS, 3, {"id": "int64", "text": "str"})
    assert mdsx.Dataset(tmp_path / "out").metadata == {"made": "here"}
    assert mdsx.verify(tmp_path / "out").ok
    names = sorted(path.name for path in (tmp_path / "out").iterdir() if not path.name.startswith("run-"))
    assert names == ["_lengths", "index.json"]
    assert mdsx.write_lengths(tmp_path / "out", "text").sum == sum(len(f"row {row}") for row in range(ROWS))


def test_a_partition_of_several_batches_and_shards_is_one_part(spark: Any, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    try:
        written = write(spark.range(0, ROWS, 1, 2), str(tmp_path / "out"), shard_size=2000, compression="zstd")
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert written.shards > 4
    assert numbers(tmp_path / "out") == list(range(ROWS))
    assert parts(tmp_path / "out") == ["part-00000", "part-00001"]


def test_large_rows_are_sent_a_few_at_a_time(spark: Any, tmp_path: Path) -> None:
    """Spark 3 cannot limit the bytes."""
    df = sizes_seen(spark, tmp_path / "sizes")
    write(df, str(tmp_path / "out"))
    assert spark.conf.get(SETTING, None) is None
    assert len(mdsx.Dataset(tmp_path / "out")) == 40
    sizes = [int(line) for line in (tmp_path / "sizes").read_text().split()]
    if int(spark.version.partition(".")[0]) >= 4:
        assert len(sizes) > 5
        assert max(sizes) < MOST + 2_000_000
    else:
        assert len(sizes) == 1


def test_a_limit_of_the_session_stays(spark: Any, tmp_path: Path) -> None:
    if int(spark.version.partition(".")[0]) < 4:
        pytest.skip("Spark 3 has no such limit")
    spark.conf.set(SETTING, str(2**30))
    try:
        write(sizes_seen(spark, tmp_path / "sizes"), str(tmp_path / "out"))
        assert spark.conf.get(SETTING) == str(2**30)
    finally:
        spark.conf.unset(SETTING)
    assert int((tmp_path / "sizes").read_text()) > 40_000_000  # one batch


def test_a_failed_write_removes_the_limit(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="does not fit int64"):
        write(spark.sql("SELECT nullif(id, 1) AS id FROM range(3)"), str(tmp_path / "out"), {"id": "int64"})
    assert spark.conf.get(SETTING, None) is None


def sizes_seen(spark: Any, file: Path) -> Any:
    """Return a DataFrame of 40 rows of 1 MB, in one partition. When it is computed, the size of each batch that Spark
    sends to Python is written to `file`."""

    def seen(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            with file.open("a") as out:
                print(batch.nbytes, file=out)
            yield batch

    rows = spark.range(0, 40, 1, 1).selectExpr("id", "repeat('x', 1000000) AS text")
    return rows.mapInArrow(seen, "id long, text string")


def test_partitions_without_rows_leave_nothing(spark: Any, tmp_path: Path) -> None:
    df = spark.range(0, ROWS, 1, 4)
    write(df.where("id < 250 OR id >= 750"), str(tmp_path / "out"))
    assert numbers(tmp_path / "out") == [*range(250), *range(750, ROWS)]
    assert parts(tmp_path / "out") == ["part-00000", "part-00003"]
    assert write(df.where("id < 0"), str(tmp_path / "empty")).samples == 0
    assert len(mdsx.Dataset(tmp_path / "empty")) == 0


def test_unions_coalesced_and_shuffled_partitions_are_numbered_apart(spark: Any, tmp_path: Path) -> None:
    low, high = spark.range(0, 500, 1, 2), spark.range(500, ROWS, 1, 3)
    write(low.union(high), str(tmp_path / "union"))
    assert numbers(tmp_path / "union") == list(range(ROWS))
    assert len(parts(tmp_path / "union")) == 5
    write(low.union(high).coalesce(2), str(tmp_path / "coalesced"))
    assert len(parts(tmp_path / "coalesced")) == 2
    assert sorted(numbers(tmp_path / "coalesced")) == list(range(ROWS))
    write(spark.range(ROWS).groupBy("id").count().orderBy("id").select("id"), str(tmp_path / "sorted"))
    assert numbers(tmp_path / "sorted") == list(range(ROWS))


def test_many_small_shards_are_a_warning_that_says_how_many_partitions_are_enough(spark: Any, tmp_path: Path) -> None:
    df = spark.range(0, ROWS, 1, 16)
    with pytest.warns(UserWarning, match=r"16 shards of [\d,]+ bytes on average.*df\.coalesce\(1\)"):
        many = write(df, str(tmp_path / "many"))
    assert many.bytes == sum(path.stat().st_size for path in (tmp_path / "many").rglob("shard.*"))
    with pytest.warns(UserWarning, match=r"16 shards .*df\.coalesce\(3\)"):
        write(df, str(tmp_path / "three"), shard_size=many.bytes // 3 + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        write(df.coalesce(3), str(tmp_path / "few"))
        write(df, str(tmp_path / "wanted"), shard_size=many.bytes // 16)


def test_names_of_columns_may_have_dots_and_other_signs(spark: Any, tmp_path: Path) -> None:
    write(spark.range(3).selectExpr("id", "id + 1 AS `a.b`", "id + 2 AS `a b`").coalesce(1), str(tmp_path / "out"))
    assert list(mdsx.Dataset(tmp_path / "out")[0].items()) == [("id", 0), ("a.b", 1), ("a b", 2)]


def test_types_are_those_of_the_table(spark: Any, tmp_path: Path) -> None:
    expressions = [f"{expression} AS c{number}" for number, (expression, _, _) in enumerate(TYPES)]
    write(spark.sql(f"SELECT {', '.join(expressions)}"), str(tmp_path / "out"))
    dataset = mdsx.Dataset(tmp_path / "out")
    assert [kind.removesuffix("?") for kind in dataset.columns.values()] == [kind for _, kind, _ in TYPES]
    values = [value.tolist() if hasattr(value, "tolist") else value for value in dataset[0].values()]
    assert values == [value for *_, value in TYPES]


def test_a_question_mark_says_that_there_may_be_nulls(spark: Any) -> None:
    df = spark.range(1).selectExpr("id", "nullif(id, 0) AS maybe", "NULL AS never")
    assert columns_of(df) == {"id": "int64", "maybe": "int64?", "never": "json?"}


def test_given_types_are_stored(spark: Any, tmp_path: Path) -> None:
    df = spark.createDataFrame(
        [(1, [0.5, 1.5], decimal.Decimal("1.5"))], "id long, vector array<float>, d decimal(3,1)"
    )
    columns = {**columns_of(df), "id": "uint8", "vector": "float32[2]"}
    assert columns == {"id": "uint8", "vector": "float32[2]", "d": "str?"}
    write(df, str(tmp_path / "out"), columns)
    assert mdsx.Dataset(tmp_path / "out").columns == columns


@pytest.mark.parametrize(
    ("query", "columns", "place"),
    [
        ("SELECT 1L AS id, INTERVAL '1' YEAR AS age", None, "column 'age'"),
        ("SELECT 1 AS id, 2 AS id", None, "column 'id'"),
        ("SELECT 1 AS id, 'a' AS text", {"id": "int32"}, "text"),
        ("SELECT 1 AS id", {"id": "int32", "text": "str"}, "text"),
        ("SELECT 'a' AS text", {"text": "int64"}, "column 'text'"),
        ("SELECT 1.5d AS number", {"number": "float32"}, "column 'number'"),
        ("SELECT array(1.5d) AS vector", {"vector": "float32[*]"}, "column 'vector'"),
        ("SELECT array(1.5f) AS vector", {"vector": "float32"}, "column 'vector'"),
        ("SELECT X'00' AS data", {"data": "str"}, "column 'data'"),
        ("SELECT 'a' AS text", {"text": "nothing"}, "column 'text'"),
    ],
)
def test_columns_that_cannot_be_written_are_refused_before_the_job(
    query: str, columns: dict[str, str] | None, place: str, spark: Any, tmp_path: Path
) -> None:
    with pytest.raises(mdsx.UsageError, match=place):
        write(spark.sql(query), str(tmp_path / "out"), columns)
    assert not (tmp_path / "out").exists()


def test_vectors_of_spark_ml_are_refused_with_the_cast(spark: Any, tmp_path: Path) -> None:
    from pyspark.ml.linalg import Vectors

    df = spark.createDataFrame([(Vectors.dense([1.0, 2.0]),)], ["features"])
    with pytest.raises(mdsx.UsageError, match=r"(?s)column 'features'.*vector_to_array"):
        write(df, str(tmp_path / "out"))


def test_a_value_that_does_not_fit_fails_the_job_and_leaves_nothing(spark: Any, tmp_path: Path) -> None:
    df = spark.createDataFrame([(1,), (None,)], "id long")
    with pytest.raises(mdsx.SampleError, match=r"^partition \d+, .*column 'id': .*allow null$"):
        write(df, str(tmp_path / "out"), {"id": "int64"})
    assert not list((tmp_path / "out").rglob("*.*"))


def test_a_dataset_that_exists_is_refused_or_replaced(spark: Any, tmp_path: Path) -> None:
    write(spark.range(3), str(tmp_path / "out"))
    with pytest.raises(mdsx.UsageError, match="there is a dataset already"):
        write(spark.range(5), str(tmp_path / "out"))
    write(spark.range(5), str(tmp_path / "out"), mode="replace")
    assert numbers(tmp_path / "out") == list(range(5))


def test_a_stream_is_refused(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(mdsx.UsageError, match="foreachBatch"):
        write(spark.readStream.format("rate").load(), str(tmp_path / "out"))
