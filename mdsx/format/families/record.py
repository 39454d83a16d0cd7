"""What each base type has: a record. `Number` is for types of numbers, `Object` for all others.

Packages above `format` decide by these traits, never by the name of a type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Beginning = tuple[tuple[int, bytes], ...]
"""(offset, bytes): what a value has there, all of it."""

Kind = Literal["bool", "integer", "float", "bytes", "text", "document"]
"""What a value is: a number; bytes, kept as they are; text; or a document, which nests other values."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Base:
    """A base type: a line of the table in format-spec.md, 3.1."""

    name: str
    kind: Kind
    arrow: str
    """The type of a value in Arrow, as pyarrow's alias. Arrow data become the first base with their type."""
    python: type | None = None
    """Values of this Python type become this base, where no type is declared."""
    extensions: tuple[str, ...] = ()
    """File extensions that mean this base in a tar, where no type is declared."""
    aliases: str = ""
    """What others call it, for the hint of an unknown type."""
    minor: int = 0
    """The minor version of the shard that added it. Readers of earlier ones take it as unknown, so its values are in
    the heap, even if all have one size."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Number(Base):
    """A type of numbers. An array of them has its items in a row, each as one number is stored."""

    item: np.dtype[Any]
    """The dtype of a stored item, little-endian."""
    code: str | None
    """The struct module's code of an item; None if it has none."""
    native: bool = True
    """Whether NumPy's dtype of this name is `item`. If not, items are bits, and `numpy` converts them."""
    highest: int | None = None
    """The largest valid item; None if each one is valid."""

    def numpy(self, items: Any) -> Any:
        """Return stored items, an array or a scalar, in the type that NumPy users expect: exactly, once only."""
        return items


@dataclass(frozen=True, eq=False, kw_only=True)
class Integer(Number):
    """Integers, and bools. NumPy's are stored as they are."""

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
    """float32 or float64 [...] -> items, rounded likewise. What is too large becomes infinite, or NaN without it."""
    widen: Callable[[Any], Any] | None = None
    """items -> float32, of a type that NumPy lacks."""

    def numpy(self, items: Any) -> Any:
        return items if self.widen is None or items.dtype != self.item else self.widen(items)

    def holds(self, other: Float) -> bool:
        """Return whether each finite number of `other` is one of this type."""
        return other.digits <= self.digits and other.largest <= self.largest and other.least >= self.least


@dataclass(frozen=True, eq=False, kw_only=True)
class Object(Base):
    """A type whose values have any size. `[*]` makes a list of them."""

    form: str
    """What a stored value is, in a word or two, for users."""
    encoder: Callable[[], Callable[[object], bytes]]
    """Return a function that encodes one value, or raises Refused. Only one thread may use it at a time."""
    quick: Callable[[Any], bytes] | None = None
    """The same in C, if there is such a function. It raises TypeError or ValueError in place of Refused."""
    decode: Callable[[memoryview], object]
    """Return the value that is stored as these bytes. Raise CorruptError."""
    decode_all: Callable[[Iterable[memoryview]], list[object]] | None = None
    """The same for many values, if there is a faster way."""
    magic: tuple[Beginning, ...] = ()
    """How values begin: each in one of these ways. A writer refuses others; a reader does not look."""
    media: str | None = None
    """The media type under which a browser shows a value; None if it does not."""
    given: Callable[[bytes], bytes] = bytes
    """Return the bytes of a stored value, of a type of bytes, as a writer takes them."""

    def matches(self, data: bytes | memoryview) -> bool:
        """Return whether bytes begin as a value does."""
        return not self.magic or any(
            all(data[offset : offset + len(part)] == part for offset, part in each) for each in self.magic
        )

    @property
    def textual(self) -> bool:
        """Return whether each value is stored as UTF-8: text and JSON."""
        return self.arrow == "string"
