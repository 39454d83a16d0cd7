"""`json`: `json.dumps` without spaces or escapes, keys in the order given, floats as Python's repr.

Keys must be str, because any other key would be read back as a str. NaN, infinity, surrogates, and more than 500 levels
of lists and dicts are refused. Tuples become lists.
"""

from __future__ import annotations

import json
from typing import Any

from mdsx.base.strict_json import MAX_DEPTH, parse_json
from mdsx.format.families.record import Object
from mdsx.format.inputs import Refused, describe

_NO_NAN = "JSON has no NaN and no infinity: declare the column as msgpack, or write null"

_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _encode(value: object) -> bytes:
    try:
        data = _JSON.encode(value).encode()
        if isinstance(value, dict | list | tuple):
            check_keys(value)
    except (TypeError, ValueError, RecursionError) as error:
        hint = _NO_NAN if "Out of range float" in str(error) else None  # another error may mention a type like float32
        raise Refused("a JSON value", f"{describe(value)}: {error}", hint=hint) from None
    return data


def check_keys(value: dict[Any, object] | list[object] | tuple[object, ...], depth: int = 1) -> None:
    """Raise Refused for a key that JSON would turn into a str, and for too many levels."""
    if depth > MAX_DEPTH:
        raise Refused(f"at most {MAX_DEPTH} levels", "more")
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise Refused("keys that are str", f"the key {describe(key)}")
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, dict | list | tuple):
            check_keys(item, depth + 1)


def _decode(data: memoryview) -> object:
    return parse_json(bytes(data))


JSON = Object(
    name="json", kind="document", arrow="string", form="JSON", extensions=("json",),
    aliases="dict list tuple object any map struct mapping pkl pickle jsonl",
    encoder=lambda: _encode, decode=_decode,
)  # fmt: skip
BASES = (JSON,)
