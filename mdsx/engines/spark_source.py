"""`register` adds `format("mdsx")` to a session of Spark 4, through Spark's data sources in Python.

- `spark_options.py`: the options of a read and of a write.
- `spark_scan.py`: a read: its partitions, and Arrow batches in types that Spark knows.
- `spark_format.py`: the classes that Spark calls. It needs Spark 4, and only `register` imports it.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from mdsx.errors import UsageError

_PACKAGES = ("pyspark", "pyarrow")


def require_spark() -> None:
    """Raise UsageError if PySpark or pyarrow is not installed."""
    for name in _PACKAGES:
        if find_spec(name) is None:
            raise UsageError(f"this needs the package {name}", hint="pip install 'mdsx[spark]'")


def has_spark_4(spark: Any) -> bool:
    """Return whether a session is of Spark 4 or later."""
    return int(spark.version.partition(".")[0]) >= 4


def register(spark: Any) -> None:
    """Enable `format("mdsx")` in a Spark session, to read and write datasets.

        mdsx.engines.spark.register(spark)
        df = spark.read.format("mdsx").option("columns", "text,label").load("s3://bucket/corpus")
        df.write.format("mdsx").mode("append").save("s3://bucket/selected")

    A read returns the dataset as it was at `load`, whenever it runs; with Connect, as it is when a job begins. A write
    stores every row exactly once, like `write`. The mode "append" creates a dataset, and refuses an existing one;
    "overwrite" replaces it in one step. Spark refuses other modes, so a mode must be given. See docs/engines.md for the
    options and types.

    Args:
        spark: A session of Spark 4 or later, also of Spark Connect. mdsx must be installed where its tasks and its
            driver run.

    Raises:
        UsageError: The session is of an earlier version, or PySpark or pyarrow is not installed.
    """
    require_spark()
    if not has_spark_4(spark):
        hint = "write with mdsx.engines.spark.write, or use Spark 4"
        message = 'format("mdsx") needs Spark 4 or later'
        raise UsageError(message, found=f"Spark {spark.version}", expected="Spark 4.0 or later", hint=hint)
    from mdsx.engines.spark_format import Source  # imports Python data sources, which Spark 3 lacks

    spark.dataSource.register(Source)
