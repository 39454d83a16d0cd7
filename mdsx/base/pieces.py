"""Several buffers as one byte sequence, so that storing a shard needs no second copy in memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import TYPE_CHECKING

import xxhash

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Pieces:
    """The bytes of `buffers`, one after the other. A slice shares them; only `joined` may copy."""

    def __init__(self, *buffers: Buffer) -> None:
        views = (buffer if type(buffer) is bytes else memoryview(buffer).cast("B") for buffer in buffers)
        self._views = [view for view in views if len(view)]  # bytes: the garbage collector does not count them
        self._stops = list(accumulate(map(len, self._views)))

    def __len__(self) -> int:
        return self._stops[-1] if self._stops else 0

    def __iter__(self) -> Iterator[bytes | memoryview]:
        return iter(self._views)

    def __getitem__(self, part: slice) -> Pieces:
        """Return bytes [start, stop)."""
        start, stop, _ = part.indices(len(self))
        found = []
        for number in range(bisect_right(self._stops, start), len(self._views)):
            view = self._views[number]
            first = self._stops[number] - len(view)
            if first >= stop:
                break
            found.append(memoryview(view)[max(start - first, 0) : stop - first])
        return Pieces(*found)

    def cut(self, size: int) -> Iterator[Pieces]:
        """Yield parts of `size` bytes; the last part may be shorter."""
        for start in range(0, len(self), size):
            yield self[start : start + size]

    def joined(self) -> memoryview:
        """Return the bytes in one buffer. Copies only if there are several buffers."""
        return memoryview(self._views[0] if len(self._views) == 1 else b"".join(self._views))

    def digest(self) -> bytes:
        """Return the XXH3-128 of the bytes (16 bytes)."""
        hasher = xxhash.xxh3_128()
        for view in self._views:
            hasher.update(view)
        return hasher.digest()
