"""Encoded samples that are not in a shard yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from mdsx.format.rows import cut, row_checksums

_LARGE_PIECE = 2**12  # values from this size on are not joined with their neighbours first


@dataclass(frozen=True, slots=True)
class Encoded:
    """Encoded samples, in order. V is the number of variable-size columns."""

    samples: int
    fixed: list[NDArray[Any]]
    """The stored items of each fixed-size column, [samples, *shape]."""
    lengths: NDArray[np.uint32]
    """[samples, V]: the size of each variable-size value in bytes, or NULL_LENGTH."""
    heap: Heap
    stops: NDArray[np.int64]
    """[samples]: where each sample's heap bytes end. Those of the first sample start at 0."""


class Block(NamedTuple):
    """Successive samples to put into rows. The number of the first one is `start` in `Encoded`, and `first` in the
    shard."""

    start: int
    first: int
    rows: NDArray[np.uint8]
    """[n, size], complete except for the checksums."""
    begin: int
    """Where in `Encoded` the heap bytes of the first sample begin."""
    stops: NDArray[np.int64]
    """[n]: where the heap bytes of each sample end, counted from `begin`."""


class Heap(Protocol):
    """The variable-size values of encoded samples."""

    @property
    def data(self) -> memoryview:
        """The heap bytes of all samples, back to back."""

    def add(self, block: Block) -> tuple[Sequence[bytes | memoryview], NDArray[np.uint64]]:
        """Return the heap bytes of a block, in pieces, and the checksums of its samples."""


class PieceHeap:
    """A heap of separate bytes objects, `width` values for each sample; b"" for null."""

    def __init__(self, pieces: Sequence[bytes], width: int) -> None:
        self.pieces, self._width = pieces, width

    @property
    def data(self) -> memoryview:
        return memoryview(b"".join(self.pieces))

    def add(self, block: Block) -> tuple[Sequence[bytes | memoryview], NDArray[np.uint64]]:
        width, start, (count, size), total = self._width, block.start, block.rows.shape, int(block.stops[-1])
        pieces = self.pieces[start * width : (start + count) * width]
        if total < _LARGE_PIECE * len(pieces):
            heap = b"".join(pieces)
            each, parts, width = pieces if width == 1 else cut(heap, block.stops), [heap], 1
        else:
            each, parts = pieces, list(pieces)
        rows = block.rows.reshape(-1)
        return parts, row_checksums(rows, size, each, width=width, heap_size=total, first=block.first)


@dataclass(frozen=True, slots=True)
class JoinedHeap:
    """A heap of values back to back in memory that does not change."""

    data: memoryview

    def add(self, block: Block) -> tuple[Sequence[bytes | memoryview], NDArray[np.uint64]]:
        size, total = block.rows.shape[1], int(block.stops[-1])
        heap = self.data[block.begin : block.begin + total]
        rows, each = block.rows.reshape(-1), cut(heap, block.stops)
        return [heap], row_checksums(rows, size, each, heap_size=total, first=block.first)
