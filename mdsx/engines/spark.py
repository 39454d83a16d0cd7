"""Write Spark DataFrames as datasets, with `mapInArrow`, which works with Spark 3.4 and later, and with Connect.

Rules:
- Each task of the job writes one part, as Arrow batches, and returns one row. Its number is that of Spark's partition.
- The driver collects these rows in one action. Within an action, Spark accepts one result per partition, whatever it
  retries or speculates, and only these attempts are committed.
- Everything that can be checked before the job starts is checked then.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from mdsx.base.warn import warn
from mdsx.engines.spark_batches import small_batches
from mdsx.engines.spark_source import register, require_spark
from mdsx.engines.spark_types import check_columns, columns_of
from mdsx.errors import SampleError, UsageError
from mdsx.foreign.arrow import pa
from mdsx.storage import StorageOptions
from mdsx.writer import write_part
from mdsx.writer.runs import Done, Driver, WriteJob, Written, aborting

__all__ = ["columns_of", "register", "write"]

_LACKING = re.compile(r"No module named '([\w.]+)'")
_REFUSED = re.compile(r"^mdsx\.errors\.SampleError: (.+)$", re.MULTILINE)
_MANY, _TIMES = 16, 4  # warn from this many shards on, if they are this many times as many as needed
_RESULT = "part int, folder string, samples long, hash string"


def write(
    df: Any,
    url: str,
    columns: Mapping[str, str] | None = None,
    *,
    shard_size: int | str = "64MiB",
    compression: str | None = None,
    metadata: dict[str, Any] | None = None,
    lengths: Sequence[str] = (),
    mode: Literal["create", "replace"] = "create",
    storage_options: StorageOptions | None = None,
) -> Written:
    """Write a Spark DataFrame as a dataset, every row exactly once, and return what was written.

        mdsx.engines.spark.write(df, "s3://bucket/corpus")

    Each partition becomes a part with its own shards, in the order of the partitions. So give each partition at least
    about one shard of data: many small shards cause a warning, and docs/engines.md says what to do. The dataset becomes
    visible only when it is complete.

    Args:
        df: A DataFrame of Spark 3.4 or later, also of Spark Connect. mdsx must be installed where its tasks run.
        url: Where to write, as in `mdsx.Writer`. A path must be in a file system that all machines share.
        columns: Column name -> type, for all columns of `df`. By default `columns_of(df)`, with a question mark
            wherever Spark says that there may be nulls.
        shard_size: As in `mdsx.Writer`.
        compression: As in `mdsx.Writer`.
        metadata: As in `mdsx.Writer`.
        lengths: As in `mdsx.Writer`.
        mode: "create" refuses to write over a dataset. "replace" replaces an existing dataset in one step.
        storage_options: As in `mdsx.Writer`. They are sent to the tasks.

    Raises:
        UsageError: An argument is invalid, `url` is not empty, or PySpark or pyarrow is not installed. No job was
            started, unless mdsx is not installed where the tasks run.
        ChangedError: Another run finished a dataset here meanwhile.
        TransportError: Storage failed.
    """
    require_spark()
    if df.isStreaming:
        hint = "write each batch to its own URL, with foreachBatch"
        raise UsageError("a streaming DataFrame cannot be written: it has no end", hint=hint)
    if columns is None:
        columns = columns_of(df)
    else:
        check_columns(df, columns)
    driver = Driver.begin(
        url,
        columns,
        shard_size=shard_size,
        compression=compression,
        metadata=metadata,
        lengths=lengths,
        mode=mode,
        storage_options=storage_options,
    )
    with aborting(driver), small_batches(df.sparkSession):
        plain = df.toDF(*map(str, range(len(df.columns))))  # mapInArrow fails for names with dots
        rows = _collect(plain.mapInArrow(_task(driver.job, df.columns), _RESULT))
    written = driver.commit(Done(*row) for row in rows)
    _warn_of_small_shards(written, driver.job.shard_size)
    return written


def _warn_of_small_shards(written: Written, shard_size: int) -> None:
    enough = max(1, math.ceil(written.bytes / shard_size))
    if written.shards >= max(_MANY, _TIMES * enough):
        mean = written.bytes // written.shards
        warn(
            f"{written.url} has {written.shards} shards of {mean:,} bytes on average: small shards are slow to read. "
            f"Write df.coalesce({enough}), or df.repartition({enough}) to keep the tasks before it"
        )


def _task(job: WriteJob, names: Sequence[str]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return the function that writes a partition with these column names. It is pickled together with the job."""

    def write_partition(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        named = (batch.rename_columns(names) for batch in batches)
        done = write_part(job, TaskContext.get().partitionId(), named)
        types = [("part", pa.int32()), ("folder", pa.string()), ("samples", pa.int64()), ("hash", pa.string())]
        yield pa.RecordBatch.from_pylist([done._asdict()], schema=pa.schema(types))

    return write_partition


def _collect(results: Any) -> list[Any]:
    try:
        found: list[Any] = results.collect()
    except Exception as error:
        if lacking := _LACKING.search(str(error)):
            message = "the Python of Spark's tasks lacks a module"
            hint = f"install {lacking[1].partition('.')[0]} in the Python that spark.pyspark.python names"
            raise UsageError(message, found=lacking[0], hint=hint) from error
        if refused := _REFUSED.search(str(error)):  # without the surrounding lines of Java
            raise SampleError(refused[1]) from None
        raise
    return found
