"""Bools and integers. A bool is a byte, 0 or 1; integers are two's complement or unsigned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mdsx.format.families.record import Integer

_ALIASES = {
    "int8": "tinyint char int4",
    "int16": "short smallint",
    "int32": "integer",
    "int64": "int long longlong bigint index id cls str_int datetime64 timedelta64 timestamp duration date datetime",
    "uint8": "byte ubyte uint4",
    "uint64": "uint ulong",
}


@dataclass(frozen=True, eq=False, kw_only=True)
class _Bool(Integer):
    def numpy(self, items: Any) -> Any:
        return items.view(np.bool_) if isinstance(items, np.ndarray) else bool(items)


def _integer(name: str, code: str, python: type | None = None, extensions: tuple[str, ...] = ()) -> Integer:
    item = np.dtype(name).newbyteorder("<")
    limits = np.iinfo(item)
    return Integer(
        name=name, kind="integer", arrow=name, item=item, code=code, low=int(limits.min), high=int(limits.max),
        python=python, extensions=extensions, aliases=_ALIASES.get(name, ""),
    )  # fmt: skip


BOOL = _Bool(
    name="bool", kind="bool", arrow="bool", item=np.dtype("u1"), code=None, native=False, highest=1, low=0, high=1,
    python=bool, aliases="boolean bool_ bool8",
)  # fmt: skip
INT8 = _integer("int8", "b")
UINT8 = _integer("uint8", "B")
UINT16 = _integer("uint16", "H")
UINT32 = _integer("uint32", "I")
INT64 = _integer("int64", "q", python=int, extensions=("cls", "id", "index"))
UINT64 = _integer("uint64", "Q")
BASES = (
    BOOL,
    INT8,
    *(_integer(f"int{bits}", code) for bits, code in ((16, "h"), (32, "i"))),
    INT64,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
)
