"""How many bytes Spark sends to a Python task at once, while a DataFrame is written.

Spark counts rows: by default it sends 10,000 of them. Of large rows, that is hundreds of megabytes for which the JVM
and Python need new memory each time, and it takes two to four times as long. Spark 4 can count bytes too.

Rules:
- A limit that the user has set stays. Otherwise ours is set while the job runs, and removed after it.
- It is a setting of the session. So it also applies to functions in Python that compute the DataFrame, and to other
  jobs of this session that start meanwhile. Their results do not depend on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

SETTING = "spark.sql.execution.arrow.maxBytesPerBatch"
MOST = 2**22
"""Bytes: less than what a processor's caches hold, and enough that the number of batches does not matter."""
_FIRST = 4  # the first version of Spark with the setting


@contextmanager
def small_batches(spark: Any) -> Iterator[None]:
    """Let a session of Spark send about `MOST` bytes at once, or one larger row, unless it has such a limit already."""
    ours = False
    if int(spark.version.partition(".")[0]) >= _FIRST:
        with suppress(Exception):  # a platform may forbid the setting: then the job is slower
            if ours := spark.conf.get(SETTING, None) is None:
                spark.conf.set(SETTING, str(MOST))
    try:
        yield
    finally:
        if ours:
            with suppress(Exception):  # the session may have ended; report the job's own error
                if spark.conf.get(SETTING, None) == str(MOST):
                    spark.conf.unset(SETTING)
