"""`msgpack`: str as str, bytes as bin, maps in the order given, floats as float64, integers of at most 64 bits.

`datetime` with a time zone and `msgpack.Timestamp` are timestamps, the only extension type. Types are exact: tuples and
subclasses are refused, because they would be read back as another type.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any, NoReturn

import msgpack

from mdsx.errors import CorruptError
from mdsx.format.families.record import Object
from mdsx.format.inputs import Refused, describe

_EXTENSION = re.compile(rb"[\xc7-\xc9\xd4-\xd8]")
"""Bytes with which an extension type can begin. Data without them has none."""

_NAN = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")
"""Bytes with which a NaN can begin. NaN is the only key that a Python dict may hold twice."""


def _encoder() -> Callable[[object], bytes]:
    packer = msgpack.Packer(strict_types=True, datetime=True)

    def encode(value: object) -> bytes:
        try:
            data: bytes = packer.pack(value)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise Refused("a msgpack value", f"{describe(value)}: {error}") from None
        if _EXTENSION.search(data) or _NAN.search(data):
            msgpack.unpackb(data, strict_map_key=False, object_pairs_hook=_no_repeated, ext_hook=_no_extension)
        return data

    return encode


def _no_repeated(pairs: list[tuple[Any, object]]) -> int:
    if len({_map_key(key) for key, _ in pairs}) < len(pairs):
        raise Refused("maps whose keys differ", "NaN as two keys")
    return 0


def _no_extension(code: int, _data: bytes) -> None:
    raise Refused("no extension types but timestamps", f"extension type {code}")


def _decode(data: memoryview) -> object:
    try:
        return msgpack.unpackb(data, ext_hook=_unknown_extension)
    except ValueError:
        pass  # maybe keys that are neither str nor bytes, which Python may treat as equal
    except _ERRORS as error:
        raise _corrupt(error) from None
    try:
        return msgpack.unpackb(data, strict_map_key=False, object_pairs_hook=_any_map, ext_hook=_unknown_extension)
    except _ERRORS as error:
        raise _corrupt(error) from None


_ERRORS = (ValueError, TypeError, OverflowError, RecursionError, MemoryError)
"""TypeError: an array or a map is a key of a map. MemoryError: each nested array claims as many items as the data has
bytes."""


def _corrupt(error: Exception) -> CorruptError:
    return CorruptError(f"this is not MessagePack: {error or type(error).__name__}")


def _any_map(pairs: list[tuple[Any, object]]) -> dict[Any, object]:
    """Return a map with any keys. If it repeats a key, the last value counts. Raise CorruptError if Python's dict
    cannot hold it."""
    last = {_map_key(key): (key, value) for key, value in pairs}
    found = dict(last.values())
    if len(found) < len(last):
        first = {key: key for key, _ in reversed(last.values())}
        lost = next(key for key, _ in last.values() if _map_key(first[key]) != _map_key(key))
        message = "a map has keys that are equal in Python, so it cannot be read"
        raise CorruptError(message, found=f"{first[lost]!r} and {lost!r}")
    return found


def _map_key(key: Any) -> tuple[type, object]:
    """Return the identity of a MessagePack map's key: its type and value; for a float, the bits of the binary64."""
    return type(key), struct.pack("<d", key) if isinstance(key, float) else key


def _unknown_extension(code: int, _data: bytes) -> NoReturn:
    raise ValueError(f"extension type {code} (only timestamps, -1, are allowed)")


MSGPACK = Object(name="msgpack", kind="document", arrow="binary", form="MessagePack", encoder=_encoder, decode=_decode)
BASES = (MSGPACK,)
