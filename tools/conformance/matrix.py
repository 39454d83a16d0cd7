"""The cells of the matrix: which runs are made, where they are killed, how they continue. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass

SEED = 7
LIMIT = 60.0  # seconds for a leg: some take two, on an idle machine
EPOCHS = 2  # of every run: what follows a resumed epoch counts too
_SHARD = 80  # samples


@dataclass(frozen=True)
class Data:
    """A dataset: the ids of its samples are `first`, `first + 1`, ...; `shards` are the samples of each shard."""

    name: str
    shards: tuple[int, ...]
    first: int = 0

    @property
    def samples(self) -> int:
        return sum(self.shards)

    @property
    def ids(self) -> range:
        return range(self.first, self.first + self.samples)


EVEN = Data("even", (_SHARD,) * 12)
UNEVEN = Data("uneven", (*(_SHARD,) * 12, 37))  # 997, a prime
FEW = Data("few", (2, 2, 1))
LARGE = Data("large", (*(4096,) * 16, 1))  # 65,537: one more than a power of two, where a bad permutation shows
HALF_A = Data("a", (_SHARD,) * 6)
HALF_B = Data("b", (_SHARD,) * 3, first=10_000)

WEIGHTS = (0.7, 0.3)
PART = (300, 780)  # samples of the selection in EVEN
CAPACITY = 256  # bytes of text in a packed row: about 4 samples
WINDOW = 16  # positions per lane: mdsx packs some 30 rows together, so runs are killed within a window
PHASES = ((72, (0.3, 0.7)), (360, (0.9, 0.1)), (1200, (0.5, 0.5)))
"""From these positions on (samples since the run began) the mixture has these weights."""


@dataclass(frozen=True)
class Shape:
    """How a run is spread: `batch` is per rank, in samples or packed rows."""

    world: int
    workers: int
    batch: int

    @property
    def global_batch(self) -> int:
        return self.world * self.batch


@dataclass(frozen=True)
class Stop:
    """The checkpoint is taken after `step` batches of `epoch` (None: after its end); then `more` batches, then SIGKILL.

    Steps are counted in the run that is stopped. A rank whose epoch has fewer takes it at the epoch's end.
    """

    epoch: int
    step: int | None
    more: int


Leg = tuple[Shape, Stop | None]
"""A run from its start or a checkpoint, until it is stopped or has done all epochs."""


@dataclass(frozen=True)
class Cell:
    name: str
    title: str
    data: tuple[Data, ...]
    legs: tuple[Leg, ...]
    phases: bool = False
    nodes: bool = False  # whether each rank is on a node of its own; else all are on one
    packed: bool = False  # whether samples are packed into rows
    part: bool = False  # whether a selection is read: the samples of PART
    drop_last: bool = False  # whether rows that do not fill an epoch's last batch are left out
    quick: bool = False  # whether `--quick` runs it

    @property
    def mixture(self) -> bool:
        return len(self.data) > 1

    @property
    def shapes(self) -> tuple[Shape, ...]:
        return tuple(shape for shape, _ in self.legs)

    @property
    def resumes(self) -> bool:
        return len(self.legs) > 1

    @property
    def one_global_batch(self) -> bool:
        """Whether all legs cut the epoch into the same batches."""
        return len({shape.global_batch for shape in self.shapes}) == 1

    @property
    def ids(self) -> range:
        """The samples of an epoch, unless it is a mixture."""
        return self.data[0].ids[slice(*PART)] if self.part else self.data[0].ids


def cells(seed: int = SEED) -> tuple[Cell, ...]:
    """The whole matrix. The steps at which runs are killed are drawn by `seed`."""
    two, three, four = Shape(2, 1, 12), Shape(3, 1, 8), Shape(4, 1, 6)  # a global batch of 24 each
    workers, mix = Shape(2, 2, 12), (HALF_A, HALF_B)
    rows: list[Cell] = []

    def add(
        name: str,
        title: str,
        *shapes: Shape,
        data: tuple[Data, ...] = (EVEN,),
        epoch: int = 0,
        stop: Stop | None = None,
        **more: bool,
    ) -> None:
        draw = random.Random(f"{seed} {name}")
        steps = max(1, sum(each.samples for each in data) // shapes[0].global_batch)
        if more.get("packed"):
            steps //= 8 if more.get("part") else 4
        share = steps * 4 // 5 // max(1, len(shapes) - 1)  # of each leg but the last, which has the rest
        ranges = (max(1, share // 3), max(1, share)), (0, min(4, steps // 10))
        stops = [stop or Stop(epoch, *(draw.randint(*each) for each in ranges)) for _ in shapes[1:]]
        rows.append(Cell(name, title, data, tuple(zip(shapes, [*stops, None], strict=True)), **more))

    add("uninterrupted", "uninterrupted", workers, quick=True)
    add("same", "killed, resumed", workers, workers)
    add("more-ranks", "resumed on more ranks", two, four)
    add("fewer-ranks", "resumed on fewer ranks", four, two)
    add("4-to-3", "4 -> 3 ranks, equal global batch", four, three)
    add("4-to-3-batch", "4 -> 3 ranks, equal batch per rank", four, Shape(3, 1, 6))
    add("nodes", "4 -> 3 nodes, equal global batch", four, three, nodes=True)
    add("workers", "1 -> 3 workers", two, Shape(2, 3, 12))
    add("no-workers", "2 -> 0 workers", workers, Shape(2, 0, 12))
    add("batch", "batch doubled", two, Shape(2, 1, 24))
    add("batch-odd", "batch 12 -> 7, not dividing", two, Shape(2, 1, 7))
    add("all", "ranks, workers and batch changed", Shape(3, 2, 8), Shape(4, 1, 5), quick=True)
    add("twice", "killed twice", two, two, two)
    add("twice-changed", "killed twice, changed twice", two, three, Shape(4, 2, 6), quick=True)
    add("second-epoch", "killed in the second epoch", two, two, epoch=1, quick=True)
    last = Stop(0, EVEN.samples // two.global_batch, 0)
    add("last-batch", "killed after the last batch", two, two, stop=last, quick=True)
    add("epoch-end", "killed after an epoch's end", two, two, stop=Stop(0, None, 0), quick=True)
    add("uneven", "uneven shards", Shape(3, 2, 8), data=(UNEVEN,))
    add("uneven-resume", "uneven shards, killed", Shape(3, 2, 8), Shape(3, 2, 8), data=(UNEVEN,), quick=True)
    add("large", "65,537 samples, one rank", Shape(1, 1, 256), data=(LARGE,))
    add("few", "fewer samples than ranks x workers", Shape(3, 2, 1), data=(FEW,))
    add("few-resume", "fewer samples, killed", Shape(3, 2, 1), Shape(3, 2, 1), data=(FEW,), quick=True)
    add("mixture", "mixture", two, data=mix)
    add("mixture-resume", "mixture, killed", two, two, data=mix)
    add("mixture-4-to-3", "mixture, 4 -> 3 ranks", four, three, data=mix)
    add("mixture-phases", "mixture, weights changed, killed twice", two, three, four, data=mix, phases=True, quick=True)
    two, three, four = Shape(2, 1, 4), Shape(3, 2, 3), Shape(4, 1, 2)
    add("packed-resume", "packed rows, killed", two, two, packed=True)
    add("packed-ranks", "packed rows, ranks, workers and rows changed twice", two, three, four, packed=True, quick=True)
    add("packed-drop-last", "packed rows, 4 -> 3 ranks, last step dropped", four, three, packed=True, drop_last=True)
    add("packed-mixture", "packed rows of a mixture, 4 -> 3 ranks", four, three, data=mix, packed=True, quick=True)
    add("packed-part", "packed rows of a selection, killed", two, two, packed=True, part=True)
    return tuple(rows)
