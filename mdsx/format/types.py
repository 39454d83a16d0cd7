"""Column types: what the text `uint16[*,3]?` means.

    type = base ["[" dim *("," dim) "]"] ["?"]        dim = "*" / "0" / [1-9][0-9]*
    base = [A-Za-z][A-Za-z0-9_.-]*

A type is *fixed-size* if every value has the same number of bytes: scalars and arrays without a star, without `?`.
The rest are *variable-size*. `str[*]` is a list of str; so with every base that is no scalar. A base that this version
does not know is variable-size and opaque, with or without dimensions, so that later types need no new major version.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from mdsx.errors import CorruptError

MAX_DIMENSIONS = 8
MAX_SPAN = 2**31
"""The item size times all dimensions but those that are 0 is below this: in a type, whose stars do not count, and in a
value."""

SCALARS: dict[str, np.dtype[Any]] = {
    "bool": np.dtype("u1"),  # a byte, 0 or 1
    **{f"int{bits}": np.dtype(f"<i{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": np.dtype(f"<u{bits // 8}") for bits in (8, 16, 32, 64)},
    "float16": np.dtype("<f2"),
    "bfloat16": np.dtype("<u2"),  # NumPy has none: its 16 bits
    "float32": np.dtype("<f4"),
    "float64": np.dtype("<f8"),
}
"""Base -> the little-endian dtype in which its items are stored."""

OBJECTS = ("bytes", "str", "json", "msgpack", "jpeg", "png")
"""Bases that are always variable-size. Their only dimensions are `[*]`, which makes lists of them."""

_TYPE = re.compile(r"([A-Za-z][A-Za-z0-9_.-]*)(?:\[([^\[\]]*)\])?(\?)?")
_DIMENSION = re.compile(r"\*|0|[1-9][0-9]*")


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A parsed column type; `str()` gives its one text. In `shape`, None is a starred dimension."""

    base: str
    shape: tuple[int | None, ...] | None = None
    nullable: bool = False

    def __str__(self) -> str:
        dims = "" if self.shape is None else "[" + ",".join("*" if d is None else str(d) for d in self.shape) + "]"
        return f"{self.base}{dims}{'?' if self.nullable else ''}"

    @property
    def known(self) -> bool:
        """False where the base is of a later version: such values can be located, not decoded."""
        return self.base in SCALARS or self.base in OBJECTS

    @property
    def scalar(self) -> bool:
        """True for numbers and bools and arrays of them."""
        return self.base in SCALARS

    @property
    def is_list(self) -> bool:
        """True for lists, such as `str[*]`."""
        return self.shape is not None and self.base in OBJECTS

    @property
    def stars(self) -> int:
        """How many dimensions vary."""
        return 0 if self.shape is None else self.shape.count(None)

    @property
    def fixed_size(self) -> bool:
        return self.scalar and not self.nullable and not self.stars

    @property
    def item_dtype(self) -> np.dtype[Any]:
        """The storage dtype of one item. Only for scalars and arrays."""
        return SCALARS[self.base]

    @property
    def field_dtype(self) -> np.dtype[Any]:
        """The storage dtype of a value of a fixed-size column: a subarray's for an array."""
        return self.item_dtype if self.shape is None else np.dtype((self.item_dtype, self.shape))

    @property
    def nbytes(self) -> int:
        """Bytes of a value that is not null. Only for scalars and arrays without a star."""
        return self.item_dtype.itemsize * math.prod(d for d in self.shape or () if d is not None)


def parse_type(text: str, *, file: str | None = None, place: str | None = None) -> ColumnType:
    """The type that `text` means. Raise CorruptError, with `file` and `place`, if `text` breaks the grammar."""

    def corrupt(message: str) -> CorruptError:
        return CorruptError(f"{text[:80]!r} is not a column type: {message}", file=file, place=place)

    match = _TYPE.fullmatch(text)
    if match is None:
        raise corrupt("expected a base, then maybe dimensions in brackets, then maybe a question mark")
    base, dims, mark = match.groups()
    if dims is None:
        return ColumnType(base, None, mark is not None)
    parts = dims.split(",")
    if len(parts) > MAX_DIMENSIONS:
        raise corrupt(f"it has {len(parts)} dimensions, more than {MAX_DIMENSIONS}")
    if not all(_DIMENSION.fullmatch(part) for part in parts):
        raise corrupt('a dimension is "*" or a number without leading zeros')
    # A number of more than 11 digits is too large whatever follows, and Python refuses to read one of thousands.
    found = ColumnType(base, tuple(None if part == "*" else int(part[:11]) for part in parts), mark is not None)
    if found.is_list and found.shape != (None,):
        raise corrupt(f"a list has one dimension, a star: {base}[*]")
    if span(found.item_dtype.itemsize if found.scalar else 1, found.shape or ()) >= MAX_SPAN:
        raise corrupt("its dimensions span 2^31 bytes or more")
    return found


def span(item_size: int, shape: tuple[int | None, ...]) -> int:
    """The item size times the dimensions that are neither starred nor 0, so that a 0 makes no room for the others."""
    return item_size * math.prod(dim for dim in shape if dim)
