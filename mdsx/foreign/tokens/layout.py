"""The places of documents' values: a row is a record of their shard's table, and the heap has all values of the shard.

    heap = the tokens of all documents, one after the other; then their losses, a byte for each token, if they are read

So the heap of T tokens has T times the bytes of a token and its loss. Edges are checked whenever they are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from mdsx.base.cached import cached_property
from mdsx.format import INT8, UINT8, ColumnType, Rows, Schema, Selection, Values, read_joined, read_records

if TYPE_CHECKING:
    from typing_extensions import Buffer

TOKENS, LOSS, MODE = "tokens", "loss", "mode"
"""The columns of token files."""
LOSS_TYPE, MODE_TYPE = ColumnType(UINT8.name, (None,)), ColumnType(INT8.name)
"""The types of columns other than tokens."""


@dataclass(frozen=True, eq=False)
class TokensLayout:
    """The columns of a dataset, and those with values in the heap, in order, with the bytes of an item of each.
    `record`: the type of rows. `every`: the tokens of each document, if the column has a fixed size."""

    schema: Schema
    heap: tuple[tuple[str, int], ...]
    record: np.dtype[np.void]
    every: int | None

    @cached_property
    def stride(self) -> int:
        """Return the bytes of a token in the heap."""
        return sum(width for _, width in self.heap)

    @cached_property
    def widths(self) -> dict[str, int]:
        return dict(self.heap)

    @cached_property
    def before(self) -> dict[str, int]:
        """Return column -> the bytes per token of the columns before it in the heap."""
        found, reached = {}, 0
        for name, width in self.heap:
            found[name], reached = reached, reached + width
        return found

    @cached_property
    def _edges(self) -> np.dtype[np.void]:
        """Return the dtype of two edges: a record's and the next one's."""
        size = self.record.itemsize
        fields: Any = {"names": ["begin", "end"], "formats": ["<u4", "<u4"], "offsets": [0, size], "itemsize": size + 4}
        found: np.dtype[np.void] = np.dtype(fields)
        return found

    def locate(self, rows: Rows, columns: Sequence[int]) -> dict[int, NDArray[np.int64] | Values]:
        begins, ends, totals = self.edges(rows)
        fields: Any = self.record.fields
        found = dict[int, NDArray[np.int64] | Values]()
        for number in columns:
            name = self.schema.columns[number].name
            if name == MODE:
                found[number] = rows.addresses + fields[MODE][1]
                continue
            starts, width = totals * self.before[name], self.widths[name]
            if self.schema.columns[number].type.fixed_size:
                found[number] = rows.heap_addresses + starts + begins * width
            else:
                found[number] = Values(starts + begins * width, starts + ends * width, None, bare=True)
        return found

    def edges(self, rows: Rows) -> tuple[NDArray[np.int64], ...]:
        """Return the start and stop of each document, and the number of tokens in its heap, int64 [n] each. Raise
        CorruptError."""
        (edges,) = read_records(rows.addresses, self._edges, [len(rows.addresses)])
        begins, ends = edges["begin"].astype(np.int64), edges["end"].astype(np.int64)
        totals = rows.heap_sizes.astype(np.int64) // self.stride
        wrong = (begins > ends) | (ends > totals)
        if self.every is not None:
            wrong |= ends - begins != self.every
        if wrong.any():
            row = int(wrong.argmax())
            found, expected = f"tokens {begins[row]} to {ends[row]}", f"within {totals[row]}"
            raise rows.corrupt(row, "the document is not in its shard", found=found, expected=expected)
        return begins, ends, totals

    def copied(self, selection: Selection) -> Selection:
        rows = Rows.of(selection)
        begins, ends, totals = self.edges(rows)
        pieces = [
            read_joined(rows.heap_addresses + (totals * self.before[name] + begins * width), (ends - begins) * width)
            for name, width in self.heap
        ]
        records = selection.rows[selection.take]
        return self.joined(selection.file, selection.samples, records, ends - begins, pieces)

    def joined(
        self,
        file: str | None,
        samples: NDArray[np.int64],
        records: NDArray[np.void],
        lengths: NDArray[np.int64],
        pieces: Sequence[Buffer],
    ) -> Selection:
        """Return a selection of `samples` with these `records` and `lengths`. `pieces`, joined, are their heap."""
        table = np.zeros(len(records) + 1, self.record)
        table[:-1] = records
        table["edge"] = np.concatenate((np.zeros(1, np.int64), lengths.cumsum()))
        return Selection(
            self, file, samples, table[:-1], np.arange(len(records)), memoryview(b"".join(pieces)).toreadonly()
        )

    def check_hashes(self, selection: Selection) -> None:
        """Raise CorruptError, which names the sample, if a document does not match the hashes in its row, if any."""
        names = [name for name, _ in self.heap if name in (self.record.names or ())]
        if not names:
            return
        rows = Rows.of(selection)
        begins, ends, totals = self.edges(rows)
        for name in names:
            starts, width = totals * self.before[name], self.widths[name]
            lows, highs = (starts + begins * width).tolist(), (starts + ends * width).tolist()
            expected = selection.rows[name][selection.take].tolist()
            for row, (low, high, right) in enumerate(zip(lows, highs, expected, strict=True)):
                if (found := xxhash.xxh3_64_intdigest(selection.heap[low:high])) != right:
                    message = f"the hash of its {name} does not match their bytes"
                    raise rows.corrupt(row, message, found=f"{found:016x}", expected=f"{right:016x}")
