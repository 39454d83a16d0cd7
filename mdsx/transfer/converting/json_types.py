"""Column types for JSON values: which values they accept, and which type fits the first values of a key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from mdsx.format import BYTES, FLOAT64, INT64, JSON, PYTHON, STR, UINT64, ColumnType, Refused, parse_type, value_encoder

_PYTHON: dict[str, Any] = {
    "bool": bool, "integer": int, "float": int | float, "bytes": bytes, "text": str, "document": Any,
}  # fmt: skip
"""Kind of values -> its form in JSON; bytes are base64 text."""

_BASES = {frozenset[type]({kind}): PYTHON[kind].name for kind in (bool, int, float, str)}
_BASES[frozenset({int, float})] = FLOAT64.name


def python_type(kind: ColumnType) -> Any:
    """Return the Python type with which msgspec accepts only JSON of the column's kind."""
    found = _PYTHON[kind.stored.kind or ""]
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
    return f"{base}{'[*]' if lists else ''}{mark}" if base else f"{JSON.name}{mark}"


def wider_type(kind: ColumnType, value: object) -> str | None:
    """Return a type that accepts `value`, which `kind` does not; None if there is none."""
    if value is None:
        return f"{kind}?"
    stars = "" if kind.shape is None else f"[{','.join('*' * len(kind.shape))}]"
    for text in [*(f"{base}{stars}" for base in (kind.base, *_wider_bases(kind, value))), JSON.name]:
        wider = parse_type(text)
        try:
            value_encoder(wider)(msgspec.convert(value, python_type(wider)))
        except (msgspec.ValidationError, UnicodeEncodeError, Refused):
            continue
        return f"{text}{'?' if kind.nullable else ''}"
    return None


def _wider_bases(kind: ColumnType, value: object) -> Sequence[str]:
    if kind.kind == "integer":
        return (INT64.name, UINT64.name) if INT64.name in inferred_type([value]) else (FLOAT64.name,)
    if kind.kind == "float":
        return (FLOAT64.name,)
    return (BYTES.name, STR.name) if kind.kind == "bytes" else ()


def _base(values: Iterable[object]) -> str | None:
    return _BASES.get(frozenset(map(type, values)))
