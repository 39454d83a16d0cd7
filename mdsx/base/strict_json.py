"""Parse JSON strictly: UTF-8, without NaN, Infinity and lone surrogates. Any error is a CorruptError.

If an object repeats a key, the last value counts, except with `unique_keys`. A number with a fraction or an exponent
becomes infinite if it is too large for binary64.
"""

from __future__ import annotations

import json
import re
import sys
from typing import NoReturn

from mdsx.errors import CorruptError

MAX_DEPTH = 500
"""The most levels of arrays and objects to write, so that they can be read even from a deep stack."""


def parse_json(data: bytes, *, unique_keys: bool = False, constants: bool = False) -> object:
    """Return the value of a JSON text. Raise CorruptError, with `unique_keys` also for a duplicate key. With
    `constants`, accept NaN and infinities in the form that Python writes."""
    try:
        value = (_UNIQUE if unique_keys else _CONSTANTS if constants else _PLAIN).decode(data.decode("utf-8"))
        if b"\\u" in data and _SURROGATE.search(data):  # maybe half of a pair
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except RecursionError:
        raise CorruptError("the JSON is nested too deeply") from None
    except ValueError as error:  # JSONDecodeError, UnicodeDecodeError, an integer of too many digits
        if str(error).startswith("Exceeds the limit"):
            most = f"at most {sys.get_int_max_str_digits()}"
            raise CorruptError("an integer in the JSON has too many digits", expected=most) from None
        raise CorruptError(f"this is not JSON: {error}") from None


_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        repeated = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"duplicate key {repeated[:80]!r}")
    return found


_PLAIN, _CONSTANTS = json.JSONDecoder(parse_constant=_refuse), json.JSONDecoder()
_UNIQUE = json.JSONDecoder(parse_constant=_refuse, object_pairs_hook=_unique)
