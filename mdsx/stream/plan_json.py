"""Descriptions of plans in JSON or TOML, for `Plan.from_json` and `mdsx plan`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mdsx.base.descriptions import fields, read_description
from mdsx.errors import UsageError, shown
from mdsx.stream.batching import Batching
from mdsx.stream.buckets import Buckets
from mdsx.stream.max_tokens import MaxTokens
from mdsx.stream.pack import Pack
from mdsx.stream.pad import Pad

_PLAN = ("phases", "proportions_of", "max_epochs", "skip")
_KINDS: dict[str, type[Any]] = {
    "pack": Pack,
    "concat": Pack,
    "max_tokens": MaxTokens,
    "buckets": Buckets,
    "pad": Pad,
}


def described(source: str | os.PathLike[str] | Mapping[str, Any], of_phase: tuple[str, ...]) -> dict[str, Any]:
    """Return the arguments of a plan, including the arguments of each phase by its threshold, a text. `of_phase`: the
    names of a phase's arguments. Raise UsageError."""
    file = "the description of a plan" if isinstance(source, Mapping) else os.fspath(source)
    found = source if isinstance(source, Mapping) else read_description(Path(source))
    given = fields(found, _PLAN, file=file)
    phases = given.get("phases")
    if not isinstance(phases, Mapping) or not phases:
        expected = '{"phases": {"0": {"proportions": {...}, "batching": {...}}, "12T": {...}}}'
        raise UsageError("the plan lacks phases", file=file, found=shown(phases), expected=expected)
    return {
        **given,
        "phases": {at: _phase(own, of_phase, file, f"the phase from {at} on") for at, own in phases.items()},
    }


def _phase(found: Any, names: tuple[str, ...], file: str, place: str) -> dict[str, Any]:
    given = fields(found, names, file=file, place=place)
    batching = given.get("batching")
    if batching is None:
        return given
    kind = batching.get("kind") if isinstance(batching, Mapping) else None
    if kind not in _KINDS:
        expected = '{"kind": "pack", "concat", "max_tokens", "buckets" or "pad", ...}'
        message = "the batching lacks a kind"
        raise UsageError(message, file=file, place=place, found=shown(batching), expected=expected)
    options = {name: value for name, value in batching.items() if name != "kind"}
    if kind == "concat":
        options["kind"] = kind
    try:
        made: Batching = _KINDS[kind](**options)
    except TypeError as error:
        raise UsageError(f"the batching {kind!r} is incomplete", file=file, place=place, found=str(error)) from None
    return {**given, "batching": made}
