"""Runs the cells of one loader, each leg after the other, and counts what it lost and repeated.

A loader's cells run in one process of its environment, started by `run_loader`.
"""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tools.account import Delivered, Id, lost_and_repeated, read_log
from tools.conformance.legs import LegFailed, run_leg, run_programs
from tools.conformance.matrix import EPOCHS, PHASES, WEIGHTS, Cell, Leg, Shape
from tools.conformance.task import Task, samples_of
from tools.peers import Peer, peer
from tools.processes import Call, CallFailed, stream

_LEGS = 8  # at most, in a cell, with those of its references and the writing of its datasets
_IMPORT = 180.0  # seconds


@dataclass(frozen=True)
class Result:
    """The result of a cell. `status`: exact, inexact, order, unsupported, hang, error or missing (not installed).

    `exact`: nothing lost or repeated, and the global batches as expected, if it is known what to expect (`order` is
    None if not).
    """

    cell: Cell
    status: str
    lost: int = 0
    repeated: int = 0
    order: bool | None = None
    detail: str = ""
    seconds: float = 0.0

    @property
    def word(self) -> str:
        if self.status == "inexact":
            counts = [(self.lost, "lost"), (self.repeated, "repeated")]
            return ", ".join(f"{word} {count}" for count, word in counts if count)
        words = {"exact": "ok", "order": "order differs", "missing": "not installed"}
        return words.get(self.status, self.status)


def run_loader(
    spec: str, environment: str | None, directory: Path, chosen: Sequence[Cell], *, seed: int, limit: float
) -> Generator[Result, None, None]:
    """Yield the result of each cell. `spec` is a name in peers.NAMES or `module:attribute`."""
    directory.mkdir(parents=True, exist_ok=True)
    given = {"spec": spec, "directory": str(directory), "chosen": msgspec.to_builtins(chosen)}
    call = Call("tools.conformance.run:run_cells", {**given, "seed": seed, "limit": limit}, environment)
    done = 0
    try:
        for answer in stream(call, scratch=directory, limit=_IMPORT + _LEGS * limit):
            yield msgspec.convert(answer, Result)
            done += 1
    except CallFailed as error:
        yield from (Result(cell, "error", detail=str(error)) for cell in chosen[done:])


def run_cells(spec: str, directory: str, chosen: list[Any], seed: int, limit: float) -> Iterator[Any]:
    loader = peer(spec)
    loader.warm()
    gc.freeze()  # else the first garbage collection of each rank passes over all that was imported
    matrix = _Matrix(loader, Path(directory), seed, limit)
    for cell in msgspec.convert(chosen, list[Cell]):
        yield msgspec.to_builtins(matrix.run(cell))


class _Matrix:
    def __init__(self, loader: Peer, directory: Path, seed: int, limit: float) -> None:
        self._peer, self._directory, self._seed, self._limit = loader, directory, seed, limit
        self._made: dict[object, Any] = {}  # datasets and uninterrupted runs, or why they failed
        self._legs = 0

    def run(self, cell: Cell) -> Result:
        if (sentence := self._peer.excluded(cell)) is not None:
            return Result(cell, "unsupported", detail=sentence)
        started = time.monotonic()
        try:
            for data in cell.data:
                programs = [partial(self._peer.prepare, self._directory / "data" / data.name, data)]
                write = partial(run_programs, programs, self._directory / f"prepare-{data.name}", self._limit)
                self._once(data, "writing the dataset", write)
            result = self._count(cell, self._run_legs(cell, cell.legs))
        except LegFailed as error:
            result = Result(cell, error.kind, detail=str(error))
        return replace(result, seconds=round(time.monotonic() - started, 1))

    def _count(self, cell: Cell, legs: list[list[list[Delivered]]]) -> Result:
        by_leg = [global_batches(ranks) for ranks in legs]
        batches = [batch for leg in by_leg for batch in leg]
        reference: list[Batch] = []  # an uninterrupted run
        expected: list[Batch] | None = None  # its batches, or what they would be if it changed as this run did
        if self._peer.packs_by_order if cell.packed else self._peer.total_order:
            reference = self._reference(cell, Shape(1, 0, 1))
            sizes = [shape.global_batch for shape, taken in zip(cell.shapes, by_leg, strict=True) for _ in taken]
            if self._peer.crosses_epochs:
                sizes = [len(batch.ids) for batch in batches]
            expected = cut(reference, zip([batch.epoch for batch in batches], sizes, strict=True))
        elif cell.one_global_batch or cell.mixture:
            reference = self._reference(cell, cell.shapes[0])
            expected = reference if cell.one_global_batch else None
        if cell.mixture:
            counts = [count(unpacked(batches), [number for batch in unpacked(reference) for number in batch.ids])]
        else:
            counts = count_epochs(unpacked(batches), cell.ids, EPOCHS)
        lost, repeated = (sum(numbers) for numbers in zip(*counts, strict=True))
        dropped = 0
        if cell.drop_last and expected is not None:
            incomplete = [batch for batch in expected[len(batches) :] if len(batch.ids) < cell.shapes[-1].global_batch]
            expected = [batch for batch in expected if batch not in incomplete]
            dropped = sum(len(batch.ids) for batch in unpacked(incomplete))
            lost -= dropped
        tail, too_many = counts[-1]
        if tail and not too_many and self._peer.drops_tail and tail < cell.shapes[-1].global_batch:
            lost -= tail
            expected = expected and expected[:-1]
        else:
            tail = 0
        notes = []
        if (lost or repeated) and not cell.mixture:
            notes = [f"epoch {epoch}: lost {n}, repeated {m}" for epoch, (n, m) in enumerate(counts) if n or m]
        order = None
        if expected is not None:
            different = first_difference(batches, expected)
            order = different is None
            if different is not None:
                epoch = [*batches, *expected[len(batches) :]][different].epoch
                notes.append(f"other batches from batch {different + 1} of the run on, in epoch {epoch}")
        taken = [sum(part.epoch == EPOCHS - 1 for part in rank) for rank in legs[-1]]
        if min(taken) < max(taken):  # in a training, the others would wait forever
            notes.append(f"ranks took {min(taken)} to {max(taken)} batches in an epoch")
        if dropped:
            notes.append(f"{dropped} samples of incomplete last batches dropped, as asked")
        if tail:
            notes.append(f"{tail} samples of the run's end dropped, as documented")
        status = "inexact" if lost or repeated else "order" if order is False else "exact"
        return Result(cell, status, lost, repeated, order, "; ".join(notes))

    def _reference(self, cell: Cell, shape: Shape) -> list[Batch]:
        key = (cell.data, shape, cell.phases, cell.nodes, cell.packed, cell.part)
        (ranks,) = self._once(key, "uninterrupted", partial(self._run_legs, cell, ((shape, None),)))
        return global_batches(ranks)

    def _once(self, key: object, what: str, make: Callable[[], Any]) -> Any:
        """Return what `make` returns, or raise its LegFailed. It is called once for each key."""
        if key not in self._made:
            try:
                self._made[key] = make()
            except LegFailed as error:
                self._made[key] = LegFailed(error.kind, f"{what}: {error}")
        if isinstance(self._made[key], LegFailed):
            raise self._made[key]
        return self._made[key]

    def _run_legs(self, cell: Cell, legs: Sequence[Leg]) -> list[list[list[Delivered]]]:
        """For each leg, what each of its ranks took: until the checkpoint, or everything in the last leg."""
        result = []
        before = ""
        for number, (shape, stop) in enumerate(legs):
            self._legs += 1
            directory = self._directory / f"{self._legs:03}-{cell.name}-{number}"
            task = Task(
                directory=str(directory),
                datasets=str(self._directory / "data"),
                data=cell.data,
                shape=shape,
                stop=stop,
                epochs=EPOCHS,
                seed=self._seed,
                weights=WEIGHTS if cell.mixture else (),
                phases=PHASES if cell.phases else (),
                resume=before,
                nodes=cell.nodes,
                packed=cell.packed,
                part=cell.part,
                drop_last=cell.drop_last,
            )
            before = task.directory
            try:
                run_leg(self._peer, task, self._limit)
            except LegFailed as error:
                raise LegFailed(error.kind, f"resumed: {error}" if number else str(error)) from None
            logs = [read_log(task.log_file(rank)) for rank in range(shape.world)]
            result.append([log.delivered[: log.saved if stop else None] for log in logs])
        return result


# --- counting


class Batch(NamedTuple):
    """The samples that all ranks together took in one step."""

    epoch: int
    ids: tuple[Id, ...]


def global_batches(ranks: Iterable[Sequence[Delivered]]) -> list[Batch]:
    """The global batches of one leg, in order: a rank's nth batch of an epoch belongs to that epoch's nth step."""
    batches: dict[tuple[int, int], list[Id]] = {}
    for part in chain.from_iterable(ranks):
        batches.setdefault((part.epoch, part.start), []).extend(part.ids)
    return [Batch(epoch, tuple(batches[epoch, step])) for epoch, step in sorted(batches)]


def unpacked(batches: Iterable[Batch]) -> list[Batch]:
    """The batches with the samples of their packed rows."""
    return [
        Batch(
            epoch, tuple(number for each in ids for number in (samples_of(each) if isinstance(each, str) else [each]))
        )
        for epoch, ids in batches
    ]


def count(batches: Iterable[Batch], ids: Iterable[Id]) -> tuple[int, int]:
    """(lost, repeated), where each of `ids` must come as often as it is there. A strange id counts as repeated."""
    return lost_and_repeated(Counter(number for batch in batches for number in batch.ids), Counter(ids))


def count_epochs(batches: Sequence[Batch], ids: Sequence[int], epochs: int) -> list[tuple[int, int]]:
    """Of each epoch (lost, repeated), where each of `ids` must come exactly once."""
    return [count((batch for batch in batches if batch.epoch == epoch), ids) for epoch in range(epochs)]


def first_difference(batches: Sequence[Batch], reference: Sequence[Batch]) -> int | None:
    """The number of the first batch that is not the same set in both, in order."""
    pairs = zip_longest(
        *([(each.epoch, Counter(each.ids)) for each in run if each.ids] for run in (batches, reference))
    )
    return next((number for number, (one, other) in enumerate(pairs) if one != other), None)


def cut(order: Sequence[Batch], sizes: Iterable[tuple[int, int]]) -> list[Batch]:
    """`order`, whose batches are of one sample each, cut into a batch for each of `sizes`: (epoch, samples at most).

    What `sizes` leave of an epoch is a last batch.
    """
    lines: dict[int, list[Id]] = {}
    for batch in order:
        lines.setdefault(batch.epoch, []).extend(batch.ids)
    result = []
    for epoch, size in sizes:
        line = lines.get(epoch, [])
        result.append(Batch(epoch, tuple(line[:size])))
        del line[:size]
    return result + [Batch(epoch, tuple(line)) for epoch, line in lines.items() if line]
