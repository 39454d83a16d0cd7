"""Write Arrow tables to a Parquet file in memory, with row groups of bounded size."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mdsx.errors import UsageError
from mdsx.foreign.arrow import pa, slices

_MOST_ROWS = 2**20  # of a row group, as pyarrow's own


class ParquetFile:
    """A Parquet file of the `pyarrow.Schema` `schema` that is being made.

    A row group has at most about `group_size` bytes in Arrow's memory, or one row. Pages have checksums. All methods
    raise UsageError for types and values that Parquet cannot hold.
    """

    def __init__(self, schema: Any, *, group_size: int, compression: str, level: int | None) -> None:
        from pyarrow.parquet import ParquetWriter

        self._sink, self._group_size = pa.BufferOutputStream(), group_size
        with _our_errors():
            self._writer = ParquetWriter(
                self._sink, schema, compression=compression, compression_level=level, write_page_checksum=True
            )
        self._tables: list[Any] = []
        self._rows = self._size = 0

    def add(self, table: Any) -> None:
        """Add rows."""
        for part in slices(table, self._group_size):
            size = part.nbytes
            if self._size + size > self._group_size or self._rows + part.num_rows > _MOST_ROWS:
                self._end_group()
            self._tables.append(part)
            self._rows, self._size = self._rows + part.num_rows, self._size + size

    def finish(self) -> memoryview:
        """Return the whole file."""
        self._end_group()
        self._writer.close()
        return memoryview(self._sink.getvalue())

    def _end_group(self) -> None:
        if self._rows:
            with _our_errors():
                self._writer.write_table(pa.concat_tables(self._tables), row_group_size=self._rows)
        self._tables.clear()
        self._rows = self._size = 0


@contextmanager
def _our_errors() -> Iterator[None]:
    """Convert errors of pyarrow to ours."""
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise UsageError("Parquet cannot hold the columns", found=str(error), hint="leave out a column") from None
