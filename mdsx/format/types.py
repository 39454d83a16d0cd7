"""Column types, such as `uint16[*,3]?`.

    type = base ["[" dim *("," dim) "]"] ["?"]        dim = "*" / "0" / [1-9][0-9]*
    base = [A-Za-z][A-Za-z0-9_.-]*

A type is *fixed-size* if every value has the same number of bytes: scalars and arrays without a star, without `?`. All
others are *variable-size*, and so are all bases that a minor version added. `str[*]` is a list of str; the same holds
for every base that is not a scalar. A base that this version does not know is opaque, with or without dimensions, so
that later types need no new major version. A base with a dot belongs to a package (`packaged.py`) if the type has no
dimension, or only a star.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mdsx.errors import CorruptError
from mdsx.format.bases import BASES, NUMBERS, OBJECTS
from mdsx.format.families.binary import BYTES
from mdsx.format.families.record import Kind, Number, Object
from mdsx.format.packaged import Codec, codecs_of, is_available, package_base

MAX_DIMENSIONS = 8
MAX_SPAN = 2**31
"""The item size times all dimensions except 0 must be below this, in a type (stars do not count) and in a value."""

_TYPE = re.compile(r"([A-Za-z][A-Za-z0-9_.-]*)(?:\[([^\[\]]*)\])?(\?)?")
_DIMENSION = re.compile(r"\*|0|[1-9][0-9]*")


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A parsed column type; `str()` returns its text. In `shape`, None is a starred dimension.

    `foreign`: decodes the values of a type of another stored format, bytes -> value. It is pickled with the type, and
    raises only CorruptError and UnsupportedError. The functions of a registered type are pickled with it too.
    """

    base: str
    shape: tuple[int | None, ...] | None = None
    nullable: bool = False
    foreign: Callable[[memoryview], object] | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        dims = "" if self.shape is None else "[" + ",".join("*" if d is None else str(d) for d in self.shape) + "]"
        return f"{self.base}{dims}{'?' if self.nullable else ''}"

    def __reduce__(self) -> tuple[object, ...]:
        return _unpickled, (self.base, self.shape, self.nullable, self.foreign, codecs_of([self.base]))

    @property
    def known(self) -> bool:
        """Return False if the base is from a later version, or from a package that is not available: its values can be
        located, but not decoded."""
        return self.base in BASES or self.foreign is not None or (self.packaged and is_available(self.base))

    @property
    def packaged(self) -> bool:
        """Return True for types of packages, and lists of them."""
        return "." in self.base and self.foreign is None and self.shape in (None, (None,))

    @property
    def stored(self) -> ColumnType:
        """Return the type of the stored values of a package's type: bytes. Other types are returned unchanged."""
        return replace(self, base=BYTES.name) if self.packaged else self

    @property
    def kind(self) -> Kind | None:
        """Return the kind of its values or items; None if the base is not one of ours."""
        found = BASES.get(self.base)
        return None if found is None else found.kind

    @property
    def number(self) -> Number:
        """Return the record of the base. Only for scalars and arrays."""
        return NUMBERS[self.base]

    @property
    def object(self) -> Object:
        """Return the record of the base. Only for other known bases, and bases of packages."""
        return package_base(self.base) if self.packaged else OBJECTS[self.base]

    @property
    def scalar(self) -> bool:
        """Return True for numbers, bools and arrays of them."""
        return self.base in NUMBERS

    @property
    def is_list(self) -> bool:
        """Return True for lists, such as `str[*]`."""
        return self.shape is not None and (self.base in OBJECTS or self.packaged)

    @property
    def stars(self) -> int:
        """Return the number of starred dimensions."""
        return 0 if self.shape is None else self.shape.count(None)

    @property
    def one_size(self) -> bool:
        """Return True if all values have the same number of bytes, and none is null."""
        return self.scalar and not self.nullable and not self.stars

    @property
    def fixed_size(self) -> bool:
        """Return True if values are in rows: they have one size, and version 1.0 knows the base."""
        return self.one_size and not self.number.minor

    @property
    def minor(self) -> int:
        """Return the first minor version of the shard that knows the base; 0 for bases that this version does not
        know."""
        return BASES[self.base].minor if self.base in BASES else 0

    @property
    def item_dtype(self) -> np.dtype[Any]:
        """Return the storage dtype of one item. Only for scalars and arrays."""
        return self.number.item

    @property
    def field_dtype(self) -> np.dtype[Any]:
        """Return the storage dtype of a value of a fixed-size column; for an array, a subarray dtype."""
        return self.item_dtype if self.shape is None else np.dtype((self.item_dtype, self.shape))

    @property
    def nbytes(self) -> int:
        """Return the bytes of a value that is not null. Only for scalars and arrays without a star."""
        return self.item_dtype.itemsize * math.prod(d for d in self.shape or () if d is not None)


def _unpickled(
    base: str,
    shape: tuple[int | None, ...] | None,
    nullable: bool,
    foreign: Callable[[memoryview], object] | None,
    _codecs: tuple[Codec, ...],
) -> ColumnType:
    """Return a type. Unpickling its codecs has registered them."""
    return ColumnType(base, shape, nullable, foreign)


def parse_type(text: str, *, file: str | None = None, place: str | None = None) -> ColumnType:
    """Parse a type. Raise CorruptError, with `file` and `place`, if `text` breaks the grammar."""

    def corrupt(message: str) -> CorruptError:
        return CorruptError(f"{text[:80]!r} is not a column type: {message}", file=file, place=place)

    match = _TYPE.fullmatch(text)
    if match is None:
        raise corrupt("expected a base, optional dimensions in brackets, and an optional question mark")
    base, dims, mark = match.groups()
    if dims is None:
        return ColumnType(base, None, mark is not None)
    parts = dims.split(",")
    if len(parts) > MAX_DIMENSIONS:
        raise corrupt(f"it has {len(parts)} dimensions, more than {MAX_DIMENSIONS}")
    if not all(_DIMENSION.fullmatch(part) for part in parts):
        raise corrupt('a dimension must be "*" or a number without leading zeros')
    # A number of more than 11 digits is too large, and Python refuses to parse thousands of digits.
    found = ColumnType(base, tuple(None if part == "*" else int(part[:11]) for part in parts), mark is not None)
    if found.is_list and found.shape != (None,):
        raise corrupt(f"a list has one dimension, a star: {base}[*]")
    if span(found.item_dtype.itemsize if found.scalar else 1, found.shape or ()) >= MAX_SPAN:
        raise corrupt("its dimensions span 2^31 bytes or more")
    return found


def span(item_size: int, shape: tuple[int | None, ...]) -> int:
    """Return the item size times the dimensions that are neither starred nor 0."""
    return item_size * math.prod(dim for dim in shape if dim)
