"""Checks that several formats share: of a shard's trailer in the cache, and of many samples at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import xxhash
from numpy.typing import NDArray

from mdsx.errors import CorruptError

TRAILER = 16
"""Bytes that follow a shard in the cache if its index may have no hashes: an XXH3-128 of the shard's name there and of
its bytes."""
MOST_PROBLEMS = 1000
"""The most problems that are listed for one shard."""

_BLOCK = 2**16  # samples checked at once


def check_trailer(trailer: bytes | None, name: bytes, data: memoryview, *, message: str, file: str) -> None:
    """Raise CorruptError if a shard with a trailer, named `name` in the cache, changed there."""
    if trailer is None:
        return
    hasher = xxhash.xxh3_128(name)
    hasher.update(data)
    if (found := hasher.digest()) != trailer:
        raise CorruptError(message, file=file, place="XXH3-128", found=found.hex(), expected=trailer.hex())


def blocks(samples: int) -> Iterator[NDArray[np.int64]]:
    """Yield the numbers of all samples of a shard, in blocks."""
    for start in range(0, samples, _BLOCK):
        yield np.arange(start, min(start + _BLOCK, samples))


def damaged(samples: NDArray[np.int64], check: Callable[[NDArray[np.int64]], object]) -> Iterator[CorruptError]:
    """Yield the error of each sample for which `check` raises one. Undamaged samples are checked together."""
    try:
        check(samples)
    except CorruptError as error:
        if len(samples) == 1:
            yield error
            return
        for half in np.array_split(samples, 2):
            yield from damaged(half, check)
