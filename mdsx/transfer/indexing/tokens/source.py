"""The protocol of a kind of token files: which objects belong to a file, and where its documents are.

A kind yields the lengths of documents in blocks, so that any number of documents takes only a few MiB. Documents must
be contiguous, because nothing is copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mdsx.foreign.tokens import TOKENS, Block
from mdsx.storage import Entry, Storage, file_of
from mdsx.transfer.indexing.sources import get_listed

Integers = NDArray[np.int64]

TABLE = "table"
"""The role of the object that locates documents."""
ROWS = 2**17
"""How many documents are read of it at once."""
VALUES = 2**23
"""Bytes of tokens that are read at once."""


@dataclass(frozen=True)
class SourceFile:
    """A token file and the objects that belong to it, by role."""

    storage: Storage
    entries: dict[str, Entry]

    def file(self, role: str) -> str:
        return file_of(self.storage, self.entries[role].key)

    def size(self, role: str) -> int:
        return self.entries[role].size

    def get(self, role: str, start: int, stop: int) -> bytes:
        """Return bytes of the object that was listed. Raise ChangedError if it was replaced."""
        return get_listed(self.storage, self.entries[role], start, stop)


@dataclass(frozen=True)
class Documents:
    """The documents of a file: the type of tokens, the byte at which the first document begins, the number of tokens
    from there on, and the lengths of documents, block by block. `every`: the length of all documents, if it is fixed.
    """

    dtype: str
    start: int
    tokens: int
    blocks: Iterator[Block]
    modes: bool = False
    every: int | None = None
    values: Values | None = None


class Values:
    """The values of a file, read once and in order, and kept until they are released."""

    def __init__(self, source: SourceFile) -> None:
        self._source = source
        self._kept: list[tuple[int, bytes]] = []

    def read(self, start: int, stop: int) -> bytes:
        """Return bytes of the file, and keep them."""
        data = self._source.get(TOKENS, start, stop)
        self._kept.append((start, data))
        return data

    def get(self, start: int, stop: int) -> bytearray:
        """Return bytes of the file, from the kept ones if possible."""
        found = bytearray()
        for first, data in self._kept:
            at = start + len(found)
            if first <= at < first + len(data):
                found += data[at - first : stop - first]
        for at in range(start + len(found), stop, VALUES):
            found += self._source.get(TOKENS, at, min(at + VALUES, stop))
        return found

    def let_go(self, before: int) -> None:
        """Release all bytes before an offset."""
        self._kept = [(first, data) for first, data in self._kept if first + len(data) > before]


class TokensKind(Protocol):
    """A kind of token files. It can be pickled."""

    @property
    def name(self) -> str: ...
    @property
    def suffixes(self) -> tuple[str, ...]: ...
    @property
    def reads_values(self) -> bool:
        """Return whether the tokens themselves are read, even without hashes."""

    def beside(self, key: str) -> dict[str, str]:
        """Return the keys of the objects that belong to the file with this key, by role. The object for LOSS may be
        missing."""

    def open(self, source: SourceFile) -> Documents:
        """Return the documents of a file. This call, or a block, may raise FormatError or UsageError."""
