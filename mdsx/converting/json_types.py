"""Column types for JSON values: which values they take, and which fit the first values of a key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from mdsx.format import ColumnType, Refused, parse_type, value_encoder

BASE64 = ("bytes", "jpeg", "png")
"""Bases whose values are base64 text in JSON."""

_PYTHON: dict[str, Any] = {"bool": bool, "str": str, "json": Any, "msgpack": Any}
_PYTHON |= {f"{sign}int{bits}": int for sign in ("", "u") for bits in (8, 16, 32, 64)}
_PYTHON |= dict.fromkeys(("float16", "bfloat16", "float32", "float64"), int | float)
_PYTHON |= dict.fromkeys(BASE64, bytes)

_BASES: dict[frozenset[type], str] = {
    frozenset({bool}): "bool",
    frozenset({int}): "int64",
    frozenset({float}): "float64",
    frozenset({int, float}): "float64",
    frozenset({str}): "str",
}


def python_type(kind: ColumnType) -> Any:
    """Return the Python type for which msgspec takes JSON only if it is of the column's kind."""
    found = _PYTHON[kind.base]
    for _ in kind.shape or ():
        found = list[found]  # type: ignore[valid-type]  # made at run time
    return found | None if kind.nullable else found


def inferred_type(values: Sequence[object]) -> str:
    """Return the column type for the values of a key, None for null: bool, int64, float64, str, lists of these, or
    json."""
    present = [value for value in values if value is not None]
    lists = all(type(value) is list for value in present)
    base = _base(item for value in present for item in value) if lists else _base(present)  # type: ignore[attr-defined]
    mark = "?" if len(present) < len(values) else ""
    return f"{base}{'[*]' if lists else ''}{mark}" if base else f"json{mark}"


def wider_type(kind: ColumnType, value: object) -> str | None:
    """Return a type that takes `value`, which `kind` does not; None if there is none."""
    if value is None:
        return f"{kind}?"
    stars = "" if kind.shape is None else f"[{','.join('*' * len(kind.shape))}]"
    for text in [*(f"{base}{stars}" for base in (kind.base, *_wider_bases(kind.base, value))), "json"]:
        wider = parse_type(text)
        try:
            value_encoder(wider)(msgspec.convert(value, python_type(wider)))
        except (msgspec.ValidationError, Refused):
            continue
        return f"{text}{'?' if kind.nullable else ''}"
    return None


def _wider_bases(base: str, value: object) -> Sequence[str]:
    if "int" in base:
        return ("int64", "uint64") if "int64" in inferred_type([value]) else ("float64",)
    if "float" in base:
        return ("float64",)
    return ("bytes", "str") if base in BASE64 else ()


def _base(values: Iterable[object]) -> str | None:
    return _BASES.get(frozenset(map(type, values)))
