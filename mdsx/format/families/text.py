"""`str`: strict UTF-8, so no surrogates."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat

from mdsx.errors import CorruptError
from mdsx.format.families.record import Object
from mdsx.format.inputs import Refused, describe


def _encode(value: object) -> bytes:
    if not isinstance(value, str):
        raise Refused("str", describe(value))
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise Refused("text without surrogates", describe(value)) from None


def _decode(data: memoryview) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise CorruptError(f"this is not UTF-8: {error}") from None


def _decode_all(pieces: Iterable[memoryview]) -> list[object]:
    try:
        return list(map(str, pieces, repeat("utf-8")))
    except UnicodeDecodeError as error:
        raise CorruptError(f"this is not UTF-8: {error}") from None


STR = Object(
    name="str", kind="text", arrow="string", python=str, form="text", extensions=("txt", "text"),
    aliases="string large_string utf8 large_utf8 text txt unicode varchar str_decimal decimal",
    encoder=lambda: _encode, quick=str.encode, decode=_decode, decode_all=_decode_all,
)  # fmt: skip
BASES = (STR,)
