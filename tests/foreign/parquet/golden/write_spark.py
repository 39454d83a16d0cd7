"""Write golden/spark, with pyspark 4 (needs Java): `python write_spark.py`, in an environment of its own."""

from __future__ import annotations

import datetime
import shutil
from decimal import Decimal
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import types as t

OUT = Path(__file__).parent / "spark"

SCHEMA = t.StructType(
    [
        t.StructField("id", t.LongType(), False),
        t.StructField("small", t.ShortType()),
        t.StructField("text", t.StringType()),
        t.StructField("data", t.BinaryType()),
        t.StructField("time", t.TimestampType()),
        t.StructField("day", t.DateType()),
        t.StructField("price", t.DecimalType(10, 2)),
        t.StructField("tokens", t.ArrayType(t.IntegerType(), False), False),
        t.StructField("tags", t.ArrayType(t.StringType())),
        t.StructField("point", t.StructType([t.StructField("x", t.DoubleType()), t.StructField("y", t.DoubleType())])),
        t.StructField("counts", t.MapType(t.StringType(), t.LongType())),
    ]
)
UTC = datetime.UTC
TIMES = [datetime.datetime(2024, 2, 29, 12, 30, 0, 123456, UTC), datetime.datetime(9999, 12, 31, tzinfo=UTC), None]


def row(number: int) -> tuple[object, ...]:
    return (
        number,
        number - 5,
        None if number % 4 == 3 else f"text {number} ü",
        bytes([number, 0, 255]),
        TIMES[number % 3],
        datetime.date(1969, 12, 31) + datetime.timedelta(number),
        Decimal(number * 125) / 100,
        list(range(number % 5)),
        [f"tag {number}"] * (number % 3),
        {"x": number / 2, "y": None},
        {"a": number},
    )


if __name__ == "__main__":
    shutil.rmtree(OUT, ignore_errors=True)
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    frame = spark.createDataFrame([row(number) for number in range(12)], SCHEMA)
    frame.repartitionByRange(2, "id").sortWithinPartitions("id").write.parquet(str(OUT))
    spark.stop()
