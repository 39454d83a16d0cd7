"""The encodings of MDS columns: the column type of each, and its width in a sample.

| encoding | type |
|---|---|
| `bytes`, `str`, `jpeg`, `png`, `uint8` ... `float64` | the same |
| `json` | `json`, but NaN and infinities are read, as Python writes them |
| `int` | `int64` |
| `ndarray:dtype:shape` | `dtype[shape]` |
| `jpeg_array`, `jpegarray` | `jpeg[*]`, whose stored bytes are the same |
| `str_int`, `str_float`, `str_decimal`, `ndarray`, `ndarray:dtype`, `pil`, `list[...]` | `mds.*`, see `values` |
| `pkl`, and encodings that users added | `mds.*`; decoding a value is an error |

MDS writers store a value given as `bytes` unchanged, whatever the declared encoding. It is decoded as the column
declares.
"""

from __future__ import annotations

import math
import re
from functools import partial
from typing import NamedTuple

from mdsx.foreign.mds import values
from mdsx.format import JSON, ColumnType, parse_type

_NUMBERS = {"int": "int64", **{name: name for name in values.DTYPES}}
_OURS = {
    **{name: name for name in ("bytes", "str", "jpeg", "png")},
    **dict.fromkeys(("jpeg_array", "jpegarray"), "jpeg[*]"),
}
_FOREIGN: dict[str, values.ValueDecoder] = {
    "str_int": values.decode_int,
    "str_float": values.decode_float,
    "str_decimal": values.decode_decimal,
    "ndarray": values.ArrayDecoder(),
    "pil": values.decode_pil,
    "list[pil]": partial(values.decode_list, item=values.decode_pil),
    "list[jpeg]": partial(values.decode_list, item=bytes),
    "list[png]": partial(values.decode_list, item=bytes),
}
_ARRAY = re.compile(r"ndarray(?::(?:(\w+)(?::(\d{1,10}(?:, *\d{1,10}){0,63}))?)?)?")  # NumPy has 64 dimensions
_NOT_IN_TYPES = re.compile("[^A-Za-z0-9_.-]+")
_MAX_DIMENSIONS = 8  # of our own types


class Encoding(NamedTuple):
    """The meaning of an encoding. `width`: the bytes of each value; None if each sample has its own size."""

    type: ColumnType
    width: int | None


def parse_encoding(text: str, column: str, width: int | None) -> Encoding | None:
    """Return the encoding of `column`; None if the text is not an encoding. Encodings that are not MDS's own have the
    `width` in the index. Raise CorruptError for dimensions that are too large."""
    if text in _NUMBERS:
        kind = parse_type(_NUMBERS[text])
        return Encoding(kind, kind.nbytes)
    if text in _OURS:
        return Encoding(parse_type(_OURS[text]), None)
    if text == "json":  # can be mixed with our JSON
        return Encoding(ColumnType(JSON.name, foreign=values.decode_json), None)
    if text == "ndarray" or text.startswith("ndarray:"):
        return _array(text)
    decoder = _FOREIGN.get(text) or partial(values.refuse, encoding=text, column=column)
    base = _NOT_IN_TYPES.sub(".", text).strip(".") or "unknown"
    return Encoding(ColumnType(f"mds.{base}", foreign=decoder), None if text in _FOREIGN else width)


def _array(text: str) -> Encoding | None:
    match = _ARRAY.fullmatch(text)
    dtype, dims = match.groups() if match else ("", None)
    if dtype is None:
        return Encoding(ColumnType("mds.ndarray", foreign=values.ArrayDecoder()), None)
    if dtype not in values.DTYPES:
        return None
    if dims is None:
        decoder = values.ArrayDecoder(dtype)
        return Encoding(ColumnType(f"mds.ndarray.{dtype}", foreign=decoder), None)
    shape = [int(dim) for dim in dims.split(",")]
    if 0 in shape:
        return None
    if len(shape) <= _MAX_DIMENSIONS:
        kind = parse_type(f"{dtype}[{','.join(map(str, shape))}]")
        return Encoding(kind, kind.nbytes)
    items = partial(values.decode_items, dtype=dtype, shape=tuple(shape))
    kind = ColumnType(f"mds.ndarray.{dtype}.{'x'.join(map(str, shape))}", foreign=items)
    return Encoding(kind, math.prod(shape) * values.DTYPES[dtype].itemsize)
