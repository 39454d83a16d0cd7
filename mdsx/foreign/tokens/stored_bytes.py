"""The stored bytes of shards of tokens: received whole and checked, or read by range, document by document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import xxhash
from numpy.typing import NDArray

from mdsx.errors import CorruptError
from mdsx.foreign.tokens.layout import TokensLayout
from mdsx.foreign.tokens.shard import CHANGED
from mdsx.format import Reading, Selection

if TYPE_CHECKING:
    from typing_extensions import Buffer


class TokensReceiver:
    """Checks the stored bytes of a shard against its size and its `hashes`, if any: the bytes and XXH3-128 of each part
    of the heap. A hash of `name` and of the bytes follows."""

    def __init__(self, parts: Sequence[tuple[int, bytes | None]], *, name: bytes, file: str) -> None:
        self._parts, self._file = parts, file
        self._size, self._received = sum(size for size, _ in parts), 0
        self._hashers = [xxhash.xxh3_128() for _ in parts]
        self._trailer = xxhash.xxh3_128(name)
        self._hashed = any(hash is not None for _, hash in parts)
        self._ended = False

    def feed(self, chunk: Buffer) -> Iterator[Buffer]:
        data = memoryview(chunk).cast("B")
        if self._received + len(data) > self._size:
            raise self._error("the shard is longer than the index says", "size", self._received + len(data), self._size)
        if self._hashed:
            self._hash(data)
        self._received += len(data)
        self._trailer.update(data)
        yield data
        if self._received == self._size and not self._ended:
            self._ended = True
            yield self._trailer.digest()

    def finish(self) -> None:
        if self._received != self._size:
            raise self._error("the shard ends early", "size", self._received, self._size)
        for hasher, (_, expected) in zip(self._hashers, self._parts, strict=True):
            if expected is not None and (found := hasher.digest()) != expected:
                message = "the documents are not those that were indexed"
                raise self._error(message, "XXH3-128", found.hex(), expected.hex())

    def _hash(self, data: memoryview) -> None:
        first = 0
        for hasher, (size, _) in zip(self._hashers, self._parts, strict=True):
            low, high = max(first - self._received, 0), max(first + size - self._received, 0)
            hasher.update(data[low:high])
            first += size

    def _error(self, message: str, place: str, found: object, expected: object) -> CorruptError:
        return CorruptError(message, file=self._file, place=place, found=found, expected=expected, hint=CHANGED)


class TokensRanges:
    """Reads documents of a shard with this table, in one request. Threads may share it."""

    def __init__(self, layout: TokensLayout, table: NDArray[np.void], *, tokens: int, file: str) -> None:
        self._layout, self._table, self._tokens, self._file = layout, table, tokens, file

    def select(self, samples: NDArray[np.int64]) -> Reading[Selection]:
        layout, edges = self._layout, self._table["edge"].astype(np.int64)
        begins, ends = edges[samples], edges[samples + 1]
        wrong = (begins > ends) | (ends > self._tokens)
        if wrong.any():
            row = int(wrong.argmax())
            message, found = "the document is not in its shard", f"tokens {begins[row]} to {ends[row]}"
            place, expected = f"sample {samples[row]}", f"within {self._tokens}"
            raise CorruptError(message, file=self._file, place=place, found=found, expected=expected)
        starts = [(self._tokens * layout.before[name], width) for name, width in layout.heap]
        pieces = yield [
            (first + low * width, first + high * width)
            for first, width in starts
            for low, high in zip(begins.tolist(), ends.tolist(), strict=True)
        ]
        selection = layout.joined(self._file, samples, self._table[samples], ends - begins, pieces)
        layout.check_hashes(selection)
        return selection

    def check(self) -> Reading[None]:
        """Check nothing: documents share only their table, which was checked already."""
        yield from ()
