"""Write a Spark DataFrame as a dataset, every row once, and read it.

pip install 'mdsx[spark]'
python spark_write.py folder
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

import mdsx
from mdsx.engines.spark import columns_of, write


def main(folder: str) -> None:
    spark = SparkSession.builder.master("local[2]").getOrCreate()
    rows = spark.range(1000).selectExpr("id", "concat('document ', id) AS text", "array(0.5f, float(id)) AS vector")
    columns = {**columns_of(rows), "vector": "float32[2]"}  # all vectors have two items, which Spark does not know
    written = write(rows.coalesce(1), f"{folder}/corpus", columns)  # so little is one shard
    spark.stop()
    print(written.samples, "samples in", written.shards, "shard:", dict(written.columns))
    loader = mdsx.Loader(f"{folder}/corpus", 100, cache=f"{folder}/cache")
    seen = sorted(int(number) for batch in loader for number in batch["id"])
    print("one epoch has every row once:", seen == list(range(1000)))


if __name__ == "__main__":
    main(sys.argv[1])
