"""The loaders that are compared: a module each, which drives its loader as documented, at its best.

Bench, conformance and faults all use these modules. A module imports its loader only inside methods, since a loader is
installed only in its own environment: see tools/environment.py.
"""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from tools.conformance.matrix import Cell, Data
from tools.conformance.task import Task, checked, sample_of
from tools.processes import have_own_shared_memory

NAMES = ("mdsx", "mosaicml", "litdata", "webdataset", "huggingface", "grain", "torchdata")
Make = Callable[[int], dict[str, Any]]
"""Returns the sample with a number."""


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
    """How a benchmark reads the dataset at `source`. A remote one is copied to `cache`."""

    source: str
    kind: str  # the name of the workload
    batch_size: int = 1
    workers: int = 0
    shuffle: bool = True
    cache: str | None = None
    tokens_loader: bool = False
    decoded: bool = False  # JPEGs are decoded to pixels
    views: bool = False  # encoded bytes are not copied
    dicts: bool = False  # a batch is a list of dicts


class Loader:
    """The loader of one rank in a leg of the conformance matrix: around `_loader`, a loader of PyTorch's kind."""

    _loader: Any
    epoch: int = 0  # of the next batch, also after a resume

    def batches(self, epoch: int) -> Iterator[list[int]]:
        """The ids of each batch of the rest of the epoch; WRONG for a sample that differs from what was written."""
        for batch in self._loader:
            yield checked(batch["id"].tolist(), batch["text"])

    def state(self) -> Any:
        """This rank's part of a checkpoint, taken after a batch: anything that pickle can store."""
        return self._loader.state_dict()


class Peer:
    """A loader. Its module has an instance as `PEER`.

    A peer overrides the methods that it is measured by; the others raise NotImplementedError.
    """

    name: str
    title: str
    environment: str | None = None  # the name of its requirements file; None is the project's environment
    packages: tuple[str, ...]  # distributions whose versions are shown
    total_order = False  # the order is documented as one sequence, which any batch size cuts
    crosses_epochs = False  # a global batch may contain samples of two epochs
    drops_tail = False  # the run's last batch is dropped if it is not full, as documented
    shares_memory = False  # its processes on a node find each other by names in shared memory
    forks_to_write = False  # writing starts processes: nothing to warm up in this one
    findings: ClassVar[Mapping[str, str]] = {}  # cell -> why it fails, found by hand
    no_phases: str | None = None  # the sentence of its documentation by which weights cannot change during a run
    rank_loader: Callable[[Task, list[Any]], Loader]

    def unsupported(self, cell: Cell) -> str | None:
        """The sentence of the loader's own documentation that excludes this cell, or None."""
        return self.no_phases if cell.phases else None

    def warm(self) -> None:
        """Import what each rank needs. Called once, before ranks are forked."""

    def warm_without_torch(self) -> None:
        """Import what writing and random access need."""
        self.warm()

    def clean(self) -> None:
        """Remove shared memory that earlier processes left."""

    def write(self, directory: Path, kind: str, ids: Sequence[int], make: Make, layout: Layout) -> None:
        """Write the samples `ids` of the workload `kind` one by one; resume if the loader can."""
        raise NotImplementedError

    def prepare(self, directory: Path, data: Data) -> None:
        """Write `data` of the matrix, in exactly its shards."""
        self.write(directory, "text", data.ids, sample_of, Layout(shard=data.shards[0]))

    def store(self, directory: Path, kind: str, samples: int, layout: Layout) -> None:
        """Write a workload for a benchmark that reads it."""
        from tools import workloads

        self.write(directory, kind, range(samples), workloads.maker(kind), layout)

    def open(self, task: Task, states: list[Any]) -> Loader:
        """Open the loader of rank `task.rank`. `states` has what each rank saved; it is empty at the run's start."""
        return self.rank_loader(task, states)

    def samples(self, reading: Reading) -> Iterable[Any]:
        """All samples, without a loader; each iteration is an epoch."""
        raise NotImplementedError

    def item(self, reading: Reading) -> Callable[[int], Any]:
        """Random access to one sample."""
        raise NotImplementedError

    def items(self, reading: Reading) -> Callable[[list[int]], Any]:
        """Random access to many samples. By default one by one."""
        item = self.item(reading)
        return lambda numbers: [item(number) for number in numbers]

    def loader(self, reading: Reading) -> Iterable[Any]:
        """A shuffled loader; each iteration is an epoch."""
        raise NotImplementedError


def peer(name: str) -> Peer:
    """A loader by its name in NAMES, or by `module:attribute`."""
    module, _, attribute = name.partition(":") if ":" in name else (f"{__name__}.{name}", "", "PEER")
    found = getattr(importlib.import_module(module), attribute)
    assert isinstance(found, Peer)
    return found


def ready(name: str, torch: bool = True) -> Any:
    """Return a loader that this process, which has only one thread and few imports yet, can use.

    Where the machine allows it, shared memory that the loader leaks disappears with this process.
    """
    found = peer(name)
    alone = True
    if found.shares_memory:
        try:
            have_own_shared_memory()
        except OSError:
            alone = False
    found.warm() if torch else found.warm_without_torch()
    if not alone:
        found.clean()
    return found


def use_temporary_files_in(directory: Path) -> None:
    """Keep temporary files of killed processes inside `directory`."""
    directory.mkdir(exist_ok=True)
    os.environ["TMPDIR"] = str(directory)
    tempfile.tempdir = None
