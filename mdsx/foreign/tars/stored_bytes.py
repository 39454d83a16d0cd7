"""The stored bytes of tars: received whole and checked, or read by range, sample by sample."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import xxhash
from numpy.typing import NDArray

from mdsx.errors import CorruptError
from mdsx.foreign.tars.shard import CHANGED, Pointers
from mdsx.format import Reading, Selection

if TYPE_CHECKING:
    from typing_extensions import Buffer


class TarReceiver:
    """Checks a tar that is fetched whole against its `size` and `hash` in the index. Without a hash in the index, the
    raw bytes are followed by a hash of `name`, the tar's name in the cache, and of the received bytes."""

    def __init__(self, *, size: int, hash: str | None, name: bytes, file: str) -> None:
        self._size, self._hash, self._file = size, hash, file
        self._received = 0
        self._hasher = xxhash.xxh3_128(b"" if hash is not None else name)

    def feed(self, chunk: Buffer) -> Iterator[Buffer]:
        self._received += len(memoryview(chunk))
        if self._received > self._size:
            raise self._error("the tar is longer than the index says", "size", self._received, self._size)
        self._hasher.update(chunk)
        yield chunk
        if self._hash is None and self._received == self._size:
            yield self._hasher.digest()

    def finish(self) -> None:
        if self._received != self._size:
            raise self._error("the tar ends early", "size", self._received, self._size)
        if self._hash is not None and (found := self._hasher.hexdigest()) != self._hash:
            raise self._error("the tar is not the one that was indexed", "XXH3-128", found, self._hash)

    def _error(self, message: str, place: str, found: object, expected: object) -> CorruptError:
        return CorruptError(message, file=self._file, place=place, found=found, expected=expected, hint=CHANGED)


class TarRanges:
    """Reads samples of a tar, each in one range."""

    def __init__(self, pointers: Pointers) -> None:
        self._pointers = pointers

    def select(self, samples: NDArray[np.int64]) -> Reading[Selection]:
        pieces = list((yield self._pointers.extents(samples)))
        for sample, piece in zip(samples.tolist(), pieces, strict=True):
            self._pointers.check(sample, piece)
        return self._pointers.select(samples, pieces)

    def check(self) -> Reading[None]:
        """Check nothing: samples share only the pointers, which were checked already."""
        yield from ()
