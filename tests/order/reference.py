"""The order and the mixture, written from format-spec.md sentence by sentence: slow, in plain Python, without any
code of mdsx. The tests of this folder compare with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

G = 0x9E3779B97F4A7C15
W = 2**64

Place = tuple[int, int]  # shard, sample in it


def mix64(x: int) -> int:
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 % W
    x ^= x >> 27
    x = x * 0x94D049BB133111EB % W
    x ^= x >> 31
    return x


def key(*parts: int) -> int:
    k = 0
    for p in parts:
        k = mix64((k + G + p) % W)
    return k


def permutation(k: int, n: int) -> list[int]:
    return sorted(range(n), key=lambda i: mix64((k + (i + 1) * G) % W))


def ceil_div(a: int, b: int) -> int:
    return (a + b - 1) // b


def lane_length(samples: int, lanes: int, c: int) -> int:
    return samples // lanes + (1 if c < samples % lanes else 0)


def seed_lanes(counts: Sequence[int], seed: int, lanes: int) -> list[list[Place]]:
    """Return step 1: the samples of each lane, one by one."""
    line = [(s, i) for s in permutation(key(seed, 0), len(counts)) for i in range(counts[s])]
    n = len(line)
    result = []
    for c in range(lanes):
        start = c * (n // lanes) + min(c, n % lanes)
        result.append(line[start : start + lane_length(n, lanes, c)])
    return result


def pieces_of(lane: list[Place], b: int) -> list[list[Place]]:
    """Return the first half of step 2: a lane's pieces, the long ones cut into chunks."""
    pieces: list[list[Place]] = []
    for place in lane:
        if pieces and pieces[-1][-1][0] == place[0]:
            pieces[-1].append(place)
        else:
            pieces.append([place])
    u = max(b, ceil_div(len(lane), 16))
    cut = []
    for piece in pieces:
        m = ceil_div(len(piece), u) if len(piece) > u else 1
        cut += [piece[q * len(piece) // m : (q + 1) * len(piece) // m] for q in range(m)]
    return cut


def epoch_lanes(
    counts: Sequence[int], seed: int, epoch: int, lanes: int, shuffle_block: int
) -> list[list[list[Place]]]:
    """Return steps 2 and 3: the blocks of each lane, each a list of samples in reading order."""
    b = max(1, ceil_div(shuffle_block, lanes))
    result = []
    for c, lane in enumerate(seed_lanes(counts, seed, lanes)):
        pieces = pieces_of(lane, b)
        order = permutation(key(seed, 1, epoch, c), len(pieces))
        line = [place for i in order for place in pieces[i]]
        blocks: list[list[Place]] = []
        start, size = 0, ceil_div(b * (c + 1), lanes)
        while start < len(line):
            block = line[start : start + size]
            shuffled = permutation(key(seed, 2, epoch, c, len(blocks)), len(block))
            blocks.append([block[i] for i in shuffled])
            start, size = start + size, b
        result.append(blocks)
    return result


def whole_order(
    counts: Sequence[int], seed: int, epoch: int, lanes: int, shuffle_block: int, shuffle: bool = True
) -> list[Place]:
    """Return step 4: the sample at every position of an epoch."""
    if not shuffle:
        return [(s, i) for s, count in enumerate(counts) for i in range(count)]
    lines = [
        [place for block in blocks for place in block]
        for blocks in epoch_lanes(counts, seed, epoch, lanes, shuffle_block)
    ]
    return [lines[p % lanes][p // lanes] for p in range(sum(counts))]


def place_at(p: int, counts: Sequence[int], seed: int, epoch: int, lanes: int, shuffle_block: int) -> Place:
    """Return the sample at one position of an epoch that is too large to list."""
    n, c, t = sum(counts), p % lanes, p // lanes
    b, length = max(1, ceil_div(shuffle_block, lanes)), lane_length(n, lanes, c)
    lane_start = c * (n // lanes) + min(c, n % lanes)
    pieces, line = [], 0
    for s in permutation(key(seed, 0), len(counts)):
        first, last = max(line, lane_start), min(line + counts[s], lane_start + length)
        if first < last:
            size, u = last - first, max(b, ceil_div(length, 16))
            m = ceil_div(size, u) if size > u else 1
            bounds = [first - line + q * size // m for q in range(m + 1)]
            pieces += [(s, bounds[q], bounds[q + 1]) for q in range(m)]
        line += counts[s]

    first_size = ceil_div(b * (c + 1), lanes)
    j = 0 if t < first_size else 1 + (t - first_size) // b
    start = 0 if j == 0 else first_size + (j - 1) * b
    size = min(first_size if j == 0 else b, length - start)
    place = start + permutation(key(seed, 2, epoch, c, j), size)[t - start]
    for i in permutation(key(seed, 1, epoch, c), len(pieces)):
        s, first, last = pieces[i]
        if place < last - first:
            return s, first + place
        place -= last - first
    raise AssertionError("a position beyond the end")


def rank_batch(start: int, stop: int, lanes: int, rank: int, world_size: int) -> list[int]:
    n = stop - start
    batch = sorted(range(start, stop), key=lambda p: (p % lanes, p // lanes))
    return batch[rank * n // world_size : (rank + 1) * n // world_size]


class Mixture:
    """The first positions of a mixture, one after the other; it counts draws one by one."""

    def __init__(
        self,
        components: Sequence[Sequence[int]],
        weights: Sequence[int | float | Fraction],
        seed: int,
        lanes: int,
        shuffle_block: int,
        phases: Sequence[tuple[int, Sequence[int | float | Fraction]]] = (),
        run: int | None = None,
    ) -> None:
        self.bounds = self.bounds_of(weights)
        self.run = run
        self.phases = [(0, self.bounds), *((start, self.bounds_of(later)) for start, later in phases)]
        self.components, self.seed, self.lanes, self.shuffle_block = components, seed, lanes, shuffle_block
        self._orders: dict[tuple[int, int, int], list[Place]] = {}

    @staticmethod
    def bounds_of(weights: Sequence[int | float | Fraction]) -> list[int]:
        exact = [Fraction(w) for w in weights]
        return [int(W * sum(exact[: i + 1]) // sum(exact)) for i in range(len(exact))]

    def draw(self, p: int) -> int:
        if self.run is None:
            c, t, m = p % self.lanes, p // self.lanes, max(1, 256 // self.lanes)
            t = m * (t // m) + permutation(key(self.seed, 5, c, t // m), m)[t % m]
            number = t * self.lanes + c
        else:
            number = p // self.run
            p = number * self.run  # the run has the weights of its first position
        bounds = [bounds for start, bounds in self.phases if start <= p][-1]
        x = (number * G + key(self.seed, 3)) % W
        return next(i for i, bound in enumerate(bounds) if x < bound)

    def positions(self, stop: int) -> list[tuple[int, int, int]]:
        result = []
        in_lane: dict[tuple[int, int], int] = {}
        in_all: dict[int, int] = {}
        for p in range(stop):
            c, i = p % self.lanes, self.draw(p)
            counts = self.components[i]
            n = sum(counts)
            j, k = in_lane.get((c, i), 0), in_all.get(i, 0)
            if n >= 1024 * self.lanes:
                length = lane_length(n, self.lanes, c)
                place = self._order(i, j // length, self.lanes)[(j % length) * self.lanes + c]
            else:
                place = self._order(i, k // n, 1)[k % n]
            result.append((i, *place))
            in_lane[c, i], in_all[i] = j + 1, k + 1
        return result

    def _order(self, i: int, epoch: int, lanes: int) -> list[Place]:
        identity = (i, epoch, lanes)
        if identity not in self._orders:
            seed = key(self.seed, 4, i)
            self._orders[identity] = whole_order(self.components[i], seed, epoch, lanes, self.shuffle_block)
        return self._orders[identity]


def in_selection(number: int, seed: int, start: Fraction, stop: Fraction) -> bool:
    """Return whether sample `number` of a dataset is in the selection by the fractions `start` to `stop`."""
    x = mix64((key(seed, 6) + (number + 1) * G) % W)
    return int(W * start) <= x < int(W * stop)
