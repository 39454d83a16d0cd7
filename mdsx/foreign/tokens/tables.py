"""Tables of documents: where each document of a shard begins, counted in tokens from the shard's first token.

A table has a record for each document, in order, and one for the end. `mdsx index` stores tables next to the index, and
the rows of a selection are records of them.

| field | type | holds |
|---|---|---|
| `edge` | `u32` | where the document begins; in the last record, the tokens of the shard |
| `mode` | `i8` | for Megatron's files with modes: the document's mode |
| `tokens`, `loss` | `u64` | for an index with hashes: the XXH3-64 of the document's tokens, and of its losses |

Records are packed, and little-endian. In the last record, all fields except `edge` are 0.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import CorruptError

if TYPE_CHECKING:
    from typing_extensions import Buffer


def record_dtype(*, modes: bool, hashed: tuple[str, ...]) -> np.dtype[np.void]:
    """Return the type of a record. `hashed`: the columns whose values have hashes."""
    fields = [("edge", "<u4"), *([("mode", "i1")] if modes else []), *((name, "<u8") for name in hashed)]
    return np.dtype(fields)


def parse_table(data: Buffer, record: np.dtype[np.void], *, documents: int, tokens: int, file: str) -> NDArray[np.void]:
    """Parse a shard's table, in constant time. Raise CorruptError if it does not belong to such a shard."""
    view = memoryview(data)
    size = len(view)
    if size != (documents + 1) * record.itemsize:
        expected = f"{(documents + 1) * record.itemsize} bytes"
        raise CorruptError("the table of documents has another size", file=file, found=size, expected=expected)
    table: NDArray[np.void] = np.frombuffer(view, record)
    edges = int(table["edge"][0]), int(table["edge"][-1])
    if edges != (0, tokens):
        message = "the table of documents belongs to another shard"
        raise CorruptError(message, file=file, place="edges", found=edges, expected=(0, tokens))
    return table


@lru_cache(maxsize=8)  # nearly all shards have as many
def equal_table(record: np.dtype[np.void], documents: int, every: int) -> NDArray[np.void]:
    """Return the table for documents that all have `every` tokens. It is read-only."""
    table = np.zeros(documents + 1, record)
    table["edge"] = np.arange(documents + 1) * every
    table.setflags(write=False)
    return table
