"""A whole uncompressed shard in memory, as rows and heap without a copy.

Parsing takes constant time: header, sizes, offsets, padding of the sections. What lies inside rows and heap is checked
on access (`heap_extents`, `row_checksum`, `value_decoder`) or all at once (`check_shard`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import CorruptError
from mdsx.format.header import parse_header
from mdsx.format.schema import Schema

if TYPE_CHECKING:
    from typing_extensions import Buffer


@dataclass(frozen=True, slots=True, eq=False)
class ShardView:
    """`rows` [samples] is one structured array of `schema.row_dtype`; both it and `heap` are read-only views."""

    buffer: memoryview
    file: str | None
    schema: Schema
    row_key: int
    rows_offset: int
    rows: NDArray[np.void]
    heap: memoryview
    fields: dict[Any, Any] = field(default_factory=dict)
    """What decoders of single samples keep of it."""

    @classmethod
    def parse(
        cls, buffer: Buffer, *, file: str | None = None, schema: Schema | None = None, row_key: int | None = None
    ) -> ShardView:
        """The shard in `buffer`, which it fills. With `schema` and `row_key`, the shard's must be the same.

        Raises CorruptError or UnsupportedError.
        """
        view = memoryview(buffer).cast("B").toreadonly()
        header = parse_header(view, size=len(view), file=file, schema=schema, row_key=row_key)
        end = header.rows_offset + header.samples * header.row_size
        if any(view[end : header.heap_offset]):
            raise CorruptError("it is not zero", file=file, place="padding between rows and heap")
        rows = np.frombuffer(view, np.uint8)[header.rows_offset : end].view(header.schema.row_dtype)
        return cls(view, file, header.schema, header.row_key, header.rows_offset, rows, view[header.heap_offset :])

    @property
    def samples(self) -> int:
        """Number of samples."""
        return len(self.rows)
