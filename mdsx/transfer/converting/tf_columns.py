"""Convert the features of tf.train.Example to columns: their types, from the first samples, and their values.

| feature | column |
|---|---|
| one float or integer in each sample | `float32`, `int64` |
| n in each | `float32[n]`, `int64[n]` |
| other numbers of them | `float32[*]`, `int64[*]` |
| one bytes value in each | an image by its magic bytes, `str` for text, else `bytes` |
| other numbers of them | a list of such values, as `bytes[*]` |

Text is UTF-8 without control characters. A feature that some of these samples lack gets a question mark.

A declared type may also give numbers another shape or type, parse bytes as JSON or MessagePack, or read them as the
little-endian items of an array, as `tf.io.decode_raw` does.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mdsx.base.sizes import format_count
from mdsx.errors import CorruptError
from mdsx.format import BYTES, PICTURES, STR, ColumnType, Object
from mdsx.transfer.converting.tf_example import Feature, Values

Reader = Callable[[Values], Any]

_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")


@dataclass(slots=True)
class Seen:
    """What the first samples show of a feature. `kinds`: kind -> where it first occurred."""

    kinds: dict[str, str] = field(default_factory=dict)
    samples: int = 0
    fewest: int = 2**63
    most: int = 0
    bases: tuple[Object, ...] = (*PICTURES, STR, BYTES)

    def add(self, feature: Feature, place: str) -> None:
        """Note the feature of a sample."""
        kind, values = feature
        self.kinds.setdefault(kind, place)
        self.samples += 1
        self.fewest, self.most = min(self.fewest, len(values)), max(self.most, len(values))
        if kind == "bytes":
            self.bases = tuple(base for base in self.bases if all(_could_be(base, value) for value in values))

    def column(self, samples: int) -> str:
        """Return the column type, given that there were `samples` samples."""
        (kind,) = self.kinds
        base = self.bases[0].name if kind == "bytes" and self.most else kind
        if self.fewest == self.most == 1:
            dims = ""
        else:
            dims = f"[{self.most}]" if self.fewest == self.most > 0 and kind != "bytes" else "[*]"
        return f"{base}{dims}{'?' if self.samples < samples else ''}"


def _could_be(base: Object, value: bytes) -> bool:
    if base.kind == "text":
        try:
            return not _CONTROLS.search(value.decode())
        except UnicodeDecodeError:
            return False
    return base.matches(value)


def readers(kind: ColumnType) -> dict[str, Reader]:
    """Return for each kind of feature the function that reads its values for a column of type `kind`.

    It raises ValueError or CorruptError. The writer checks that the returned value fits.
    """
    found: dict[str, Reader] = {}
    if kind.scalar:
        found = {number: _one if kind.shape is None else _shaped(kind, number) for number in ("float32", "int64")}
    if of_bytes := _reader_of_bytes(kind):
        found["bytes"] = of_bytes
    if kind.nullable and (kind.shape is None or not kind.stars):
        return {name: _or_null(read) for name, read in found.items()}
    return found


def _or_null(read: Reader) -> Reader:
    return lambda values: read(values) if len(values) else None


def _one(values: Values) -> Any:
    if len(values) != 1:
        raise ValueError(f"it has {len(values):,} values, not one")
    return values[0]


def _shaped(kind: ColumnType, dtype: str) -> Reader:
    shape = kind.shape or ()
    if len(shape) == 1:
        return lambda values: np.asarray(values, dtype)
    dims = tuple(-1 if dim is None else dim for dim in shape)

    def read(values: Values) -> Any:
        return _reshape(np.asarray(values, dtype), dims)

    return read


def _reshape(array: Any, dims: tuple[int, ...]) -> Any:
    known = math.prod(dim for dim in dims if dim >= 0)
    if dims.count(-1) > 1 and len(array):
        raise ValueError("the lengths of more than one dimension are not stored: one star at most")
    if array.size != known if -1 not in dims else (array.size % known if known else array.size):
        text = ",".join("*" if dim < 0 else str(dim) for dim in dims)
        raise ValueError(f"{array.size:,} values do not fill the shape [{text}]")
    return array.reshape(dims if array.size else tuple(max(dim, 0) for dim in dims))


def _reader_of_bytes(kind: ColumnType) -> Reader | None:
    if kind.scalar:
        return None if kind.shape is None or not kind.number.native else _raw_items(kind)
    decode = _decoder(kind.object)
    if kind.is_list:
        return lambda values: [decode(value) for value in values]
    return lambda values: decode(_one(values))


def _raw_items(kind: ColumnType) -> Reader:
    dims = tuple(-1 if dim is None else dim for dim in kind.shape or ())

    def read(values: Values) -> Any:
        data = _one(values)
        if len(data) % kind.item_dtype.itemsize:
            raise ValueError(f"{len(data):,} bytes are not a whole number of {kind.base} items")
        return _reshape(np.frombuffer(data, kind.item_dtype), dims)

    return read


def _decoder(base: Object) -> Callable[[bytes], Any]:
    if base.kind == "document":
        return lambda data: base.decode(memoryview(data))
    return bytes.decode if base.kind == "text" else base.given


def describe(feature: Feature) -> str:
    """Describe a feature, for messages."""
    kind, values = feature
    name = {"bytes": "bytes_list", "float32": "float_list", "int64": "int64_list"}[kind]
    return f"{name} of {format_count(len(values), 'value')}"


def unfit(error: ValueError | CorruptError) -> str:
    """Return why a value does not fit, from the exception of a reader."""
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8: {error.reason} at byte {error.start}"
    return error.message if isinstance(error, CorruptError) else str(error)
