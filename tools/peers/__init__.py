"""The loaders that are compared: a module each, which drives its loader as documented, at its best.

Bench, conformance and faults all use these modules. A module imports its loader lazily, since a loader is installed
only in its own environment: see tools/environment.py.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from tools.account import Id
from tools.conformance.matrix import Cell, Data
from tools.conformance.task import Task, checked, sample_of, shards_of
from tools.processes import have_own_shared_memory

NAMES = tuple(sorted((each.name for each in pkgutil.iter_modules(__path__)), key=lambda name: (name != "mdsx", name)))
Make = Callable[[int], dict[str, Any]]
"""Returns the sample with a number."""


class Lazy:
    """A module that is imported when it is used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._name), name)


@dataclass(frozen=True)
class Layout:
    """How a dataset is written. With `shard`, each shard has about that many samples, and `size` is not used."""

    shard: int | None = None
    size: int = 2**26  # bytes of a shard
    compression: str | None = None
    workers: int = 1
    tokens_loader: bool = False  # LitData's format for language models


@dataclass(frozen=True)
class Reading:
    """How the dataset at `source`, or those of a leg of the matrix, are read. Remote ones are copied to `cache`."""

    source: str
    kind: str  # the name of the workload
    batch_size: int = 1
    workers: int = 0
    seed: int = 7
    cache: str | None = None
    tokens_loader: bool = False
    decoded: bool = False  # JPEGs are decoded to pixels
    size: int | None = None  # of these, if they are resized
    views: bool = False  # encoded bytes are not copied
    dicts: bool = False  # samples are dicts, instead of columns
    shuffle: bool = True
    packed: int = 0  # texts are packed into rows of that many tokens
    threads: int = 1  # that prepare batches
    persistent: bool = False  # workers live on from epoch to epoch
    leg: Task | None = None

    @property
    def sources(self) -> list[str]:
        """All datasets: with `weights`, those of a mixture."""
        return self.leg.sources() if self.leg else [self.source]

    @property
    def weights(self) -> list[float]:
        return list(self.leg.weights) if self.leg else []


class Loader:
    """The loader of one rank in a leg of the matrix: around `_loader`, a loader of PyTorch's kind."""

    epoch: int = 0  # of the next batch, also after a resume

    def __init__(self, loader: Any, task: Task, states: list[Any]) -> None:
        self._loader, self._task = loader, task
        if states:
            self.resume(states)

    def resume(self, states: list[Any]) -> None:
        """Continue from what the ranks saved."""

    def batches(self, epoch: int) -> Iterator[Sequence[Id]]:
        """The ids of each batch of the rest of the epoch, or its packed rows (see row_of); WRONG for a sample that
        differs from what was written."""
        for batch in self._loader:
            yield checked(batch["id"].tolist(), batch["text"])

    def state(self) -> Any:
        """This rank's part of a checkpoint, taken after a batch: anything that pickle can store."""
        return self._loader.state_dict()


class Peer:
    """A loader. Its module has an instance as `PEER`, which has the methods that the loader is measured by."""

    name: str
    title: str
    environment: str | None = None  # the name of its requirements file; None is the project's environment
    packages: tuple[str, ...]  # distributions whose versions are shown
    imports: tuple[str, ...] = ()  # modules that every process needs
    settings: ClassVar[Mapping[str, str]] = {}  # environment variables that are set before the imports
    total_order = False  # the order is documented as one sequence, which any batch size cuts
    crosses_epochs = False  # a global batch may contain samples of two epochs
    drops_tail = False  # the run's last batch is dropped if it is not full, as documented
    shares_memory = False  # its processes on a node find each other by names in shared memory
    forks_to_write = False  # writing starts processes: nothing to warm up in this one
    in_bench = True  # its own format is measured
    in_faults = True
    in_conformance = True
    best_workers = 0  # with which its loader is fastest on two cores
    remote = False  # it reads from object storage, here S3
    writes = True  # datasets of its own, sample by sample
    findings: ClassVar[Mapping[str, str]] = {}  # cell -> why it fails, found by hand
    packs = False  # it packs samples into rows
    packs_by_order = False  # the rows are documented to be the same for any number of ranks
    no_phases: str | None = None  # the sentence of its documentation by which weights cannot change during a run

    rank_loader: Callable[[Any, Task, list[Any]], Loader] = Loader
    write: Callable[[Path, str, Sequence[int], Make, Layout], None]
    """Write samples of a kind (the name of a workload) to a directory, one by one; resume if the loader can."""
    merge: Callable[[str], object] | None = None
    """Make one dataset of those in a directory, if a writer cannot set the samples of a shard."""
    write_batches: Callable[[Path, str, dict[str, Any]], None]
    """Write columns, some samples at a time. A column is an array, a list or an Arrow array."""
    random: Callable[[Reading], tuple[Callable[[int], Any], Callable[[list[int]], Any]]]
    """Return random access to one sample, and to many; without it, the loader has none."""
    loader: Callable[[Reading], Iterable[Any]]
    """Return a shuffled loader; each iteration is an epoch."""

    def unsupported(self, cell: Cell) -> str | None:
        """The sentence of the loader's own documentation that excludes this cell, or None."""
        return self.no_phases if cell.phases else None

    def excluded(self, cell: Cell) -> str | None:
        """Why this cell is not run with the loader, or None."""
        if (reason := self.unsupported(cell)) is not None:
            return reason
        return "Nothing in its loader packs samples into rows." if cell.packed and not self.packs else None

    def warm(self) -> None:
        os.environ.update(self.settings)
        for module in self.imports:
            importlib.import_module(module)

    def clean(self) -> None:
        """Remove shared memory that earlier processes left."""

    def open(self, task: Task, states: list[Any]) -> Loader:
        """Open the loader of rank `task.rank` with what each rank saved: an empty list at the run's start."""
        reading = Reading(task.sources()[0], "text", task.shape.batch, task.shape.workers, seed=task.seed, leg=task)
        if task.remote:
            reading = replace(reading, cache=f"{task.directory}/cache")
        return self.rank_loader(self.loader(reading), task, states)

    def shards(self, directory: Path) -> list[Path]:
        """The files of a dataset that have its samples, in order."""
        return [path for path in sorted(directory.rglob("*")) if path.is_file() and path.suffix != ".json"]

    def prepare(self, directory: Path, data: Data) -> None:
        """Write `data` of the matrix, in exactly its shards."""
        if self.merge is None:
            self.write(directory, "text", data.ids, sample_of, Layout(shard=data.shards[0]))
            return
        for number, ids in enumerate(shards_of(data)):
            self.write(directory / f"part-{number:05}", "text", ids, sample_of, Layout(shard=10 * len(ids)))
        self.merge(str(directory))


def peer(name: str) -> Peer:
    """A loader by its name in NAMES, or by `module:attribute`."""
    found = pkgutil.resolve_name(name if ":" in name else f"{__name__}.{name}:PEER")
    assert isinstance(found, Peer)
    return found


def ready(name: str) -> Peer:
    """Return a loader that this process, which has only one thread and few imports yet, can use.

    Where the machine allows it, shared memory that the loader leaks disappears with this process.
    """
    found = peer(name)
    if found.shares_memory:
        with suppress(OSError):
            have_own_shared_memory()
    found.warm()
    found.clean()
    return found


def drive(loader: str, function: str, **arguments: Any) -> Any:
    """Call `module:name` with a loader. The loader is made ready first, whatever the module imports."""
    found = ready(loader)
    return pkgutil.resolve_name(function)(found, **arguments)
