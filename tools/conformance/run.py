"""Runs the cells of one loader, each leg after the other, and counts what it lost and repeated.

A loader's cells run in one process of its environment, started by `run_loader`.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from itertools import zip_longest
from pathlib import Path
from typing import Any

from tools.conformance.count import Batch, count_against, count_epochs, cut_from, first_difference, global_batches
from tools.conformance.legs import LegFailed, prepare, run_leg
from tools.conformance.matrix import EPOCHS, PHASES, WEIGHTS, Cell, Data, Leg, Shape, cells
from tools.conformance.task import Consumed, Task, read_log
from tools.peers import peer
from tools.processes import Call, CallFailed, stream

_LEGS = 8  # at most, in a cell, with those of its references and the writing of its datasets
_IMPORT = 180.0  # seconds


@dataclass(frozen=True)
class Result:
    """The result of a cell. `status`: exact, inexact, order, unsupported, hang, error or missing (not installed).

    `exact`: nothing lost or repeated, and the global batches as expected, if it is known what to expect (`order` is
    None if not).
    """

    loader: str
    cell: str
    status: str
    lost: int = 0
    repeated: int = 0
    order: bool | None = None
    detail: str = ""
    seconds: float = 0.0

    @property
    def word(self) -> str:
        """The word for tables."""
        if self.status == "inexact":
            counts = [(self.lost, "lost"), (self.repeated, "repeated")]
            return ", ".join(f"{word} {count}" for count, word in counts if count)
        words = {"exact": "ok", "order": "order differs", "missing": "not installed"}
        return words.get(self.status, self.status)


def run_loader(
    spec: str,
    directory: Path,
    chosen: Sequence[Cell],
    *,
    seed: int,
    limit: float,
    keep: bool = False,
    done: Callable[[Result], None] = lambda result: None,
) -> tuple[Mapping[str, str], list[Result]]:
    """Return the versions of the loader's packages, and its results in the order of the cells; call `done` for each.

    `spec` is a name in peers.NAMES or `module:attribute`.
    """
    directory.mkdir(parents=True, exist_ok=True)
    versions: Mapping[str, str] = {}
    results: list[Result] = []
    environment = None if ":" in spec else peer(spec).environment
    given = {"spec": spec, "directory": str(directory), "names": [cell.name for cell in chosen], "keep": keep}
    what = Call("tools.conformance.run:run_cells", {**given, "seed": seed, "limit": limit}, environment)
    try:
        answers = stream(what, {}, scratch=directory, limit=_IMPORT + _LEGS * limit)
        versions = next(answers)
        for answer in answers:
            results.append(Result(**answer))
            done(results[-1])
    except CallFailed as error:
        for cell in chosen[len(results) :]:
            results.append(Result(spec, cell.name, "error", detail=str(error)))
            done(results[-1])
    return versions, results


def run_cells(spec: str, directory: str, names: list[str], seed: int, limit: float, keep: bool) -> Iterator[Any]:
    """Yield the versions, then each result, in the loader's environment."""
    loader = peer(spec)
    loader.warm()
    yield {name: version(name) for name in loader.packages}
    matrix = _Matrix(spec, Path(directory), seed, limit, keep)
    by_name = {cell.name: cell for cell in cells(seed)}
    for name in names:
        yield asdict(matrix.run(by_name[name]))


class _Matrix:
    def __init__(self, spec: str, directory: Path, seed: int, limit: float, keep: bool) -> None:
        self._peer = peer(spec)
        self._directory, self._seed, self._limit, self._keep = directory, seed, limit, keep
        self._references: dict[object, list[list[list[Consumed]]] | LegFailed] = {}
        self._prepared: dict[str, str] = {}  # dataset -> why it could not be written
        self._legs = 0

    def run(self, cell: Cell) -> Result:
        result = Result(self._peer.name, cell.name, "unsupported")
        sentence = self._peer.unsupported(cell)
        if sentence is not None:
            return replace(result, detail=sentence)
        started = time.monotonic()
        try:
            for data in cell.data:
                self._prepare(data)
            result = self._count(cell, self._run_legs(cell, cell.legs), result)
        except LegFailed as error:
            result = replace(result, status=error.kind, detail=str(error))
        return replace(result, seconds=round(time.monotonic() - started, 1))

    def _count(self, cell: Cell, legs: list[list[list[Consumed]]], result: Result) -> Result:
        by_leg = [global_batches(ranks) for ranks in legs]
        batches = [batch for leg in by_leg for batch in leg]
        reference: list[Batch] | None = None  # an uninterrupted run
        expected: list[Batch] | None = None  # its batches, or what they would be if it changed as this run did
        if self._peer.total_order:
            reference = self._reference(cell, Shape(1, 0, 1))
            sizes = [leg.shape.global_batch for leg, taken in zip(cell.legs, by_leg, strict=True) for _ in taken]
            if self._peer.crosses_epochs:
                sizes = [len(batch.ids) for batch in batches]
            expected = cut_from(batches, sizes, reference)
        elif cell.one_global_batch or cell.mixture:
            reference = self._reference(cell, cell.shapes[0])
            expected = reference if cell.one_global_batch else None
        if cell.mixture:
            assert reference is not None
            counts = [count_against(batches, reference)]
        else:
            counts = count_epochs(batches, cell.data[0].ids, EPOCHS)
        lost, repeated = (sum(numbers) for numbers in zip(*counts, strict=True))
        tail = self._tail(cell, counts[-1] if cell.mixture else counts[EPOCHS - 1])
        if tail:
            lost -= tail
            expected = None if expected is None else expected[:-1]
        different = None if expected is None else first_difference(batches, expected)
        order = None if expected is None else different is None
        status = "inexact" if lost or repeated else "order" if order is False else "exact"
        notes = [
            f"epoch {epoch}: lost {lost}, repeated {repeated}"
            for epoch, (lost, repeated) in enumerate(counts)
            if status == "inexact" and not cell.mixture and (lost or repeated)
        ]
        if different is not None and expected is not None:
            number = next(n for n, pair in enumerate(zip_longest(batches, expected)) if different in pair)
            notes.append(f"other batches from batch {number + 1} of the run on, in epoch {different.epoch}")
        notes += _uneven(legs[-1])
        if tail:
            notes.append(f"{tail} samples of the run's end dropped, as documented")
        return replace(result, status=status, lost=lost, repeated=repeated, order=order, detail="; ".join(notes))

    def _tail(self, cell: Cell, last: tuple[int, int]) -> int:
        """How many samples lost in the last epoch are the rest that, as documented, fills no batch."""
        lost, repeated = last
        return lost if self._peer.drops_tail and not repeated and lost < cell.shapes[-1].global_batch else 0

    def _reference(self, cell: Cell, shape: Shape) -> list[Batch]:
        """The global batches of an uninterrupted run."""
        key = (cell.data, shape, cell.phases, cell.nodes)
        if key not in self._references:
            try:
                self._references[key] = self._run_legs(cell, (Leg(shape),))
            except LegFailed as error:
                self._references[key] = error
        found = self._references[key]
        if isinstance(found, LegFailed):
            raise LegFailed(found.kind, f"uninterrupted: {found}")
        return global_batches(found[0])

    def _prepare(self, data: Data) -> None:
        if data.name not in self._prepared:
            self._prepared[data.name] = ""
            try:
                prepare(self._peer, self._directory / "data" / data.name, data, self._limit)
            except LegFailed as error:
                self._prepared[data.name] = str(error)
        if self._prepared[data.name]:
            raise LegFailed("error", f"writing the dataset: {self._prepared[data.name]}")

    def _run_legs(self, cell: Cell, legs: Sequence[Leg]) -> list[list[list[Consumed]]]:
        """For each leg, what each of its ranks took: until the checkpoint, or everything in the last leg."""
        result = []
        directories: list[Path] = []
        for number, leg in enumerate(legs):
            self._legs += 1
            directory = self._directory / f"{self._legs:03}-{cell.name}-{number}"
            directory.mkdir()
            task = Task(
                directory=str(directory),
                datasets=str(self._directory / "data"),
                data=cell.data,
                shape=leg.shape,
                stop=leg.stop,
                epochs=EPOCHS,
                seed=self._seed,
                weights=WEIGHTS if cell.mixture else (),
                phases=PHASES if cell.phases else (),
                resume=str(directories[-1]) if directories else None,
                limit=self._limit,
                nodes=cell.nodes,
            )
            directories.append(directory)
            try:
                run_leg(self._peer, task)
            except LegFailed as error:
                raise LegFailed(error.kind, f"resumed: {error}" if number else str(error)) from None
            logs = [read_log(task.log_file(rank)) for rank in range(leg.shape.world)]
            result.append([saved if leg.stop else taken for saved, taken in logs])
        if not self._keep:
            for directory in directories:
                shutil.rmtree(directory)
        return result


def _uneven(ranks: Sequence[Sequence[Consumed]]) -> list[str]:
    """A note if the ranks took unequal numbers of batches: in a training, the others would wait forever."""
    counts = [sum(1 for part in taken if part.epoch == EPOCHS - 1) for taken in ranks]
    return [f"ranks took {min(counts)} to {max(counts)} batches in an epoch"] if min(counts) < max(counts) else []
