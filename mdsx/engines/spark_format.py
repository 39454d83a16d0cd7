"""The classes of `format("mdsx")` that Spark calls: a data source, its reader and its writer. They need Spark 4.

Spark creates and pickles them in its own processes on the driver's machine, not in the user's. So a write begins in one
process (`Source.writer`) and ends in another (`Writer.commit`, `Writer.abort`).

Rules of a write:
- Spark lets one attempt of each partition return its message, whatever it retries or speculates (its commit
  coordinator), and calls `commit` once, with these messages. `mdsx.writer.runs` has the rest.
- If `commit` raises an error, Spark calls `abort` with all messages. The index may be stored already, so `abort`
  removes nothing: if the commit knew that it failed, it has removed the attempts itself. If a task failed, at least one
  message is None.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import from_arrow_schema

from mdsx.engines.spark_options import ReadOptions, WriteOptions
from mdsx.engines.spark_scan import Scan
from mdsx.engines.spark_types import check_columns, columns_of
from mdsx.errors import UsageError
from mdsx.writer import write_part
from mdsx.writer.runs import Done, Driver


class Source(DataSource):  # type: ignore[misc]  # PySpark is in environments of its own, without types here
    """A dataset, as Spark reads or writes it."""

    _scan: Scan | None = None

    @classmethod
    def name(cls) -> str:
        return "mdsx"

    def schema(self) -> Any:
        """Return the dataset's columns as Spark types, and pin the dataset's present state."""
        self._scan = Scan.begin(ReadOptions.parse(self.options))
        return from_arrow_schema(self._scan.arrow_schema())

    def reader(self, schema: Any) -> Reader:
        if self._scan is None:  # the user gave a schema
            scan = Scan.begin(ReadOptions.parse(self.options))
            found = from_arrow_schema(scan.arrow_schema())
            if [(field.name, field.dataType) for field in schema] != [(field.name, field.dataType) for field in found]:
                hint = 'remove .schema(...), and choose columns with .option("columns", ...)'
                message = "the dataset's schema differs from the given one"
                raise UsageError(
                    message,
                    file=scan.dataset.url,
                    found=schema.simpleString(),
                    expected=found.simpleString(),
                    hint=hint,
                )
            return Reader(scan)
        return Reader(self._scan)

    def writer(self, schema: Any, overwrite: bool) -> Writer:
        """Begin a write. If the URL is not empty, raise UsageError before any task starts."""
        options = WriteOptions.parse(self.options)
        if options.columns is None:
            columns = columns_of(_Frame(schema))
        else:
            columns = options.columns
            check_columns(_Frame(schema), columns)
        return Writer(
            Driver.begin(
                options.url,
                columns,
                shard_size=options.shard_size,
                compression=options.compression,
                metadata=options.metadata,
                lengths=options.lengths,
                mode="replace" if overwrite else "create",
                storage_options=options.storage or None,
            )
        )


class _Frame(NamedTuple):
    """The columns of a DataFrame."""

    schema: Any


class Samples(InputPartition):  # type: ignore[misc]
    """The samples [start, stop) of a partition."""

    def __init__(self, start: int, stop: int) -> None:
        self.start, self.stop = start, stop


class Reader(DataSourceReader):  # type: ignore[misc]
    """Reads partitions of a dataset."""

    def __init__(self, scan: Scan) -> None:
        self._scan, self._schema = scan, scan.arrow_schema()

    def partitions(self) -> Sequence[Samples]:
        return [Samples(start, stop) for start, stop in self._scan.ranges()]

    def read(self, partition: Any) -> Iterator[Any]:
        """Yield record batches. For a dataset without samples, Spark passes a partition of its own, such as None."""
        if not isinstance(partition, Samples):
            return iter(())
        return self._scan.read(partition.start, partition.stop, self._schema)


class Finished(WriterCommitMessage):  # type: ignore[misc]
    """The result of an attempt."""

    def __init__(self, done: Done) -> None:
        self.done = done


class Writer(DataSourceArrowWriter):  # type: ignore[misc]
    """Writes a dataset. See the rules above."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def write(self, iterator: Iterator[Any]) -> Finished:
        """Write a partition, in a task."""
        return Finished(write_part(self._driver.job, TaskContext.get().partitionId(), iterator))

    def commit(self, messages: Sequence[Finished]) -> None:
        self._driver.commit(message.done for message in messages)

    def abort(self, messages: Sequence[Finished | None]) -> None:
        if None in messages:
            self._driver.abort()
