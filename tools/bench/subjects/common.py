"""How the contestants of local subjects are made: each loader's function and its dataset."""

from __future__ import annotations

from typing import Any

from tools.bench.subject import Call, Contestant

TITLES = {
    "mdsx": "mdsx",
    "litdata": "LitData",
    "mosaicml": "mosaicml-streaming",
    "webdataset": "WebDataset",
    "grain": "Grain",
    "huggingface": "HF Parquet",
}


def contestant(
    loader: str, function: str, how: str = "", prepare: dict[str, Any] | None = None, **arguments: Any
) -> Contestant:
    """A loader driven by a function of its module; `how` tells it from the loader's other ways."""
    environment = None if loader == "mdsx" else loader
    module = f"tools.bench.contestants.{loader}"
    return Contestant(
        name=f"{TITLES[loader]}, {how}" if how else TITLES[loader],
        call=Call(f"{module}:{function}", arguments, environment),
        prepare=None if prepare is None else Call(f"{module}:prepare", prepare, environment),
        kind="mdsx" if loader == "mdsx" else "peer",
    )


def limit(name: str, function: str, **arguments: Any) -> Contestant:
    """What the machine allows."""
    return Contestant(name=name, call=Call(f"tools.bench.contestants.limits:{function}", arguments), kind="limit")
