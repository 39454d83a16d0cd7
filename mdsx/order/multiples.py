"""Count exactly how many of the first multiples of a step, on a circle of 2^64 points, are below each of many limits.

This is the floor sum of format-spec.md, section 12.2, for many limits at once. Euclid's algorithm on (2^64, step) is
the same for all limits. Only the remainders and their carries differ, by small numbers from those of the limit 0, so no
product needs more than 64 bits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MODULUS = 2**64
_CHUNK = 2**14  # limits at a time, so that they stay in a processor's cache
_WORTH_SORTING = 4  # multiples for each limit
_ZERO, _ONE = np.uint64(0), np.uint64(1)


def multiples_below(count: int, step: int, limits: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return for each of `limits` how many of the first `count` multiples of `step`, mod 2^64, are below it.

    The multiples must differ: `count` is at most 2^64 / gcd(2^64, step). It is fastest if the limits ascend.
    """
    if not count:
        return np.zeros(len(limits), np.int64)
    if count <= _WORTH_SORTING * len(limits):
        multiples = np.arange(count, dtype=np.uint64) * np.uint64(step % MODULUS)
        multiples.sort()
        return np.searchsorted(multiples, limits)
    chunks = [_below(count, step % MODULUS, limits[at : at + _CHUNK]) for at in range(0, len(limits), _CHUNK)]
    return np.concatenate(chunks) if chunks else np.zeros(0, np.int64)


def _below(count: int, step: int, limits: NDArray[np.uint64]) -> NDArray[np.int64]:
    if step > MODULUS // 2:  # use the mirrored step, which is at most half of the circle, so that no sum exceeds 2^64
        found = _at_top(count, MODULUS - step, limits - _ONE) + 1  # 0 is its own image
    else:
        found = count - _at_top(count, step, _ZERO - limits)
    found[limits == 0] = 0
    return found


def _at_top(count: int, step: int, sizes: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return for each of `sizes` how many of the multiples are among this many last points of the circle."""
    rest = np.append(sizes, _ZERO)  # all others are compared with the last one
    extra, total, quotient, work = np.zeros((4, len(rest)), np.uint64)
    modulus = MODULUS
    while True:
        # Sum floor((step*k + rest) / modulus) over all k below count + extra: swap the axes.
        count, more = divmod(step * count, modulus)
        if modulus == MODULUS:
            rest += np.uint64(more)
            np.less(rest, np.uint64(more), out=extra)
        else:
            extra *= np.uint64(step)
            rest += extra
            rest += np.uint64(more)
            np.floor_divide(rest, np.uint64(modulus), out=extra)
            np.multiply(extra, np.uint64(modulus), out=work)
            rest -= work
        if not count and not extra.any():
            break
        # Take whole multiples of the step out of modulus and rest. Sums are mod 2^64; their differences are below it.
        np.floor_divide(rest, np.uint64(step), out=quotient)
        np.multiply(quotient, np.uint64(step), out=work)
        rest -= work
        np.add(extra, np.uint64(count), out=work)
        work *= quotient
        total += work
        whole, left = divmod(modulus, step)
        np.multiply(extra, np.uint64(whole * count % MODULUS), out=work)
        total += work
        if int(extra.max()) > 1:
            total += np.uint64(whole) * (extra * (extra - _ONE) // np.uint64(2))
        modulus, step = step, left
        if not step:
            break
    found: NDArray[np.int64] = (total[:-1] - total[-1]).view(np.int64)
    return found
