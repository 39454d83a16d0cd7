"""Limit how many bytes Spark sends to a Python task at once, while a DataFrame is written.

Spark counts rows, by default 10,000. With large rows, that is hundreds of megabytes, for which the JVM and Python
allocate new memory each time, and writing takes two to four times as long. Spark 4 can count bytes too.

Rules:
- A limit that the user has set stays. Otherwise ours is set while the job runs, and removed afterwards.
- The limit is a setting of the session. So it also applies to Python functions that compute the DataFrame, and to other
  jobs of this session that start meanwhile. Their results do not depend on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from mdsx.engines.spark_source import has_spark_4

SETTING = "spark.sql.execution.arrow.maxBytesPerBatch"
MOST = 2**22
"""Bytes: few enough for a processor's caches, and enough that the number of batches does not matter."""


@contextmanager
def small_batches(spark: Any) -> Iterator[None]:
    """Make a Spark session send about `MOST` bytes at once, or one larger row, unless it has such a limit already."""
    ours = False
    if has_spark_4(spark):  # earlier versions lack the setting
        with suppress(Exception):  # a platform may forbid the setting; the job is then slower
            if ours := spark.conf.get(SETTING, None) is None:
                spark.conf.set(SETTING, str(MOST))
    try:
        yield
    finally:
        if ours:
            with suppress(Exception):  # the session may have ended; report the job's own error
                if spark.conf.get(SETTING, None) == str(MOST):
                    spark.conf.unset(SETTING)
