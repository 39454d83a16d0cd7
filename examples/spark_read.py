"""Read a dataset with Spark 4, select samples with SQL, and write them as another dataset.

    pip install 'mdsx[spark]'
    python spark_read.py folder

`mdsx.engines.spark.write` writes DataFrames of Spark 3.4 and later, see spark_write.py; `format("mdsx")` needs Spark 4.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

import mdsx
import mdsx.engines.spark

SAMPLES = 1000


def write_corpus(url: Path) -> None:
    with mdsx.Writer(url, {"id": "int64", "text": "str", "score": "float32"}) as out:
        for number in range(SAMPLES):
            out.write({"id": number, "text": f"document {number}", "score": number % 10 / 10})


def main(folder: Path) -> None:
    write_corpus(folder / "corpus")
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    mdsx.engines.spark.register(spark)
    documents = spark.read.format("mdsx").option("columns", "id,score").load(f"{folder}/corpus")
    print(f"{documents.count()} samples: {documents.schema.simpleString()}")
    best = documents.where("score > 0.75").repartition(2)
    best.write.format("mdsx").mode("overwrite").save(f"{folder}/best")
    spark.stop()
    selected = mdsx.Dataset(folder / "best")
    print(f"{len(selected)} samples: {dict(selected.columns)}")
    print("the best are there once:", sorted(int(sample["id"]) for sample in selected) == best_numbers())
    print("verified:", mdsx.verify(folder / "best").ok)


def best_numbers() -> list[int]:
    return [number for number in range(SAMPLES) if number % 10 >= 8]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
