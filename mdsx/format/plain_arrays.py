"""Parse the long arrays of an index, up to hundreds of megabytes of digits, with a few NumPy calls.

`plain_integers` and `plain_hexadecimal` parse the form that writers produce. They return None for any other text, which
the caller passes to a JSON parser.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from typing_extensions import Buffer

_BLOCK = 2**18  # bytes to process at once, which fit into the processor's cache
_DIGITS = 18  # of the largest numbers, which are below 2^63
_COMMA, _END, _ZERO, _QUOTE = b',]0"'
_PADDING = 24  # the least multiple of eight that is not below _DIGITS
_OWN = np.array([0x0F0F0F0F0F0F0F0F >> 8 * (8 - size) << 8 * (8 - size) for size in range(9)], np.uint64)
"""For each count of digits at the end of eight characters, a mask of their bits."""
_STEPS = tuple(
    (np.uint64(10**size), np.uint64(8 * size), np.uint64(mask))
    for size, mask in ((1, 0x00FF00FF00FF00FF), (2, 0x0000FFFF0000FFFF), (4, 0x00000000FFFFFFFF))
)


def plain_integers(text: Buffer) -> NDArray[np.int64] | None:
    """Parse a JSON array of integers from 0 to 10^18 - 1, without spaces. Return None for any other text."""
    data = np.frombuffer(memoryview(text), np.uint8)
    found, at = [], 1  # after the bracket
    while at < len(data):
        block = data[at : at + _BLOCK]
        ends = np.flatnonzero(block - np.uint8(_ZERO) > 9)
        if not len(ends):
            return None
        block = block[: ends[-1] + 1]
        at += len(block)
        last = _END if at == len(data) else _COMMA
        sizes = np.diff(ends, prepend=-1) - 1
        if (block[ends[:-1]] != _COMMA).any() or block[-1] != last or sizes.min() < 1 or sizes.max() > _DIGITS:
            return None
        if ((block[ends - sizes] == _ZERO) & (sizes > 1)).any():
            return None
        found.append(_numbers(block, ends, sizes))
    return np.concatenate(found) if found else None


def plain_hexadecimal(text: Buffer) -> NDArray[np.uint8] | None:
    """Parse a JSON string of lower-case hexadecimal digits, without escapes. Return None for any other text."""
    data = np.frombuffer(memoryview(text), np.uint8)
    digits = data[1:-1]
    if data[0] != _QUOTE or len(digits) % 2:
        return None
    found = np.empty(len(digits) // 2, np.uint8)
    for at in range(0, len(digits), _BLOCK):
        block = digits[at : at + _BLOCK]
        letters = block - np.uint8(ord("a")) < 6
        if not (letters | (block - np.uint8(_ZERO) < 10)).all():
            return None
        pairs = ((block & 15) + letters * np.uint8(9)).view("<u2")  # the first digit is the low byte
        found[at // 2 : (at + _BLOCK) // 2] = pairs << 4 | pairs >> 8
    return found


def _numbers(block: NDArray[np.uint8], ends: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the numbers of `sizes` digits that end before `ends`.

    Eight digits are loaded as the bytes of one integer, the first as its low byte. Neighbours are joined into numbers
    of two digits, these into numbers of four, and these into one of eight.
    """
    padded = np.concatenate((np.zeros(_PADDING, np.uint8), block))
    eights = np.ndarray(len(padded) - 7, "<u8", padded, 0, (1,))  # the eight bytes that start at each byte
    found = np.zeros(len(ends), np.uint64)
    for after in range((int(sizes.max()) - 1) // 8 * 8, -1, -8):  # digits of the number that follow these eight
        part = eights[ends + (_PADDING - 8 - after)] & _OWN[np.clip(sizes - after, 0, 8)]
        for factor, bits, mask in _STEPS:
            part = part * factor + (part >> bits) & mask
        found = found * np.uint64(10**8) + part
    return found.view(np.int64)
