"""What a tar may claim, by what is stored of it.

A sparse member of 1 KiB may claim gigabytes of holes, and 1 MiB of header records compresses to 1 KiB. So holes are
bounded for each member, each sample and each tar, and records for each tar. What a compressed tar unpacks to is bounded
by `decompress`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

_ROOM, _RATIO = 2**26, 1000
_RECORDS = 2**18

RULE = "64 MiB and 1,000 times what is stored"


def most_holes(stored: int) -> int:
    """Bytes of holes that what has `stored` bytes may have."""
    return _ROOM + _RATIO * stored


class Budget:
    """Counts what one tar claims. `stored` are the bytes of its file that were read so far, compressed or not."""

    def __init__(self) -> None:
        self.stored = self.holes = self._records = 0

    def count(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """`chunks`, each counted as stored before it is read."""
        for chunk in chunks:
            self.stored += len(chunk)
            yield chunk

    def take_holes(self, size: int) -> bool:
        """Take `size` more bytes of holes; False, and nothing is taken, where the tar may not have them."""
        if self.holes + size > most_holes(self.stored):
            return False
        self.holes += size
        return True

    def take_records(self, count: int) -> bool:
        """Take so many more records of headers or pieces of sparse maps; False where the tar may not have them."""
        self._records += count
        return self._records <= _RECORDS + self.stored
