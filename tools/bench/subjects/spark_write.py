"""Writing a Spark DataFrame: mdsx, mosaicml-streaming's converter, and Spark's own Parquet, with the same tasks. And
how long Spark takes to send the rows to Python, which no converter in Python can beat.

The DataFrame is in memory. It is written once before, so that Spark and its Python workers have started and the JVM has
compiled what it runs.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tools.bench.measure import Figures, cpu_seconds, timed
from tools.bench.subject import Contestant, Goal, Subject
from tools.peers import Lazy
from tools.processes import Call

sql, engine, converters = Lazy("pyspark.sql"), Lazy("mdsx.engines.spark"), Lazy("streaming.base.converters")
sending = Lazy("mdsx.engines.spark_batches")
_ROWS = {"records": 2_000_000, "text": 1_000_000, "vectors": 400_000, "bytes": 10_000}
_TITLES = {
    "records": "five columns of ids, labels, scores and short text",
    "text": "an id and text of 640 bytes",
    "vectors": "an id, text of 128 bytes and 128 numbers",
    "bytes": "an id and bytes of 19 to 99 kB",
}
_COLUMNS = {
    "records": (
        "id",
        "id * 7 AS parent",
        "int(id % 1000) AS label",
        "float(id) * 0.001f AS score",
        "concat('item ', string(id)) AS name",
    ),
    "text": ("id", "repeat(sha2(string(id), 256), 10) AS text"),
    "vectors": (
        "id",
        "repeat(sha2(string(id), 256), 2) AS text",
        "transform(sequence(0, 127), x -> nullif(float(x * id), -1f)) AS v",  # mosaicml refuses arrays without nulls
    ),
    "bytes": ("id", "unhex(repeat(sha2(string(id), 256), 600 + int(id % 2500))) AS data"),
}
_MDS = {
    "id": "int64",
    "parent": "int64",
    "label": "int32",
    "score": "float32",
    "name": "str",
    "text": "str",
    "v": "ndarray:float32",
    "data": "bytes",
}
_TASKS, _CORES, _FEWEST = 4, 2, 1000
_NOTHING = "Spark sends the rows to Python"


def subjects(scale: float) -> tuple[Subject, ...]:
    return tuple(_subject(kind, max(int(rows * scale), _FEWEST)) for kind, rows in _ROWS.items())


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
        title=f"Spark, write a DataFrame of {rows:,} rows: {_TITLES[kind]}",
        contestants=[mdsx, mosaicml, *parquet, one(_NOTHING, "nothing", shown="limit")],
        goals=[
            Goal(f"{text}: 5 x mosaicml's converter", mdsx.name, (mosaicml.name,), at_least=5),
            Goal(f"{text}: 0.6 of uncompressed Parquet", mdsx.name, (parquet[0].name,), at_least=0.6),
        ],
        figure="rows/s",
        more=("cpu s", "MB"),
        limit=300,
        note=f"{_TASKS} tasks on {_CORES} cores. All without compression but for snappy; Parquet still stores repeated "
        "values once. mdsx alone writes checksums and syncs each shard to disk. The last line is a mapInArrow that "
        "drops all rows: no converter in Python is faster.",
    )


def measure(way: str, kind: str, rows: int) -> Figures:
    """Return the rate of one write, after one that warms up; "mdsx", "mosaicml", "nothing", or a codec of Parquet."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {"spark.ui.enabled": "false", "spark.driver.memory": "4g"}
    if way == "mosaicml":
        from tools.peers.mosaicml import PEER

        PEER.warm()
        settings["spark.python.daemon.module"] = "tools.bench.spark_daemon"
    session = sql.SparkSession.builder.master(f"local[{_CORES}]").config(map=settings).getOrCreate()
    frame = session.range(0, rows, 1, _TASKS).selectExpr(*_COLUMNS[kind]).cache()
    frame.count()
    write = _writer(way)
    write(frame, warm := tempfile.mkdtemp())
    shutil.rmtree(warm)
    folder, before = tempfile.mkdtemp(), cpu_seconds()
    _, took = timed(lambda: write(frame, folder))
    used = cpu_seconds() - before
    session.stop()
    size = sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(folder) for name in names)
    return {"rows/s": rows / took, "cpu s": used, "MB": size / 1e6}


def _writer(way: str) -> Callable[[Any, str], object]:
    if way == "mdsx":
        return lambda frame, folder: engine.write(frame, f"{folder}/out")
    if way == "nothing":
        return _drop
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


def _drop(frame: Any, folder: str) -> None:
    """Send all rows to Python as mdsx has them sent, and drop them."""

    def nothing(batches: Iterable[Any]) -> Iterator[Any]:
        for _ in batches:
            pass
        return iter(())

    with sending.small_batches(frame.sparkSession):
        frame.mapInArrow(nothing, "id long").collect()
