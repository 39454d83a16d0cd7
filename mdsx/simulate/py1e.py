"""The shuffle `py1e` of MosaicML's Streaming, computed for any stretch of an epoch.

Each canonical node has a share of the shards, one after the other on a line. The samples of a shard are permuted, and
each is then moved by a random distance, at most half a block less half a shard to either side. Positions alternate
between the canonical nodes. See `streaming/base/shuffle/py1e.py` and `streaming/base/partition/orig.py` there, version
0.13. Only the source of randomness differs: here, it is hashes.

The package permutes the shards once per run, and the parts in each canonical node again for each epoch. For a single
epoch, one permutation has the same distribution.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mdsx.order import key, keys
from mdsx.simulate.orders import FOLLOWED, KEYS, ShardLine
from mdsx.simulate.permuted import drawn_below, permuted, shares


class Py1e:
    """The epoch of `line` on `nodes` canonical nodes with blocks of `block` samples."""

    method = "py1e"

    def __init__(self, line: ShardLine, block: int, nodes: int = 1, seed: int = 0) -> None:
        self.line, self.samples = line, line.samples
        self.nodes = max(1, min(nodes, self.samples))
        self.block = max(2, block)
        self._bounds = np.arange(self.nodes + 1) * self.samples // self.nodes
        self._parts = _divided(line, self._bounds)
        shard = self.samples / max(1, len(self._parts.firsts))
        self.held = min(self.samples, round(self.nodes * max(self.block, shard)))
        self.work = 3 * self.held if self.held <= FOLLOWED else 1
        self._sizes, self._within, self._shifts, self._picked = (key(KEYS, 6, seed, part) for part in range(4))

    @classmethod
    def holding(cls, held: int, line: ShardLine, nodes: int = 1, seed: int = 0) -> Py1e:
        """Return the shuffle whose nodes together hold shards with about `held` samples at a time."""
        return cls(line, held // max(1, nodes), nodes, seed)

    def numbers(self, start: int, stop: int) -> NDArray[np.int64]:
        positions = np.arange(start, stop)
        if self.held > FOLLOWED and (start, stop) != (0, self.samples):
            return self.drawn(positions)
        nodes, ranks = self._node_places(positions)
        found = np.empty(len(positions), np.int64)
        for node in range(self.nodes):
            here = np.flatnonzero(nodes == node)
            if len(here):
                mine = ranks[here]
                found[here] = self._of_node(node, int(mine[0]), int(mine[-1]) + 1)[mine - mine[0]]
        return found

    def drawn(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Draw a place from which a sample may have come to the position, uniformly, and a sample of its shard."""
        nodes, ranks = self._node_places(positions)
        places = self._bounds[nodes] + ranks
        at = np.searchsorted(self._parts.starts, places, side="right") - 1
        reach = self._reach(at)
        low = np.maximum(self._bounds[nodes], places - reach)
        high = np.minimum(self._bounds[nodes + 1], places + reach + 1)
        moved = (low + (high - low) * shares(self._shifts, positions)).astype(np.int64)
        at = np.searchsorted(self._parts.starts, moved, side="right") - 1
        size = self._parts.starts[at + 1] - self._parts.starts[at]
        return self._parts.firsts[at] + drawn_below(self._picked, positions, size)

    def _node_places(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the node of each position, and the place on its line. Nodes with more samples have the last
        positions."""
        ranks, nodes = np.divmod(positions, self.nodes)
        lengths = np.diff(self._bounds)
        short = int(lengths.min())
        last = np.flatnonzero(ranks >= short)
        nodes[last] = np.flatnonzero(lengths > short)[positions[last] - short * self.nodes]
        ranks[last] = short
        return nodes, ranks

    def _reach(self, parts: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return how far the samples of each of `parts` may move to either side."""
        low, high = int(0.75 * self.block), int(1.25 * self.block)
        blocks = low + drawn_below(self._sizes, parts, max(1, high - low))
        sizes = self._parts.starts[parts + 1] - self._parts.starts[parts]
        return np.maximum(0, (blocks - sizes) / 2)

    def _of_node(self, node: int, first: int, last: int) -> NDArray[np.int64]:
        """Return the numbers at places `first` up to `last` of a node, after all samples moved.

        No sample moves further than `far`: the sample at place r comes from at most that far away, and samples twice as
        far from the requested places stay on their side.
        """
        line, begin, end = self._parts, int(self._bounds[node]), int(self._bounds[node + 1])
        far = 2 * (int(0.625 * self.block) + 1)
        low = np.searchsorted(line.starts, max(begin, begin + first - far), side="right") - 1
        high = np.searchsorted(line.starts, min(end, begin + last + far), side="left")
        parts = np.arange(low, high)
        starts, sizes = line.starts[parts], line.starts[parts + 1] - line.starts[parts]
        reach = self._reach(parts)
        below, above = np.maximum(-reach, begin - starts), np.minimum(reach, end - starts - sizes)
        places = np.arange(starts[0], starts[-1] + sizes[-1])
        moved = np.repeat(below, sizes) + shares(self._shifts, places) * np.repeat(above - below, sizes) + places
        chosen = np.argsort(moved, kind="stable")[begin + first - starts[0] : begin + last - starts[0]]
        part = np.repeat(np.arange(len(parts)), sizes)[chosen]
        part_keys = keys(self._within, parts)[part]
        return line.firsts[parts][part] + self._within_part(part_keys, places[chosen] - starts[part], parts[part])

    def _within_part(
        self, part_keys: NDArray[np.uint64], places: NDArray[np.int64], parts: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        sizes = self._parts.starts[parts + 1] - self._parts.starts[parts]
        return permuted(part_keys, places, sizes)


def _divided(line: ShardLine, bounds: NDArray[np.int64]) -> ShardLine:
    """Cut the shards at the bounds of the nodes."""
    if not line.samples:
        return line
    inner = np.unique(bounds[1:-1])
    at = np.searchsorted(line.starts, inner)
    new = line.starts[at] != inner
    inner, at = inner[new], at[new]
    if not len(inner):
        return line
    firsts = line.firsts[at - 1] + inner - line.starts[at - 1]
    return ShardLine(np.insert(line.starts, at, inner), np.insert(line.firsts, at, firsts))
