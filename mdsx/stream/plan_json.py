"""Descriptions of plans in JSON or TOML, for `Plan.from_json` and `mdsx plan`."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
    place = "the description of a plan" if isinstance(source, Mapping) else os.fspath(source)
    found = source if isinstance(source, Mapping) else _read(Path(source))
    given = _fields(found, _PLAN, place)
    phases = given.get("phases")
    if not isinstance(phases, Mapping) or not phases:
        expected = '{"phases": {"0": {"proportions": {...}, "batching": {...}}, "12T": {...}}}'
        raise UsageError("the plan lacks phases", file=place, found=shown(phases), expected=expected)
    return {
        **given,
        "phases": {at: _phase(own, of_phase, f"the phase from {at} on", place) for at, own in phases.items()},
    }


def _read(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
        return tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError("the file cannot be read", file=str(path), found=str(error)) from None
    except ValueError as error:
        kind = "TOML" if path.suffix == ".toml" else "JSON"
        raise UsageError(f"the file is not {kind}", file=str(path), found=str(error)) from None


def _phase(found: Any, names: tuple[str, ...], place: str, file: str) -> dict[str, Any]:
    given = _fields(found, names, file, place)
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


def _fields(found: Any, names: tuple[str, ...], file: str, place: str | None = None) -> dict[str, Any]:
    """Return a JSON object that has no fields but `names`. Raise UsageError."""
    if not isinstance(found, Mapping):
        raise UsageError("not an object", file=file, place=place, found=shown(found), expected=", ".join(names))
    if unknown := [name for name in found if name not in names]:
        raise UsageError("unknown field", file=file, place=place, found=shown(unknown[0]), expected=", ".join(names))
    return dict(found)
