"""JSON, read strictly: UTF-8, no NaN, Infinity or lone surrogate; whatever is wrong is a CorruptError.

Of a key that is repeated in an object the last value counts. A number beyond binary64 is infinite, if it has a fraction
or an exponent.
"""

from __future__ import annotations

import json
import re
from typing import NoReturn

from mdsx.errors import CorruptError

MAX_DEPTH = 500
"""Levels of arrays and objects that are written: so many can be read, also where the caller's stack is deep."""


def parse_json(data: bytes, *, unique_keys: bool = False) -> object:
    """The value that `data` holds. With `unique_keys`, an object in which a key stands twice is refused too."""
    try:
        value = (_UNIQUE if unique_keys else _PLAIN).decode(data.decode("utf-8"))
        if b"\\u" in data and _SURROGATE.search(data):  # half of a pair, maybe
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except RecursionError:
        raise CorruptError("the JSON is nested too deeply") from None
    except ValueError as error:  # JSONDecodeError, UnicodeDecodeError, an integer of too many digits
        raise CorruptError(f"this is not JSON: {error}") from None


_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        repeated = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"key {repeated[:80]!r} stands twice")
    return found


_PLAIN = json.JSONDecoder(parse_constant=_refuse)
_UNIQUE = json.JSONDecoder(parse_constant=_refuse, object_pairs_hook=_unique)
