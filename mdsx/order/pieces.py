"""Steps 1 and 2 of the order: cut the shards into lanes and pieces (by seed), and line up the pieces (by epoch).

The lanes are back to back on a line of N places. Memory is O(shards + lanes) for any N.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from mdsx.order.hashing import key, keys, permutation, sort_keys

_CHUNKS = 16  # a lane with a single piece is cut into about this many pieces


@dataclass(frozen=True, slots=True)
class Pieces:
    """The pieces of all lanes, lane by lane. Piece i is samples `firsts[i] .. firsts[i] + sizes[i] - 1` of a shard."""

    shards: NDArray[np.int64]
    firsts: NDArray[np.int64]
    sizes: NDArray[np.int64]  # none is 0
    lanes: NDArray[np.int64]  # [C + 1]: lane c has pieces lanes[c] .. lanes[c + 1] - 1


@dataclass(frozen=True, slots=True)
class Line:
    """The pieces of an epoch in their order on the line."""

    pieces: NDArray[np.int64]
    starts: NDArray[np.int64]  # the place of each piece's first sample


def lane_starts(samples: int, lanes: int) -> NDArray[np.int64]:
    """Return `starts` [C + 1]: lane c has places `starts[c]` up to `starts[c + 1]` (exclusive) of the line."""
    lane = np.arange(lanes + 1)
    return lane * (samples // lanes) + np.minimum(lane, samples % lanes)


def cut(counts: NDArray[np.int64], *, seed: int, lanes: int, block: int, shuffle: bool) -> Pieces:
    """Return the pieces of every epoch with `seed`. `block`: the size of a lane's shuffle block."""
    shards = permutation(key(seed, 0), len(counts)) if shuffle else np.arange(len(counts))
    shards = shards[counts[shards] > 0]
    ends = np.cumsum(counts[shards])
    starts = ends - counts[shards]
    bounds = lane_starts(int(ends[-1]) if len(ends) else 0, lanes)

    # A lane that starts inside a shard cuts it.
    inner = bounds[:-1][bounds[:-1] < bounds[-1]]  # lanes without samples start at the end
    at = np.searchsorted(starts, inner)
    within = starts[np.minimum(at, len(starts) - 1)] != inner if len(starts) else np.zeros(0, bool)
    inner, at = inner[within], at[within]
    shards = np.insert(shards, at, shards[at - 1])
    firsts = np.insert(np.zeros_like(starts), at, inner - starts[at - 1])
    starts = np.insert(starts, at, inner)
    sizes = np.diff(starts, append=bounds[-1])
    return _chunk(Pieces(shards, firsts, sizes, np.searchsorted(starts, bounds)), np.diff(bounds), block)


def _chunk(pieces: Pieces, lengths: NDArray[np.int64], block: int) -> Pieces:
    """Cut long pieces into chunks of nearly equal size, so that a few large shards mix too."""
    longest = np.maximum(block, -(-lengths // _CHUNKS))
    chunks = -(-pieces.sizes // np.repeat(longest, np.diff(pieces.lanes)))  # 1 for a short piece
    edges = np.concatenate([np.zeros(1, np.int64), np.cumsum(chunks)])
    if edges[-1] == len(chunks):
        return pieces
    piece = np.repeat(np.arange(len(chunks)), chunks)
    number = np.arange(edges[-1]) - edges[piece]
    whole, rest = np.divmod(pieces.sizes, chunks)

    def bound(q: NDArray[np.int64]) -> NDArray[np.int64]:  # q * size // chunks, in parts that do not overflow
        bounds: NDArray[np.int64] = q * whole[piece] + q * rest[piece] // chunks[piece]
        return bounds

    begins, ends = bound(number), bound(number + 1)
    return Pieces(pieces.shards[piece], pieces.firsts[piece] + begins, ends - begins, edges[pieces.lanes])


def line_up(pieces: Pieces, *, seed: int, epoch: int, shuffle: bool) -> Line:
    """Permute each lane's pieces for `epoch`."""
    order = np.arange(len(pieces.shards))
    if shuffle:
        lanes = len(pieces.lanes) - 1
        many = np.diff(pieces.lanes)
        lane_keys = keys(key(seed, 1, epoch), np.arange(lanes))
        by = sort_keys(np.repeat(lane_keys, many), order - np.repeat(pieces.lanes[:-1], many))
        edges = pieces.lanes.tolist()
        for first, last in pairwise(edges):
            order[first:last] = first + np.argsort(by[first:last])
    sizes = pieces.sizes[order]
    return Line(order, np.cumsum(sizes) - sizes)
