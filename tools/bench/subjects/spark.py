"""Spark: a DataFrame written as a dataset, against a job that drops its rows in Python. Needs Java."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tools.bench.measure import Figures, timed
from tools.bench.subject import Contestant, Subject
from tools.bench.subjects import call
from tools.peers import Lazy
from tools.workloads import sample

pyarrow, parquet, sql = Lazy("pyarrow"), Lazy("pyarrow.parquet"), Lazy("pyspark.sql")
_FILES, _SAMPLES = 4, {"text": 400_000, "bytes": 6_000, "records": 400_000}


def subjects(scale: float) -> list[Subject]:
    sizes = {kind: max(int(samples * scale), 100) for kind, samples in _SAMPLES.items()}
    made = call(prepare_frames, sizes=sizes)

    def job(name: str, kind: str, function: str) -> Contestant:
        what = replace(call(job_of, sizes=sizes, job=function), environment="spark")
        return Contestant(name, what, made, kind)

    return [
        Subject(
            name="spark",
            title="Spark: a DataFrame written as a dataset",
            figure="text/s",
            more=("bytes/s", "records/s"),
            contestants=[job("mdsx", "mdsx", "write"), job("mapInArrow that drops all rows", "limit", "drop")],
            limit=300.0,
            note=f"{_FILES} partitions of Parquet files on two cores, rows a second, after a job of the same kind. "
            "Bytes are the images; records have a text, two numbers and a list.",
        )
    ]


def prepare_frames(data: str, sizes: dict[str, int]) -> Figures:
    for kind, samples in sizes.items():
        rows = map(partial(sample, "images" if kind == "bytes" else "text"), range(samples))
        table = pyarrow.Table.from_pylist([_record(each) if kind == "records" else each for each in rows])
        Path(data, kind).mkdir()
        each = -(-samples // _FILES)
        for first in range(0, samples, each):
            parquet.write_table(table.slice(first, each), f"{data}/{kind}/{first:09}.parquet")
    return {}


def _record(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "score": row["id"] / 7, "tags": [row["id"], 1, 2]}


def job_of(data: str, sizes: dict[str, int], job: str) -> Figures:
    """Each DataFrame written, or dropped, twice: the first time starts Spark's Python."""
    from mdsx.engines.spark import write

    scratch = tempfile.mkdtemp()
    os.chdir(scratch)  # Spark leaves files where it runs
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_DIRS": scratch, "SPARK_LOCAL_IP": "127.0.0.1"}
    builder = sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = builder.config("spark.driver.memory", "6g").getOrCreate()  # it reads 4,096 images at a time
    figures: Figures = {}
    for kind, samples in sizes.items():
        frame = session.read.parquet(f"{data}/{kind}")

        def run(frame: Any = frame, kind: str = kind) -> None:
            if job == "write":
                write(frame, f"{scratch}/{kind}", mode="replace")
            else:
                frame.mapInArrow(_dropped, frame.schema).count()

        run()
        _, took = timed(run)
        figures[f"{kind}/s"] = samples / took
    session.stop()
    return figures


def _dropped(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        yield batch.slice(0, 0)
