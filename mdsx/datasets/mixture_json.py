"""Descriptions of mixtures in JSON, for `Mixture.from_json` and `mdsx change`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

from mdsx.base.descriptions import fields, read_description
from mdsx.datasets.dataset import Dataset
from mdsx.errors import UsageError, shown
from mdsx.storage import StorageOptions
from mdsx.storage.cache import Cache, CacheLike

T = TypeVar("T")

_COMPONENT = ("url", "proportion", "repeat", "samples", "columns", "snapshot", "selection", "start", "stop")
_MIXTURE = (
    "components",
    "columns",
    "dtypes",
    "fill",
    "component_column",
    "epoch_samples",
    "run",
    "schedule",
    "proportions_of",
    "exclude",
)


def described(
    source: str | os.PathLike[str] | Mapping[str, Any],
    component: Callable[..., T],
    cache: CacheLike,
    storage_options: StorageOptions | None,
) -> tuple[dict[str, T], dict[str, Any]]:
    """Return a mixture's components, made by `component`, and its other arguments. Raise UsageError."""
    folder, file = Path(), "the description of a mixture"
    if isinstance(source, Mapping):
        found: Any = source
    else:
        folder, file = Path(source).parent, os.fspath(source)
        found = read_description(Path(source))
    components = fields(found, _MIXTURE, file=file).get("components")
    if not isinstance(components, Mapping) or not components:
        expected = '{"components": {"web": {"url": ..., "proportion": 0.5}, ...}}'
        raise UsageError("the mixture lacks components", file=file, found=shown(components), expected=expected)
    options = {name: value for name, value in found.items() if name != "components"}
    if isinstance(schedule := options.get("schedule"), Mapping):
        options["schedule"] = {_position(at, file): _weights(own, file, "the schedule") for at, own in schedule.items()}
        if len(options["schedule"]) < len(schedule):
            message = "two entries of the schedule have the same position"
            raise UsageError(message, file=file, found=shown([*schedule]))
    if isinstance(exclude := options.get("exclude"), Mapping):
        options["exclude"] = {
            name: read_description(folder / numbers) if isinstance(numbers, str) else numbers
            for name, numbers in exclude.items()
        }
    made = {
        name: component(**_component(own, file, f"component {name!r}", cache, storage_options))
        for name, own in components.items()
    }
    return made, options


def _component(
    found: Any, file: str, place: str, cache: CacheLike, storage_options: StorageOptions | None
) -> dict[str, Any]:
    """Return the arguments of a component."""
    given = fields(found, _COMPONENT, file=file, place=place)
    if not isinstance(given.get("url"), str):
        message = "the component lacks a URL"
        raise UsageError(message, file=file, place=place, found=shown(found), expected='{"url": ...}')
    for name in ("start", "stop"):
        if given.get(name) is not None and type(given[name]) is not int:
            raise UsageError(f"{name} must be an integer", file=file, place=place, found=shown(given[name]))
    dataset: str | Dataset = given["url"]
    if any(name in given for name in ("snapshot", "selection", "start", "stop")):
        opened = Dataset(
            given["url"],
            cache=Cache.of(cache),
            storage_options=storage_options,
            snapshot=given.get("snapshot"),
            selection=given.get("selection"),
        )
        dataset = opened.select(range(len(opened))[given.get("start") : given.get("stop")])
    return {
        "dataset": dataset,
        "proportion": _weight(given.get("proportion"), file, place),
        "repeat": _weight(given.get("repeat"), file, place),
        "samples": given.get("samples"),
        "columns": given.get("columns"),
    }


def _position(text: object, file: str) -> int:
    if not isinstance(text, str) or not text.isdecimal() or len(text) > 19:
        raise UsageError("a position of the schedule is a number", file=file, found=shown(text), expected='"1000000"')
    return int(text)


def _weights(found: Any, file: str, place: str) -> Any:
    if isinstance(found, Mapping):
        return {name: _weight(value, file, place) for name, value in found.items()}
    return [_weight(value, file, place) for value in found] if isinstance(found, list) else found


def _weight(found: Any, file: str, place: str) -> Any:
    """Return a number, or an exact rational for text such as "1/3"."""
    if not isinstance(found, str):
        return found
    try:
        if len(found) > 1500 or not found.replace("/", "", 1).isdecimal():
            raise ValueError(found)
        return Fraction(found)
    except (ValueError, ZeroDivisionError):
        message = "a proportion must be a number or a fraction"
        raise UsageError(message, file=file, place=place, found=shown(found)) from None
