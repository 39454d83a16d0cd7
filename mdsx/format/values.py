"""Encode single values, as they are stored in the heap or, for fixed-size columns, in the row.

- Numbers: see `numbers`. Arrays are in C order and have exactly the shape of the type; a u32 for each starred dimension
  precedes the items.
- `bytes`, `jpeg`, `png`: any buffer of single bytes, stored unchanged. Images must begin with their magic bytes.
- `str`: strict UTF-8, so no surrogates.
- `json`: `json.dumps` without spaces or escapes, keys in the order given, floats as Python's repr. Keys must be str,
  because any other key would be read back as one. No NaN, infinity or surrogates, and at most 500 levels of lists and
  dicts. Tuples become lists.
- `msgpack`: str as str, bytes as bin, maps in the order given, floats as float64, integers of at most 64 bits;
  `datetime` with a time zone and `msgpack.Timestamp` as timestamps, no other extension types. Types are exact: tuples
  and subclasses are refused, because they would be read back as another type.
- Lists, such as `str[*]`: a list, tuple or other sequence of such values, without None.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

import msgpack
import numpy as np
from numpy.ma import MaskedArray

from mdsx.format.decode import map_key
from mdsx.format.inputs import Refused, all_masked, as_array, describe, each
from mdsx.format.numbers import scalar_encoder, to_items
from mdsx.format.rows import NULL as NULL_LENGTH
from mdsx.format.strict_json import MAX_DEPTH
from mdsx.format.types import MAX_SPAN, ColumnType, span


class _Null(bytes):
    """The type of NULL, so that NULL is a different object from b""."""


NULL = _Null()
"""The encoded null: no bytes. Use `is` to distinguish it from an empty value."""


def value_encoder(kind: ColumnType) -> Callable[[object], bytes]:
    """Return a function that encodes one value, or raises Refused. None becomes NULL if the type is nullable."""
    encode = _encoder(kind)
    if not kind.nullable:
        return encode
    return lambda value: (
        NULL if value is None or (isinstance(value, MaskedArray) and all_masked(value)) else encode(value)
    )


def _encoder(kind: ColumnType) -> Callable[[object], bytes]:
    if kind.scalar:
        return scalar_encoder(kind.base) if kind.shape is None else _array_encoder(kind)
    return _list_encoder(_object_encoder(kind.base)) if kind.is_list else _object_encoder(kind.base)


def _object_encoder(base: str) -> Callable[[object], bytes]:
    if base in IMAGES:
        return _image_encoder(base)
    return {"bytes": _encode_bytes, "str": _encode_str, "json": _encode_json, "msgpack": _msgpack_encoder()}[base]


def _list_encoder(encode_item: Callable[[object], bytes]) -> Callable[[object], bytes]:
    def encode(value: object) -> bytes:
        items = each(as_sequence(value, "a list or another sequence of values"), encode_item)
        lengths = list(map(len, items))
        size = 4 + 4 * len(items) + sum(lengths)
        if size >= NULL_LENGTH:
            raise Refused(f"fewer than {NULL_LENGTH} bytes", size)
        return b"".join((struct.pack(f"<{len(items) + 1}I", len(items), *lengths), *items))

    return encode


def as_sequence(value: Any, expected: str) -> Sequence[object]:
    """Return the items of a list, tuple, array or other sequence. Raise Refused for text, mappings and sets."""
    if isinstance(value, list | tuple):
        return value
    ordered = hasattr(value, "__len__") and hasattr(value, "__iter__")
    if not ordered or isinstance(value, str | bytes | bytearray | memoryview | Mapping | Set):
        raise Refused(expected, describe(value))
    try:
        return list(value)
    except (TypeError, ValueError, RuntimeError):  # such as zero-dimensional arrays
        raise Refused(expected, describe(value)) from None


def _array_encoder(kind: ColumnType) -> Callable[[object], bytes]:
    base, shape, dtype = kind.base, kind.shape, kind.item_dtype
    native = base not in ("bool", "bfloat16")
    dimensions = dimensions_encoder(kind)

    def encode(value: object) -> bytes:
        # Fast path for NumPy arrays of this dtype and shape.
        if native and type(value) is np.ndarray and value.dtype == dtype and value.shape == shape:
            return value.tobytes()
        items = to_items(base, value)
        if items.shape == (0,) and isinstance(value, list | tuple):
            items = items.reshape(_empty_shape(kind))
        return dimensions(items.shape) + items.tobytes()

    return encode


def dimensions_encoder(kind: ColumnType) -> Callable[[tuple[int, ...]], bytes]:
    """Return a function that encodes a shape's starred dimensions, or raises Refused if the shape does not fit."""
    shape = kind.shape or ()
    starred = [axis for axis, size in enumerate(shape) if size is None]
    pack, item_size = struct.Struct(f"<{len(starred)}I").pack, kind.item_dtype.itemsize

    def encode(found: tuple[int, ...]) -> bytes:
        if len(found) != len(shape) or any(a != b for a, b in zip(found, shape, strict=True) if b is not None):
            raise Refused(f"shape {str(kind).removesuffix('?').removeprefix(kind.base)}", f"shape {list(found)}")
        if span(item_size, found) >= MAX_SPAN:
            raise Refused("dimensions that span less than 2^31 bytes", f"shape {list(found)}")
        return pack(*[found[axis] for axis in starred])

    return encode


def _empty_shape(kind: ColumnType) -> tuple[int, ...]:
    """Return the shape of an empty list: [0, 3] for float32[*,3], whose inner dimensions are known."""
    first, *inner = kind.shape or (None,)
    if first in (None, 0) and None not in inner:
        return (0, *[size for size in inner if size is not None])
    return (0,)


IMAGES = {"jpeg": b"\xff\xd8\xff", "png": b"\x89PNG\r\n\x1a\n"}
"""Base -> the magic bytes with which each value begins."""


def _image_encoder(base: str) -> Callable[[object], bytes]:
    magic = IMAGES[base]

    def encode(value: object) -> bytes:
        data = _encode_bytes(value)
        if not data.startswith(magic):
            hint = "pass the bytes of the encoded image file"
            raise Refused(f"{base} data, which begins with {magic!r}", f"{data[:8]!r}", hint=hint)
        return data

    return encode


def _encode_bytes(value: object) -> bytes:
    if type(value) is bytes:
        return value
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    given = None if isinstance(value, memoryview) else as_array(value)
    try:
        view = memoryview(value if given is None else given[0])  # type: ignore[arg-type]  # checked by trying
    except (TypeError, ValueError):  # a dtype without a buffer format, or released memory
        raise Refused("bytes", describe(value)) from None
    if view.format not in ("B", "c") or view.ndim != 1:
        raise Refused("bytes, or a one-dimensional uint8 array", describe(value))
    return view.tobytes()


def _encode_str(value: object) -> bytes:
    if not isinstance(value, str):
        raise Refused("str", describe(value))
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise Refused("text without surrogates", describe(value)) from None


_NO_NAN = "JSON has no NaN and no infinity: declare the column as msgpack, or write null"

_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _encode_json(value: object) -> bytes:
    try:
        data = _JSON.encode(value).encode()
        if isinstance(value, dict | list | tuple):
            check_keys(value)
    except (TypeError, ValueError, RecursionError) as error:
        hint = _NO_NAN if "Out of range float" in str(error) else None  # another error may name a type, such as float32
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


_EXTENSION = re.compile(rb"[\xc7-\xc9\xd4-\xd8]")
"""Bytes with which an extension type can begin: data without them has none."""

_NAN = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")
"""Bytes with which a NaN can begin: of all keys, Python's dict may hold only NaN twice."""


def _msgpack_encoder() -> Callable[[object], bytes]:
    packer = msgpack.Packer(use_bin_type=True, strict_types=True, datetime=True)

    def encode(value: object) -> bytes:
        try:
            data: bytes = packer.pack(value)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise Refused("a msgpack value", f"{describe(value)}: {error}") from None
        if _EXTENSION.search(data) or _NAN.search(data):
            msgpack.unpackb(data, strict_map_key=False, object_pairs_hook=_refuse_repeated, ext_hook=_refuse_extension)
        return data

    return encode


def _refuse_repeated(pairs: list[tuple[Any, object]]) -> int:
    if len({map_key(key) for key, _ in pairs}) < len(pairs):
        raise Refused("maps whose keys differ", "NaN as two keys")
    return 0


def _refuse_extension(code: int, data: bytes) -> None:
    raise Refused("no extension types but timestamps", f"extension type {code}")
