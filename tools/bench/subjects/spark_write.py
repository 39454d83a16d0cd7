"""Writing a Spark DataFrame: mdsx, mosaicml-streaming's converter, and Spark's own Parquet, with the same tasks.

The DataFrame is in memory. A write of a few rows comes first, so that Spark and its Python workers have started.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from tools.bench.measure import Figures, cpu_seconds, timed
from tools.bench.subject import Contestant, Goal, Subject
from tools.peers import Lazy
from tools.processes import Call

sql, engine, converters = Lazy("pyspark.sql"), Lazy("mdsx.engines.spark"), Lazy("streaming.base.converters")
_ROWS = {"text": 400_000, "vectors": 400_000}
_COLUMNS = {
    "text": ("id", "repeat(sha2(string(id), 256), 10) AS text"),
    "vectors": (
        "id",
        "repeat(sha2(string(id), 256), 2) AS text",
        "transform(sequence(0, 127), x -> nullif(float(x * id), -1f)) AS v",  # mosaicml refuses arrays without nulls
    ),
}
_MDS = {"id": "int64", "text": "str", "v": "ndarray:float32"}
_TASKS, _CORES, _WARM = 4, 2, 1000


def subjects(scale: float) -> tuple[Subject, ...]:
    return tuple(_subject(kind, max(int(rows * scale), _WARM)) for kind, rows in _ROWS.items())


def _subject(kind: str, rows: int) -> Subject:
    def one(name: str, way: str, environment: str = "spark", shown: str = "peer") -> Contestant:
        arguments = {"way": way, "kind": kind, "rows": rows}
        return Contestant(name, Call(f"{__name__}:measure", arguments, environment), kind=shown)

    mdsx = one("mdsx", "mdsx", shown="mdsx")
    mosaicml = one("mosaicml", "mosaicml", "spark-mosaicml")
    parquet = [one("Parquet, uncompressed", "none"), one("Parquet, snappy", "snappy")]
    text = f"Spark, {kind}, write a DataFrame"
    return Subject(
        name=f"spark-write-{kind}",
        title=f"{text} of {rows:,} rows, {_TASKS} tasks on {_CORES} cores",
        contestants=[mdsx, mosaicml, *parquet],
        goals=[
            Goal(f"{text}: 5 x mosaicml's converter", mdsx.name, (mosaicml.name,), at_least=5),
            Goal(f"{text}: 0.6 of uncompressed Parquet", mdsx.name, (parquet[0].name,), at_least=0.6),
        ],
        figure="rows/s",
        more=("cpu s",),
        limit=300,
        note="All without compression but for snappy. mdsx alone writes checksums and syncs each shard to disk.",
    )


def measure(way: str, kind: str, rows: int) -> Figures:
    """Return the rate of one write, after one that warms up; "mdsx", "mosaicml", or a codec of Parquet."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {"spark.ui.enabled": "false", "spark.driver.memory": "4g"}
    if way == "mosaicml":
        from tools.peers.mosaicml import PEER

        PEER.warm()
        settings["spark.python.daemon.module"] = "tools.bench.spark_daemon"
    session = sql.SparkSession.builder.master(f"local[{_CORES}]").config(map=settings).getOrCreate()
    frames = []
    for count in (_WARM, rows):
        frames.append(session.range(0, count, 1, _TASKS).selectExpr(*_COLUMNS[kind]).cache())
        frames[-1].count()
    write = _writer(way)
    write(frames[0], tempfile.mkdtemp())
    before = cpu_seconds()
    _, took = timed(lambda: write(frames[1], tempfile.mkdtemp()))
    used = cpu_seconds() - before
    session.stop()
    return {"rows/s": rows / took, "cpu s": used}


def _writer(way: str) -> Callable[[Any, str], object]:
    if way == "mdsx":
        return lambda frame, folder: engine.write(frame, f"{folder}/out")
    if way == "mosaicml":
        return lambda frame, folder: converters.dataframe_to_mds(
            frame,
            mds_kwargs={
                "out": f"{folder}/out",
                "columns": {name: _MDS[name] for name in frame.columns},
                "compression": None,
            },
        )
    return lambda frame, folder: frame.write.option("compression", way).parquet(f"{folder}/out")
