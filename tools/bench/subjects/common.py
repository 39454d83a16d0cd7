"""How the contestants of local subjects are made: each loader's function and its dataset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tools.bench.subject import Call, Contestant
from tools.bench.workloads import samples_of

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


@dataclass(frozen=True)
class Workload:
    """One of the workloads, at its size."""

    name: str
    samples: int

    @property
    def arguments(self) -> Mapping[str, Any]:
        """What every function is told of it."""
        return {"workload": self.name, "samples": self.samples}


def workloads(scale: float, names: Sequence[str] = ("tokens", "images", "text", "mixed")) -> Iterator[Workload]:
    """Each of `names`."""
    for name in names:
        yield Workload(name, samples_of(name, scale))


def call(loader: str, function: str, arguments: Mapping[str, Any]) -> Call:
    """A function of a loader's module, in its environment."""
    environment = None if loader in ("mdsx", "limits") else loader
    return Call(f"tools.bench.contestants.{loader}:{function}", arguments, environment)


def reads(
    loader: str, function: str, how: str, workload: Workload, prepare: Mapping[str, Any] | None = None, **arguments: Any
) -> Contestant:
    """A loader that reads a workload, which it wrote before; `how` tells it from its other ways."""
    return Contestant(
        name=named(loader, how),
        call=call(loader, function, {**workload.arguments, **(prepare or {}), **arguments}),
        prepare=call(loader, "prepare", {**workload.arguments, **(prepare or {})}),
        kind="mdsx" if loader == "mdsx" else "peer",
    )


def writes(loader: str, function: str, how: str, workload: Workload, **arguments: Any) -> Contestant:
    """A loader that writes a workload."""
    return Contestant(
        name=named(loader, how),
        call=call(loader, function, {**workload.arguments, **arguments}),
        kind="mdsx" if loader == "mdsx" else "peer",
    )


def limit(name: str, function: str, **arguments: Any) -> Contestant:
    """What the machine allows."""
    return Contestant(name=name, call=call("limits", function, arguments), kind="limit")


def named(loader: str, how: str) -> str:
    """A contestant's name."""
    return f"{TITLES[loader]}, {how}" if how else TITLES[loader]


def names(contestants: Sequence[Contestant], *loaders: str) -> tuple[str, ...]:
    """Those of some loaders among the contestants."""
    return tuple(
        each.name for each in contestants for loader in loaders if each.name.partition(",")[0] == TITLES[loader]
    )
