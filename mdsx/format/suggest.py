"""Suggest a column type for an unknown one: another library's name, a dtype, or a typo."""

from __future__ import annotations

import re
from contextlib import suppress
from difflib import get_close_matches

import numpy as np

from mdsx.errors import FormatError
from mdsx.format.bases import BASES, NUMBERS
from mdsx.format.families.floats import FLOAT32
from mdsx.format.families.json_text import JSON
from mdsx.format.types import parse_type

_MEANT = {name: base.name for base in BASES.values() for name in base.aliases.split()}
_MEANT |= dict.fromkeys(("ndarray", "array", "tensor", "npy"), f"{FLOAT32.name}[*]")

_MODULE = re.compile(r"(?:np|numpy|torch|pa|pyarrow|pl|polars|jnp|tf|typing|collections\.abc)\.")
_NULLABLE = re.compile(r"(?:optional\[(.*)\]|(.*?) *\| *none|(.*)\?)")
_LIST = re.compile(
    r"(?:list|large_list|sequence|tuple|iterable|set)_?[\[(<] *(?:\w+: *)?(.*?)(?: *, *\.\.\.)? *[\])>]"
    r"|\[(\w+)\]|(\w+)\[\]"
)
_NDARRAY = re.compile(r"ndarray:(\w+)(?::([\d,]+))?")
_SHAPED = re.compile(r"(\w+) *[\[(<:] *((?:\d+|\*|-1|none)(?: *[,x ] *(?:\d+|\*|-1|none))*) *,? *[\])>]?")


def suggest(asked: object) -> str | None:
    """Return the type that was probably meant by an unknown one; None if there is no suggestion."""
    text = (asked.__name__ if isinstance(asked, type) else str(asked))[:200].lower().strip()
    found = _MEANT.get(text) or _kind(_MODULE.sub("", text))
    with suppress(FormatError):
        if found is not None and parse_type(found).known:
            return found
    return None


def _kind(text: str) -> str | None:
    if match := _NULLABLE.fullmatch(text):
        found = _kind("".join(match.groups("")))
        return found and f"{found.removesuffix('?')}?"
    if match := _LIST.fullmatch(text):
        found = _kind("".join(match.groups("")))
        return JSON.name if found is None or found.endswith(("]", "?")) else f"{found}[*]"
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
        if np.dtype(name).name in NUMBERS:
            return np.dtype(name).name
    near = get_close_matches(name, (*BASES, *_MEANT), cutoff=0.7)
    return _MEANT.get(near[0], near[0]) if near else None
