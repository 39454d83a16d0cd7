"""Simulated training ranks: each has the loader's real reader and prefetcher, and steps that take a given time.

The ranks of all simulated nodes wait for each other after each step, as they do to average gradients.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count, repeat
from typing import NamedTuple

from mdsx.base.work import Chunks, chunk_lengths
from mdsx.loader import batches_ready, batches_together
from mdsx.order import Course
from mdsx.simulate.clock import Barrier, Line, SimulatedProcess, World
from mdsx.simulate.link import Connections, Link
from mdsx.simulate.node import Node, ProcessCache
from mdsx.simulate.settings import Cluster, Loading
from mdsx.simulate.stored import Stored
from mdsx.simulate.view import Fetched, SimulatedView
from mdsx.stream import Cursor, Pace, RankReader, Steps, Task

_EARLY = 32  # connections that opening a dataset opens


class Mark(NamedTuple):
    """The state of a node when a step begins on all ranks. `shards`: fetched whole; `samples`: fetched by range;
    `once`: bytes of the shards with anything fetched, each counted once."""

    seconds: float
    downloaded: int
    requests: int
    cached: int
    shards: int
    samples: int
    once: int


NOTHING = Mark(0.0, 0, 0, 0, 0, 0, 0)


@dataclass(slots=True)
class SimulatedNode:
    """A node with its cache, its link, and a record of its ranks. `ranks`: the run's ranks on this node; `waits`: how
    many seconds each step of a rank waited for its batch."""

    number: int
    ranks: range
    cache: Node
    link: Link
    fetched: Fetched
    waits: dict[int, list[float]] = field(default_factory=dict)
    marks: list[Mark] = field(default_factory=list)
    edges: list[int] = field(default_factory=list)  # how many marks there were at the end of each pass

    end: Mark = NOTHING

    def now(self, seconds: float) -> Mark:
        """Return the node's present state."""
        fetched = self.fetched
        return Mark(
            seconds,
            self.link.bytes,
            self.link.requests,
            self.cache.total,
            len(fetched.whole),
            fetched.alone,
            fetched.once,
        )


@dataclass(frozen=True, slots=True)
class Data:
    """What a node reads: the order, how `steps(rank)` cuts it into steps, and the stored data."""

    course: Course
    steps: Callable[[int], Steps]
    stored: Stored


class Trainer:
    """One rank, which reads `data`."""

    def __init__(
        self, world: World, node: SimulatedNode, rank: int, data: Data, cluster: Cluster, loading: Loading
    ) -> None:
        self._world, self._node, self._rank, self._data = world, node, rank, data
        self._loading, self._steps = loading, data.steps(rank)
        self._processes = cluster.ranks_per_node * max(loading.num_workers, 1)
        self._pace = Pace()
        self._waits = node.waits[rank] = list[float]()

    def train(self, passes: list[Cursor], most: int | None, barrier: Barrier) -> None:
        """Take the steps of all passes, each from its cursor to the epoch's end, or at most `most` steps."""
        world = self._world
        for cursor in passes:
            batches = self._batches(cursor)
            taken = 0
            while most is None or taken < most:
                before = world.now
                if next(batches, None) is None:
                    break
                self._waits.append(world.now - before)
                barrier.wait()
                if self._rank == self._node.ranks[0]:
                    self._node.marks.append(self._node.now(world.now))
                world.sleep(self._loading.step)
                taken += 1
            if self._rank == self._node.ranks[0]:
                self._node.edges.append(len(self._node.marks))
        barrier.leave()

    def _batches(self, cursor: Cursor) -> Iterator[int]:
        """Yield 1 for each batch, once it is ready."""
        return self._from_workers(cursor) if self._loading.num_workers else self._from_thread(cursor)

    def _from_thread(self, cursor: Cursor) -> Iterator[int]:
        """As `Threads` of mdsx/base/work."""
        reader, tasks = self._reader(self._pace, _EARLY), self._steps.tasks(cursor)
        together = batches_together(self._batch_bytes)
        line: Line[int] = Line(self._world, max(batches_ready(self._batch_bytes) // together, 1))

        def make() -> None:
            for chunk in reader.chunks(tasks):
                for made in Chunks(reader.read_each(chunk), repeat(together)):
                    line.put(len(made))
            reader.close()
            line.put(0)

        self._world.start(make)
        while number := line.get():
            for _ in range(number):
                yield 1

    def _from_workers(self, cursor: Cursor) -> Iterator[int]:
        """As `Processes` of mdsx/base/work: workers get chunks in turn, and answer in the same order."""
        workers, tasks = self._loading.num_workers, self._steps.tasks(cursor)
        together = batches_together(self._batch_bytes, workers)
        asks: list[Line[list[Task]]] = [Line(self._world, 2**30) for _ in range(workers)]
        answers: list[Line[int]] = [Line(self._world, 2**30) for _ in range(workers)]

        def work(number: int) -> None:
            reader = self._reader(Pace(), 0)
            while chunk := asks[number].get():
                next(reader.read(chunk, joined=True))
                answers[number].put(len(chunk))
            reader.close()

        for number in range(workers):
            self._world.start(partial(work, number))
        chunks, numbers, asked = Chunks(tasks, chunk_lengths(workers, together)), count(), deque[int]()

        def ask() -> None:
            number = next(numbers)
            if chunk := next(chunks, None):
                asks[number % workers].put(chunk)
                asked.append(number % workers)

        for _ in range(self._loading.prefetch_factor * workers):
            ask()
        while asked:
            made = answers[asked.popleft()].get()
            ask()
            for _ in range(made):
                yield 1
        for line in asks:
            line.put([])

    @property
    def _batch_bytes(self) -> int:
        steps = self._steps
        return max(self._data.stored.sample_bytes * steps.step_samples // steps.world_size, 1)

    def _reader(self, pace: Pace, connections: int) -> RankReader:
        """Return the reader of a new process or thread of the rank."""
        node, process = self._node, SimulatedProcess(self._world)
        cache = ProcessCache(node.cache)
        view = SimulatedView(self._data.stored, process, cache, node.link, Connections(connections), node.fetched)
        return RankReader(
            view,
            self._data.course,
            self._steps,
            self._rank,
            pace=pace,
            processes=self._processes,
            scheduler=process,
        )


def train(
    nodes: list[tuple[SimulatedNode, Data]],
    world: World,
    cluster: Cluster,
    loading: Loading,
    passes: list[Cursor],
    most: int | None,
) -> None:
    """Train with all ranks of `nodes`, until they have taken their steps and nothing more is fetched."""
    ranks, ended = sum(len(node.ranks) for node, _ in nodes), [0.0]
    barrier = Barrier(world, ranks)
    left = [ranks]

    def begin() -> None:
        for node, data in nodes:
            for rank in node.ranks:
                trainer = Trainer(world, node, rank, data, cluster, loading)
                world.start(partial(finish, trainer))

    def finish(trainer: Trainer) -> None:
        trainer.train(passes, most, barrier)
        left[0] -= 1
        ended[0] = world.now
        if not left[0] and most is not None:  # readers are ahead of the last step
            world.end()

    world.run(begin)
    for node, _ in nodes:
        node.end = node.now(ended[0])
