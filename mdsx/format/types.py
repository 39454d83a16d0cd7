"""Column types: what the text `uint16[*,3]?` means, and which type the author of an unknown text may have meant.

    type = base ["[" dim *("," dim) "]"] ["?"]        dim = "*" / "0" / [1-9][0-9]*
    base = [A-Za-z][A-Za-z0-9_.-]*

A type is *fixed-size* if every value has the same number of bytes: scalars and arrays without a star, without `?`.
The rest are *variable-size*. `str[*]` is a list of str; the same holds for every base that is not a scalar. A base that
this version does not know is variable-size and opaque, with or without dimensions, so that later types need no new
major version.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import numpy as np

from mdsx.errors import CorruptError, FormatError

MAX_DIMENSIONS = 8
MAX_SPAN = 2**31
"""The item size times all dimensions except 0 must be below this, in a type (stars do not count) and in a value."""

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
    """A parsed column type; `str()` gives its text. In `shape`, None is a starred dimension.

    `foreign` decodes the values of a type as another stored format has it: bytes -> value. It is pickled with the
    type, and raises no error but CorruptError and UnsupportedError.
    """

    base: str
    shape: tuple[int | None, ...] | None = None
    nullable: bool = False
    foreign: Callable[[memoryview], object] | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        dims = "" if self.shape is None else "[" + ",".join("*" if d is None else str(d) for d in self.shape) + "]"
        return f"{self.base}{dims}{'?' if self.nullable else ''}"

    @property
    def known(self) -> bool:
        """Return False if the base is of a later version: its values can be found, but not decoded."""
        return self.base in SCALARS or self.base in OBJECTS or self.foreign is not None

    @property
    def scalar(self) -> bool:
        """Return True for numbers, bools and arrays of them."""
        return self.base in SCALARS

    @property
    def is_list(self) -> bool:
        """Return True for lists, such as `str[*]`."""
        return self.shape is not None and self.base in OBJECTS

    @property
    def stars(self) -> int:
        """Return the number of starred dimensions."""
        return 0 if self.shape is None else self.shape.count(None)

    @property
    def fixed_size(self) -> bool:
        return self.scalar and not self.nullable and not self.stars

    @property
    def item_dtype(self) -> np.dtype[Any]:
        """Return the storage dtype of one item. Only for scalars and arrays."""
        return SCALARS[self.base]

    @property
    def field_dtype(self) -> np.dtype[Any]:
        """Return the storage dtype of a value of a fixed-size column; for an array, that of a subarray."""
        return self.item_dtype if self.shape is None else np.dtype((self.item_dtype, self.shape))

    @property
    def nbytes(self) -> int:
        """Return the bytes of a value that is not null. Only for scalars and arrays without a star."""
        return self.item_dtype.itemsize * math.prod(d for d in self.shape or () if d is not None)


def parse_type(text: str, *, file: str | None = None, place: str | None = None) -> ColumnType:
    """Return the type that `text` means. Raise CorruptError, with `file` and `place`, if `text` breaks the grammar."""

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


_NAMES = {
    "int64": "int long longlong bigint index id cls str_int datetime64 timedelta64 timestamp duration date datetime",
    "int32": "integer",
    "int16": "short smallint",
    "int8": "tinyint char int4",
    "uint64": "uint ulong",
    "uint8": "byte ubyte uint4",
    "float64": "fp64 double str_float real number",
    "float32": "single fp32 torch.float",
    "float16": "half halffloat fp16",
    "bfloat16": "bf16 brain",
    "bool": "boolean bool_ bool8",
    "str": "string large_string utf8 large_utf8 text txt unicode varchar str_decimal decimal",
    "bytes": "binary large_binary bytearray memoryview blob buffer raw bin",
    "json": "dict list tuple object any map struct mapping pkl pickle jsonl",
    "jpeg": "jpg pil image jpeg_array jpegarray img",
    "float32[*]": "ndarray array tensor npy",
}
_MEANT = {name: kind for kind, names in _NAMES.items() for name in names.split()}

_MODULE = re.compile(r"(?:np|numpy|torch|pa|pyarrow|pl|polars|jnp|tf|typing|collections\.abc)\.")
_NULLABLE = re.compile(r"(?:optional\[(.*)\]|(.*?) *\| *none|(.*)\?)")
_LIST = re.compile(
    r"(?:list|large_list|sequence|tuple|iterable|set)_?[\[(<] *(?:\w+: *)?(.*?)(?: *, *\.\.\.)? *[\])>]"
    r"|\[(\w+)\]|(\w+)\[\]"
)
_NDARRAY = re.compile(r"ndarray:(\w+)(?::([\d,]+))?")
_SHAPED = re.compile(r"(\w+) *[\[(<:] *((?:\d+|\*|-1|none)(?: *[,x ] *(?:\d+|\*|-1|none))*) *,? *[\])>]?")


def suggest(asked: object) -> str | None:
    """Return the type that the author of an unknown type may have meant: another loader's name, a dtype, or a typo."""
    text = (asked.__name__ if isinstance(asked, type) else str(asked))[:200].lower().strip().removesuffix("()")
    found = _MEANT.get(text) or _kind(_MODULE.sub("", text))
    with suppress(FormatError):
        if found is not None and parse_type(found).known:
            return found
    return None


def _kind(text: str) -> str | None:
    if match := _NULLABLE.fullmatch(text):
        found = _kind(match[1] or match[2] or match[3] or "")
        return found and f"{found.rstrip('?')}?"
    if match := _LIST.fullmatch(text):
        found = _kind(match[1] or match[2] or match[3] or "")
        return "json" if found is None or found.endswith(("]", "?")) else f"{found}[*]"
    if match := _NDARRAY.fullmatch(text):
        return f"{match[1]}[{match[2] or '*'}]"
    if match := _SHAPED.fullmatch(text):
        found = _base(match[1])
        dims = re.sub(" *[,x ] *", ",", match[2]).replace("-1", "*").replace("none", "*")
        return found and f"{found}[{dims}]"
    return _base(text)


def _base(text: str) -> str | None:
    name = re.split(r"[\[(<:]", text.lstrip("<>=|"))[0]
    if name in _MEANT:
        return _MEANT[name]
    with suppress(TypeError, ValueError, SyntaxError):  # "i4", "f8", ...
        if np.dtype(name).name in SCALARS:
            return np.dtype(name).name
    near = get_close_matches(name, (*SCALARS, *OBJECTS, *_MEANT), n=1, cutoff=0.7)
    return _MEANT.get(near[0], near[0]) if near else None
