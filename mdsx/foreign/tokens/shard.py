"""The raw bytes of a shard: a range of documents in place, or from the cache, and its checks.

In the cache, they are followed by an XXH3-128 of the shard's name there and of the bytes. So damage in the cache, and
the file of another shard, are detected even if the index has no hashes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import CorruptError
from mdsx.foreign.checks import TRAILER, blocks, damaged
from mdsx.foreign.tokens.layout import MODE, TokensLayout
from mdsx.format import Selection, lengths_of_selection

if TYPE_CHECKING:
    from typing_extensions import Buffer

CHANGED = "the file is damaged, or was changed after it was indexed: restore it, or index the files again"

_SMALL = 2**14  # bytes of a document whose check takes less than 2 us


@dataclass(frozen=True, slots=True, eq=False)
class TokensShard:
    """A shard whose size matches the index, with its table of documents."""

    layout: TokensLayout
    file: str
    buffer: memoryview
    table: NDArray[np.void]
    trailer: bytes | None

    @classmethod
    def parse(
        cls, raw: Buffer, layout: TokensLayout, table: NDArray[np.void], *, tokens: int, file: str
    ) -> TokensShard:
        """Parse a shard of `tokens` tokens. Raise CorruptError."""
        view, size = memoryview(raw).cast("B").toreadonly(), tokens * layout.stride
        if len(view) not in (size, size + TRAILER):
            message = "the shard's size differs from the index"
            raise CorruptError(message, file=file, place="size", found=len(view), expected=size)
        return cls(layout, file, view[:size], table, bytes(view[size:]) or None)

    @property
    def samples(self) -> int:
        return len(self.table) - 1

    @property
    def hashed(self) -> bool:
        return any(name in (self.table.dtype.names or ()) for name, _ in self.layout.heap)

    @property
    def checks_samples(self) -> bool:
        return self.trailer is None

    @property
    def checks_cheaply(self) -> bool:
        return not self.hashed or len(self.buffer) < _SMALL * self.samples

    def select(self, samples: NDArray[np.int64], *, verify: bool) -> Selection:
        selection = Selection(self.layout, self.file, samples, self.table[:-1], samples, self.buffer)
        if verify:
            self.layout.check_hashes(selection)
        return selection

    def lengths(self, column: int) -> NDArray[np.int64]:
        if self.layout.schema.columns[column].name == MODE or self.layout.every is not None:
            return lengths_of_selection(self.select(np.arange(self.samples), verify=False), column)
        return table_lengths(self.table, file=self.file)

    def problems(self) -> Iterator[CorruptError]:
        """Yield an error for each document that is not in the shard, or does not match its hashes."""
        for block in blocks(self.samples):
            yield from damaged(block, lambda samples: lengths_of_selection(self.select(samples, verify=True), 0))


def table_lengths(table: NDArray[np.void], *, file: str) -> NDArray[np.int64]:
    """Return how many tokens each document has, int64 [n]. Raise CorruptError."""
    edges: NDArray[np.int64] = table["edge"].astype(np.int64)
    found = edges[1:] - edges[:-1]
    if (wrong := found < 0).any():
        place, expected = f"sample {int(wrong.argmax())}", "edges that ascend"
        raise CorruptError("the table of documents is damaged", file=file, place=place, expected=expected)
    return found
