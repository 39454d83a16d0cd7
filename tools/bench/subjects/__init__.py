"""The subjects and their measurements: a module for each kind, with `subjects(scale)`, where 1.0 is the full size.

A measurement is a function that a fresh process calls; it returns its figures. One that drives a loader gets it as its
first argument, ready to be used. Temporary files go to a directory that is removed afterwards.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tools.bench.goals import GOALS
from tools.bench.measure import Figures
from tools.bench.subject import Contestant, Subject
from tools.peers import NAMES, Layout, Peer, peer
from tools.processes import Call
from tools.workloads import FEW, SIZES, sample

PEERS = tuple(name for name in NAMES if name != "mdsx" and peer(name).in_bench)
TOKENS_LOADER = {"tokens_loader": True}  # LitData's
Measurement = Callable[..., Figures]


@dataclass(frozen=True)
class Workload:
    """One of the workloads, at its size. Each measurement gets its `arguments`."""

    name: str
    samples: int

    @property
    def arguments(self) -> dict[str, Any]:
        return {"workload": self.name, "samples": self.samples}


def workloads(scale: float) -> list[Workload]:
    """All of them, with at least a few batches, however small the scale."""
    return [Workload(name, max(int(size * scale), FEW)) for name, size in SIZES.items()]


def call(measurement: Measurement, loader: str | None = None, **arguments: Any) -> Call:
    """A call of a measurement: of a loader in its environment, or of mdsx alone or the machine."""
    function = f"{measurement.__module__}:{measurement.__name__}"
    if loader is None:
        return Call(function, arguments)
    return Call("tools.peers:drive", {"loader": loader, "function": function, **arguments}, peer(loader).environment)


def contestant(
    loader: str, measurement: Measurement, how: str = "", prepare: Call | None = None, **arguments: Any
) -> Contestant:
    """A loader; `how` distinguishes it from its other ways."""
    title = peer(loader).title
    name = f"{title}, {how}" if how else title
    kind = "mdsx" if loader == "mdsx" else "peer"
    return Contestant(name, call(measurement, loader, **arguments), prepare, kind)


def alone(kind: str, name: str, measurement: Measurement, prepare: Call | None = None, **arguments: Any) -> Contestant:
    """A measurement of mdsx alone (kind mdsx), or a limit of the machine (kind limit)."""
    return Contestant(name, call(measurement, **arguments), prepare, kind)


def reads(
    loader: str,
    measurement: Measurement,
    how: str,
    workload: Workload,
    written: Mapping[str, Any] | None = None,
    **arguments: Any,
) -> Contestant:
    """A loader that reads a workload, which it wrote before. `written`: a format that writing and reading need."""
    data = {**workload.arguments, **(written or {})}
    return contestant(loader, measurement, how, call(prepare, loader, **data), **data, **arguments)


def best_workers(loader: str, workload: Workload) -> int:
    """With how many workers a peer is fastest on two cores. Images are too large to pass them on."""
    return 0 if workload.name == "images" else peer(loader).best_workers


def prepare(peer: Peer, data: str, workload: str, samples: int, **layout: Any) -> Figures:
    peer.write(Path(data), workload, range(samples), partial(sample, workload), Layout(**layout))
    return {}


def all_subjects(scale: float) -> tuple[Subject, ...]:
    """All of them, with their goals."""
    modules = [importlib.import_module(f"{__name__}.{each.name}") for each in pkgutil.iter_modules(__path__)]
    found = (subject for module in modules for subject in module.subjects(scale))
    return tuple(replace(each, goals=GOALS.get(each.name, ())) for each in found)
