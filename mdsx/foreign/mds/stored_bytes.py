"""The stored bytes of MDS shards: received whole and checked, or read by range."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import xxhash
from numpy.typing import NDArray

from mdsx.errors import CorruptError
from mdsx.foreign.mds.compressions import Decompressor
from mdsx.foreign.mds.hashes import FileHashes
from mdsx.foreign.mds.layout import EDGES, OFFSET, MdsLayout
from mdsx.foreign.mds.shard import check_table
from mdsx.format import ColumnType, Reading, Selection, lengths_of_sizes

if TYPE_CHECKING:
    from typing_extensions import Buffer

_WHOLE_TABLE = 2**16  # bytes: a table of offsets up to this size is fetched whole and kept


class MdsReceiver:
    """Turns the stored bytes of a shard into raw bytes, followed by their hash for the cache, and checks both against
    the sizes and hashes in the index. `name`: the shard's name in the cache. `decompressor`: None for an uncompressed
    shard."""

    def __init__(
        self,
        *,
        size: int,
        raw_size: int,
        name: bytes,
        hashes: FileHashes,
        raw_hashes: FileHashes,
        decompressor: Decompressor | None,
        file: str,
    ) -> None:
        self._size, self._raw_size, self._hashes, self._raw_hashes = size, raw_size, hashes, raw_hashes
        self._decompressor, self._file = decompressor, file
        self._received = self._made = 0
        self._trailer = xxhash.xxh3_128(name)

    def feed(self, chunk: Buffer) -> Iterator[Buffer]:
        data = memoryview(chunk).cast("B")
        self._received += len(data)
        if self._received > self._size:
            raise self._error("the shard is longer than the index says", self._received, self._size)
        self._hashes.update(data)
        try:
            for piece in [data] if self._decompressor is None else self._decompressor.feed(bytes(data)):
                yield self._checked(piece)
            if self._received < self._size:
                return
            for piece in [] if self._decompressor is None else self._decompressor.finish():
                yield self._checked(piece)
        except CorruptError as error:
            raise self._error(error.message, error.found, error.expected) from error
        if self._made == self._raw_size:
            yield self._trailer.digest()

    def finish(self) -> None:
        if self._received != self._size:
            raise self._error("the shard ends early", self._received, self._size)
        self._hashes.check()
        if self._made != self._raw_size:
            raise self._error("the decompressed shard ends early", self._made, self._raw_size)
        self._raw_hashes.check()

    def _checked(self, piece: Buffer) -> Buffer:
        self._made += len(memoryview(piece))
        if self._made > self._raw_size:
            raise CorruptError("it decompresses to more than the index says", found=self._made, expected=self._raw_size)
        self._raw_hashes.update(piece)
        self._trailer.update(piece)
        return piece

    def _error(self, message: str, found: object, expected: object) -> CorruptError:
        return CorruptError(message, file=self._file, found=found, expected=expected)


class MdsRanges:
    """Reads samples of an uncompressed shard: one request for offsets, and one for the samples.

    Threads may share it: its cached values are replaced, never changed.
    """

    def __init__(self, layout: MdsLayout, *, count: int, size: int, file: str) -> None:
        self._layout, self._count, self._size, self._file = layout, count, size, file
        self._checked = False
        self._table: NDArray[np.uint32] | None = None

    def select(self, samples: NDArray[np.int64]) -> Reading[Selection]:
        wanted, take = np.unique(samples, return_inverse=True)
        edges = yield from self._edges(wanted)
        begins, ends = edges[:, 0].astype(np.int64), edges[:, 1].astype(np.int64)
        wrong = (begins > ends) | (ends > self._size)
        if wrong.any():
            place = int(wrong.argmax())
            found, expected = f"bytes {begins[place]} to {ends[place]}", f"within {self._size}"
            at = f"sample {wanted[place]}"
            raise CorruptError(
                "the sample's offsets are wrong", file=self._file, place=at, found=found, expected=expected
            )
        pieces = yield list(zip(begins.tolist(), ends.tolist(), strict=True))
        selection = self._layout.of(self._file, samples, take, edges[:, 1] - edges[:, 0], b"".join(pieces))
        self._layout.check(selection)
        return selection

    def lengths(self, kind: ColumnType) -> Reading[NDArray[np.int64]]:
        """Return the lengths of all samples by their only variable-size column, which is of this type."""
        (data,) = yield [(0, 4 * (self._count + 2))]
        self._check(data[:8], data[-4:])
        table = np.frombuffer(data, OFFSET)[1:].astype(np.int64)
        sizes = table[1:] - table[:-1] - self._layout.least
        if (wrong := sizes < 0).any():
            place = f"sample {int(wrong.argmax())}"
            raise CorruptError("the sample's offsets are wrong", file=self._file, place=place)
        return lengths_of_sizes(kind, sizes, file=self._file)

    def check(self) -> Reading[None]:
        yield from self._edges(np.zeros(0, np.int64))

    def _edges(self, samples: NDArray[np.int64]) -> Reading[NDArray[np.uint32]]:
        """Return where each sample begins and ends, uint32 [n, 2]. The first call also checks the shard's count and its
        first and last offset, and fetches the whole table if it is small."""
        end = 4 * (self._count + 2)
        if end <= _WHOLE_TABLE:
            if self._table is None:
                (data,) = yield [(0, end)]
                self._check(data[:8], data[-4:])
                self._table = np.frombuffer(bytes(data), OFFSET)[1:]
            return np.stack((self._table[samples], self._table[samples + 1]), axis=1)
        wanted = [(at, at + 8) for at in (4 * samples + 4).tolist()]
        if self._checked:
            found = yield wanted
        else:
            first, last, *found = yield [(0, 8), (end - 4, end), *wanted]
            self._check(first, last)
            self._checked = True
        return np.frombuffer(b"".join(found), EDGES)

    def _check(self, first: memoryview, last: memoryview) -> None:
        edges = int.from_bytes(first[4:], "little"), int.from_bytes(last, "little")
        check_table(first[:4], *edges, count=self._count, size=self._size, file=self._file)
