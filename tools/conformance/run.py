"""Runs the matrix: for each loader a host, for each cell its legs, one after the other; then counts."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path

from tools.conformance.adaptors import Adaptor, adaptor
from tools.conformance.client import Host, HostFailed
from tools.conformance.count import Batch, count_against, count_epochs, cut_from, first_difference, global_batches
from tools.conformance.matrix import EPOCHS, PHASES, WEIGHTS, Cell, Data, Leg, Shape
from tools.conformance.result import Result
from tools.conformance.task import Consumed, Task, read_log

LIMIT = 60.0  # seconds for a leg: some take two, on an idle machine


class LegFailed(Exception):
    """A leg that came to no end of its own: `kind` is hang or error."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


@dataclass
class Matrix:
    """One loader's rows, run in `directory`. `spec` is a name in adaptors.NAMES or `module:attribute`."""

    spec: str
    python: Path
    directory: Path
    seed: int
    limit: float = LIMIT
    keep: bool = False
    versions: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.adaptor: Adaptor = adaptor(self.spec)
        self._references: dict[object, list[list[list[Consumed]]] | LegFailed] = {}
        self._legs = 0

    def run(self, cells: Sequence[Cell], done: Callable[[Result], None]) -> list[Result]:
        """The results in order; `done` hears each as it comes."""
        self.directory.mkdir(parents=True, exist_ok=True)
        results: list[Result] = []

        def add(result: Result) -> None:
            results.append(result)
            done(result)

        left = list(cells)
        try:
            with Host(self.spec, self.python, self.directory / "host.txt") as host:
                self.versions = host.versions
                prepared: dict[str, str] = {}
                while left:
                    add(self._cell(host, left[0], prepared))
                    left.pop(0)
        except HostFailed as error:
            for cell in left:
                add(Result(self.adaptor.name, cell.name, "error", detail=str(error)))
        return results

    def _cell(self, host: Host, cell: Cell, prepared: dict[str, str]) -> Result:
        result = Result(self.adaptor.name, cell.name, "unsupported")
        sentence = self.adaptor.unsupported(cell)
        if sentence is not None:
            return replace(result, detail=sentence)
        started = time.monotonic()
        try:
            for data in cell.data:
                self._prepare(host, data, prepared)
            legs = self._run_legs(host, cell, cell.legs)
            result = self._count(host, cell, legs, result)
        except LegFailed as error:
            result = replace(result, status=error.kind, detail=str(error))
        return replace(result, seconds=round(time.monotonic() - started, 1))

    def _count(self, host: Host, cell: Cell, legs: list[list[list[Consumed]]], result: Result) -> Result:
        by_leg = [global_batches(ranks) for ranks in legs]
        batches = [batch for leg in by_leg for batch in leg]
        reference: list[Batch] | None = None  # an uninterrupted run
        expected: list[Batch] | None = None  # its batches, or what they would be if it changed as this run did
        if self.adaptor.total_order:
            reference = self._reference(host, cell, Shape(1, 0, 1))
            sizes = [leg.shape.global_batch for leg, taken in zip(cell.legs, by_leg, strict=True) for _ in taken]
            if self.adaptor.crosses_epochs:
                sizes = [len(batch.ids) for batch in batches]
            expected = cut_from(batches, sizes, reference)
        elif cell.one_global_batch or cell.mixture:
            reference = self._reference(host, cell, cell.shapes[0])
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
        """How many of the samples lost in the last epoch are the rest that, as documented, fills no batch."""
        lost, repeated = last
        return lost if self.adaptor.drops_tail and not repeated and lost < cell.shapes[-1].global_batch else 0

    def _reference(self, host: Host, cell: Cell, shape: Shape) -> list[Batch]:
        """The global batches of an uninterrupted run."""
        key = (cell.data, shape, cell.phases, cell.nodes)
        if key not in self._references:
            try:
                self._references[key] = self._run_legs(host, cell, (Leg(shape),))
            except LegFailed as error:
                self._references[key] = error
        found = self._references[key]
        if isinstance(found, LegFailed):
            raise LegFailed(found.kind, f"uninterrupted: {found}")
        return global_batches(found[0])

    def _prepare(self, host: Host, data: Data, prepared: dict[str, str]) -> None:
        if data.name not in prepared:
            description = [data.name, data.shards, data.first]
            directory = str(self.directory / "data" / data.name)
            answer = host.request(self.limit, prepare=description, directory=directory)
            prepared[data.name] = "" if answer["outcome"] == "done" else answer["detail"]
        if prepared[data.name]:
            raise LegFailed("error", f"writing the dataset: {prepared[data.name]}")

    def _run_legs(self, host: Host, cell: Cell, legs: Sequence[Leg]) -> list[list[list[Consumed]]]:
        """Of each leg what each of its ranks took: up to the checkpoint, and of the last leg all."""
        result = []
        directories: list[Path] = []
        for number, leg in enumerate(legs):
            self._legs += 1
            directory = self.directory / f"{self._legs:03}-{cell.name}-{number}"
            directory.mkdir()
            task = Task(
                directory=str(directory),
                datasets=str(self.directory / "data"),
                data=cell.data,
                shape=leg.shape,
                stop=leg.stop,
                epochs=EPOCHS,
                seed=self.seed,
                weights=WEIGHTS if cell.mixture else (),
                phases=PHASES if cell.phases else (),
                resume=str(directories[-1]) if directories else None,
                limit=self.limit,
                nodes=cell.nodes,
            )
            directories.append(directory)
            answer = host.request(self.limit, leg=task.to_json())
            if answer["outcome"] != "done":
                where = f"resumed: {answer['detail']}" if number else str(answer["detail"])
                raise LegFailed(answer["outcome"], where)
            logs = [read_log(task.log_file(rank)) for rank in range(leg.shape.world)]
            result.append([saved if leg.stop else taken for saved, taken in logs])
        if not self.keep:
            for directory in directories:
                shutil.rmtree(directory)
        return result


def _uneven(ranks: Sequence[Sequence[Consumed]]) -> list[str]:
    """Says so, where the ranks took unequal numbers of batches: in a training the rest of them would wait for ever."""
    counts = [sum(1 for part in taken if part.epoch == EPOCHS - 1) for taken in ranks]
    return [f"ranks took {min(counts)} to {max(counts)} batches in an epoch"] if min(counts) < max(counts) else []
