"""The column type that somebody meant, who wrote another loader's name for it, a dtype's, Python's, or a typo."""

from __future__ import annotations

import re
from contextlib import suppress
from difflib import get_close_matches

import numpy as np

from mdsx.errors import FormatError
from mdsx.format.types import OBJECTS, SCALARS, parse_type

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
    """The type that `asked`, which is none, may mean; None where it has no likeness to any."""
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
    with suppress(TypeError, ValueError):  # "i4", "f8", ...
        if np.dtype(name).name in SCALARS:
            return np.dtype(name).name
    near = get_close_matches(name, (*SCALARS, *OBJECTS, *_MEANT), n=1, cutoff=0.7)
    return _MEANT.get(near[0], near[0]) if near else None
