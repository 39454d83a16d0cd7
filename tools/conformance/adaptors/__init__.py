"""The loaders: one module each, which drives its loader in the documented way, at its best.

A module imports its loader only inside functions: the matrix asks any adaptor what it supports, without its package.
"""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

from tools.conformance.matrix import Cell, Data
from tools.conformance.task import Task


class Loader(Protocol):
    """One rank's loader within a leg."""

    @property
    def epoch(self) -> int:
        """The epoch in which the next batch lies, after a resume too."""

    def batches(self, epoch: int) -> Iterator[list[int]]:
        """The ids of each batch of (what is left of) the epoch; WRONG for a sample that is not what was written."""

    def state(self) -> Any:
        """A checkpoint's part for this rank, taken after a batch: anything that pickle can store."""


class Adaptor:
    """What a loader's module has as `ADAPTOR`."""

    name: str
    title: str
    packages: tuple[str, ...]  # distributions whose versions are shown
    total_order = False  # whether the order is promised to be one line, cut by whatever batch size
    crosses_epochs = False  # whether a global batch may lie in two epochs
    drops_tail = False  # whether its documentation says that the run's last batch is dropped unless it is full
    shares_memory = False  # whether its processes on a node find each other by names in shared memory
    requirements: str | None = None  # the file of its environment; None: the project's own
    findings: ClassVar[Mapping[str, str]] = {}  # cell -> why it fails, as looked at by hand

    def unsupported(self, cell: Cell) -> str | None:
        """The sentence of the loader's own documentation by which it does not do this, or None."""
        return None

    def warm(self) -> None:
        """Import what every rank needs: done once, before the ranks are forked."""

    def prepare(self, directory: Path, data: Data) -> None:
        """Write `data` in the loader's format."""
        raise NotImplementedError

    def write(self, directory: Path, ids: Sequence[int], shard: int) -> None:
        """Write samples as a job does that writes all of them, in shards of about so many; resume where it can."""
        raise NotImplementedError

    def open(self, task: Task, states: list[Any]) -> Loader:
        """The loader of rank `task.rank`; `states` are those that each rank saved, empty at the run's start."""
        raise NotImplementedError


NAMES = ("mdsx", "mosaicml", "litdata", "webdataset", "huggingface", "grain", "torchdata")


def adaptor(name: str) -> Adaptor:
    """One by its name in NAMES, or by `module:attribute`."""
    module, _, attribute = name.partition(":") if ":" in name else (f"{__name__}.{name}", "", "ADAPTOR")
    found = getattr(importlib.import_module(module), attribute)
    assert isinstance(found, Adaptor)
    return found


def use_temporary_files_in(directory: Path) -> None:
    """What a killed process leaves behind goes with the leg's directory."""
    directory.mkdir(exist_ok=True)
    os.environ["TMPDIR"] = str(directory)
    tempfile.tempdir = None


def join_gloo() -> None:
    """Join the process group of torch.distributed, for loaders that learn their rank from nothing else."""
    from torch import distributed

    distributed.init_process_group("gloo")
