"""Floats: those of IEEE 754, and those that NumPy lacks, which users get as float32.

| base | digits | exponents | infinity | NaN |
|---|---|---|---|---|
| `bfloat16` | 8 | as float32 | yes | as float32 |
| `float8_e4m3fn` | 4 | 2^-6 to 2^8, so up to 448 | no | `7F` and `FF` |
"""

from __future__ import annotations

import math
import struct
from bisect import bisect_left
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsx.format.families.record import Float


def _ieee(name: str, code: str, arrow: str, aliases: str, python: type | None = None) -> Float:
    item = np.dtype(name).newbyteorder("<")
    limits = np.finfo(name)

    def narrow(items: NDArray[Any]) -> NDArray[Any]:
        with np.errstate(over="ignore"):
            return items.astype(item, copy=False)

    return Float(
        name=name, kind="float", arrow=arrow, item=item, code=code, python=python, aliases=aliases,
        digits=limits.nmant + 1, largest=float(limits.max), least=float(limits.smallest_subnormal),
        pack=struct.Struct("<" + code).pack, narrow=narrow,
    )  # fmt: skip


# --- bfloat16: the upper 16 bits of a float32


def _pack_bfloat16(value: float) -> bytes:
    # Going through float32 would round twice.
    if math.isfinite(value):
        step = max(math.frexp(value)[1], -125) - 8  # neighbours are 2**step apart
        value = math.copysign(math.ldexp(round(math.ldexp(value, -step)), step), value)
    return struct.pack("<f", value)[2:]


def _narrow_bfloat16(items: NDArray[Any]) -> NDArray[np.uint16]:
    with np.errstate(over="ignore"):
        items = items.astype(np.float32, copy=False)
    bits = items.view(np.uint32)
    rounded = (bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))) >> np.uint32(16)
    return np.where(np.isnan(items), (bits >> np.uint32(16)) | np.uint32(0x40), rounded).astype("<u2")


def _widen_bfloat16(bits: Any) -> Any:
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


# --- float8_e4m3fn: a sign, 4 bits of exponent, 3 of significand

_CODES = np.arange(127)
_POSITIVE = np.where(_CODES < 8, _CODES * 2.0**-9, (8 + _CODES % 8) * 2.0 ** (_CODES // 8 - 10))
"""The finite numbers from 0 on, indexed by their bits."""
_BETWEEN = (_POSITIVE + np.append(_POSITIVE[1:], 480)) / 2  # 480 would be the next number
_BETWEEN_LIST: list[float] = _BETWEEN.tolist()
_FLOAT8 = np.concatenate((_POSITIVE, [np.nan], -_POSITIVE, [-np.nan])).astype(np.float32)
_NAN = 127


def _pack_float8(value: float) -> bytes:
    code = _NAN
    if not math.isnan(value):
        size = abs(value)
        code = bisect_left(_BETWEEN_LIST, size)
        code += code < _NAN and size == _BETWEEN_LIST[code] and code % 2
        if code == _NAN:
            raise OverflowError
    return bytes((code | (0x80 if math.copysign(1, value) < 0 else 0),))


def _narrow_float8(items: NDArray[Any]) -> NDArray[np.uint8]:
    sizes = np.abs(items)
    codes = np.searchsorted(_BETWEEN, sizes)  # NaN sorts last
    tied = sizes == _BETWEEN.take(codes, mode="clip")
    codes += tied & (codes % 2 == 1)
    found: NDArray[np.uint8] = (codes | np.where(np.signbit(items), 0x80, 0)).astype(np.uint8)
    return found


def _widen_float8(bits: Any) -> Any:
    return _FLOAT8[bits]


BFLOAT16 = Float(
    name="bfloat16", kind="float", arrow="float", item=np.dtype("<u2"), code=None, native=False,
    aliases="bf16 brain", digits=8, largest=2.0**127 * 255 / 128, least=2.0**-133,
    pack=_pack_bfloat16, narrow=_narrow_bfloat16, widen=_widen_bfloat16,
)  # fmt: skip
FLOAT8_E4M3FN = Float(
    name="float8_e4m3fn", kind="float", arrow="float", item=np.dtype("u1"), code=None, native=False, minor=1,
    aliases="float8 fp8 e4m3 e4m3fn float8_e4m3", digits=4, largest=448.0, least=2.0**-9,
    pack=_pack_float8, narrow=_narrow_float8, widen=_widen_float8,
)  # fmt: skip
FLOAT32 = _ieee("float32", "f", "float", "single fp32 torch.float")
FLOAT64 = _ieee("float64", "d", "double", "fp64 double str_float real number", python=float)
BASES = (
    _ieee("float16", "e", "halffloat", "half halffloat fp16"),
    FLOAT32,  # before the other bases that are `float` in Arrow
    BFLOAT16,
    FLOAT64,
    FLOAT8_E4M3FN,
)
LACKING = {base.name: base for base in BASES if base.widen is not None}
"""The floats that NumPy lacks, by name. Their values are passed as bits, whose dtype is `item`."""
