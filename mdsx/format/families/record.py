"""The records of base types: `Number` for types of numbers, `Object` for all others.

Packages above `format` decide by these traits, never by the name of a type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Beginning = tuple[tuple[int, bytes], ...]
"""Pairs (offset, bytes). A value that begins in this way has all of them."""

Kind = Literal["bool", "integer", "float", "bytes", "text", "document"]
"""The kind of a value: a number; bytes, kept unchanged; text; or a document, which nests other values."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Base:
    """A base type: a row of the table in format-spec.md, 3.1."""

    name: str
    kind: Kind
    arrow: str
    """The Arrow type of a value, as pyarrow's alias. Arrow data get the first base with their type."""
    python: type | None = None
    """If no type is declared, values of this Python type get this base."""
    extensions: tuple[str, ...] = ()
    """If no type is declared, members of a tar with these file extensions get this base."""
    aliases: str = ""
    """Other names of the type, for hints about unknown types."""
    minor: int = 0
    """The minor version of the shard that added it. To earlier readers the base is unknown, so its values are in the
    heap even if all have one size."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Number(Base):
    """A type of numbers. The items of an array are stored back to back, each like a single number."""

    item: np.dtype[Any]
    """The dtype of a stored item, little-endian."""
    code: str | None
    """The struct module's code of an item; None if there is none."""
    native: bool = True
    """Whether NumPy's dtype of this name is `item`. If not, items are bits, and `numpy` converts them."""
    highest: int | None = None
    """The largest valid item; None if all are valid."""

    def numpy(self, items: Any) -> Any:
        """Convert stored items, an array or a scalar, exactly to the type that NumPy users expect. Do not convert
        twice."""
        return items


@dataclass(frozen=True, eq=False, kw_only=True)
class Integer(Number):
    """Integers and bools. NumPy's are stored unchanged."""

    low: int
    high: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Float(Number):
    """Floats. Those that NumPy lacks become float32, which holds them exactly."""

    digits: int
    """Bits of the significand, the implicit one included."""
    largest: float
    least: float
    """The smallest number above 0."""
    pack: Callable[[float], bytes]
    """number -> item, rounded to nearest, ties to even. A finite number that does not fit raises OverflowError."""
    narrow: Callable[[NDArray[Any]], NDArray[Any]]
    """float32 or float64 [...] -> items, rounded likewise. Too large numbers become infinite, or NaN without
    infinity."""
    widen: Callable[[Any], Any] | None = None
    """items -> float32, for a type that NumPy lacks."""

    def numpy(self, items: Any) -> Any:
        return items if self.widen is None or items.dtype != self.item else self.widen(items)

    def holds(self, other: Float) -> bool:
        """Return whether this type holds each finite number of `other`."""
        return other.digits <= self.digits and other.largest <= self.largest and other.least >= self.least


@dataclass(frozen=True, eq=False, kw_only=True)
class Object(Base):
    """A type whose values may have any size. With `[*]`, it becomes a list."""

    form: str
    """A description of a stored value for users, in a word or two."""
    encoder: Callable[[], Callable[[object], bytes]]
    """Return a function that encodes one value, or raises Refused. Only one thread may use it at a time."""
    quick: Callable[[Any], bytes] | None = None
    """A faster encoder in C, if there is one. It raises TypeError or ValueError in place of Refused."""
    decode: Callable[[memoryview], object]
    """Decode the stored bytes of a value. Raise CorruptError."""
    decode_all: Callable[[Iterable[memoryview]], list[object]] | None = None
    """Decode many values, if that is faster."""
    magic: tuple[Beginning, ...] = ()
    """The ways in which a value may begin. A writer refuses others; a reader does not check."""
    media: str | None = None
    """The media type with which a browser can show a value; None if it cannot."""
    given: Callable[[bytes], bytes] = bytes
    """Convert the stored bytes of a value, of a type of bytes, to the bytes that a writer accepts for it."""

    def matches(self, data: bytes | memoryview) -> bool:
        """Return whether bytes begin like a value of this type."""
        return not self.magic or any(
            all(data[offset : offset + len(part)] == part for offset, part in each) for each in self.magic
        )

    @property
    def textual(self) -> bool:
        """Return whether each value is stored as UTF-8: text and JSON."""
        return self.arrow == "string"
