"""The subjects, by module, each with `subjects(scale)`; and how their contestants are made."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tools.bench.subject import Contestant, Subject
from tools.processes import Call
from tools.workloads import SIZES, samples_of

MODULES = ("write", "read", "loader", "scale", "s3")
TITLES = {
    "mdsx": "mdsx",
    "litdata": "LitData",
    "mosaicml": "mosaicml",
    "webdataset": "WebDataset",
    "grain": "Grain",
    "huggingface": "Parquet",
}
PEERS = ("litdata", "mosaicml", "webdataset", "grain")
TOKENS_LOADER = {"tokens_loader": True}  # LitData's
_CONTESTANTS = "tools.bench.contestants"


@dataclass(frozen=True)
class Workload:
    """One of the workloads, at its size. Each measurement gets its `arguments`."""

    name: str
    samples: int

    @property
    def arguments(self) -> dict[str, Any]:
        return {"workload": self.name, "samples": self.samples}


def workloads(scale: float) -> list[Workload]:
    return [Workload(name, samples_of(name, scale)) for name in SIZES]


def contestant(
    loader: str, function: str, how: str, arguments: Mapping[str, Any], prepare: Call | None = None
) -> Contestant:
    """A loader in the measurement `module:function`; `how` distinguishes it from its other ways."""
    name = f"{TITLES[loader]}, {how}" if how else TITLES[loader]
    return Contestant(name, call(loader, function, **arguments), prepare, "mdsx" if loader == "mdsx" else "peer")


def call(loader: str, function: str, **arguments: Any) -> Call:
    """A measurement of a loader, in its environment."""
    environment = None if loader == "mdsx" else loader
    return Call(f"{_CONTESTANTS}.{function}", {"loader": loader, **arguments}, environment)


def mine(function: str, **arguments: Any) -> Call:
    """A measurement of mdsx alone, or of the machine."""
    return Call(f"{_CONTESTANTS}.{function}", arguments)


def reads(
    loader: str, function: str, how: str, workload: Workload, prepare: Mapping[str, Any] | None = None, **arguments: Any
) -> Contestant:
    """A loader that reads a workload, which it wrote before."""
    data = {**workload.arguments, **(prepare or {})}
    made = call(loader, "loaders:prepare", **data)
    return contestant(loader, f"loaders:{function}", how, {**data, **arguments}, made)


def writes(loader: str, function: str, how: str, workload: Workload, **arguments: Any) -> Contestant:
    """A loader that writes a workload."""
    return contestant(loader, f"loaders:{function}", how, {**workload.arguments, **arguments})


def limit(name: str, function: str, made: Call | None = None, module: str = "limits", **more: Any) -> Contestant:
    """A limit of the machine."""
    return Contestant(name, mine(f"{module}:{function}", **more), made, "limit")


def names(contestants: Sequence[Contestant], *loaders: str) -> tuple[str, ...]:
    """The names of some loaders among the contestants."""
    titles = [TITLES[loader] for loader in loaders]
    return tuple(each.name for each in contestants if each.name.partition(",")[0] in titles)


def all_subjects(scale: float) -> tuple[Subject, ...]:
    """Every subject, at a size of `scale` (1.0 is the full one)."""
    modules = [importlib.import_module(f"{__name__}.{name}") for name in MODULES]
    return tuple(subject for module in modules for subject in module.subjects(scale))
