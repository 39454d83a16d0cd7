"""Megatron-LM's indexed datasets, whose `.idx` locates documents and sequences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import CorruptError, UnsupportedError, UsageError
from mdsx.foreign.tokens import TOKENS, Block, MegatronIndex
from mdsx.transfer.indexing.tokens.source import ROWS, TABLE, Documents, Integers, SourceFile

_CONVERT = "convert them, which copies the documents: mdsx convert megatron SRC OUT"


@dataclass(frozen=True)
class MegatronKind:
    """Files of Megatron-LM's indexed datasets, a document or a sequence as a sample."""

    per: str = "document"
    modes: bool = True
    name: ClassVar[str] = "megatron"
    suffixes: ClassVar[tuple[str, ...]] = (".bin",)
    reads_values: ClassVar[bool] = False

    def beside(self, key: str) -> dict[str, str]:
        return {TABLE: f"{key.removesuffix('.bin')}.idx"}

    def open(self, source: SourceFile) -> Documents:
        size, file = source.size(TABLE), source.file(TABLE)
        head = MegatronIndex.parse(source.get(TABLE, 0, min(size, MegatronIndex.HEAD)), size=size, file=file)
        if self.per == "document" and not head.bounds:
            raise CorruptError("has no documents", file=file, place="header", hint="--per sequence reads the sequences")
        modes = head.modes and self.modes
        reader = _Megatron(source, head, self.per, modes)
        start = int(reader.rows(head.pointers(0, 1), "<i8")[0]) if head.sequences else 0
        total = source.size(TOKENS)
        if not 0 <= start <= total:
            found = f"byte {start:,} of {total:,}"
            raise CorruptError("the first sequence is not in the file of tokens", file=file, found=found)
        item = np.dtype(head.dtype).itemsize
        return Documents(head.dtype, start, (total - start) // item, reader.blocks(start), modes)


class _Megatron:
    """Reads an `.idx` in blocks."""

    def __init__(self, source: SourceFile, head: MegatronIndex, per: str, modes: bool) -> None:
        self._source, self._head, self._per, self._modes = source, head, per, modes
        self._item, self._next = np.dtype(head.dtype).itemsize, 0

    def rows(self, where: tuple[int, int], dtype: str) -> Integers:
        return np.frombuffer(self._source.get(TABLE, *where), dtype).astype(np.int64)

    def blocks(self, start: int) -> Iterator[Block]:
        self._next = start
        if self._per == "sequence":
            for low in range(0, self._head.sequences, ROWS):
                high = min(low + ROWS, self._head.sequences)
                yield Block(self._sizes(low, high), self._mode(low, high))
            return
        last = 0
        for low in range(0, self._head.bounds, ROWS):
            high = min(low + ROWS, self._head.bounds)
            bounds = self.rows(self._head.documents(low, high), "<i8")
            self._check_bounds(bounds, low, last)
            if low:
                bounds = np.concatenate(([last], bounds))
            last = int(bounds[-1])
            if self._modes and (np.diff(bounds) != 1).any():
                message = "documents would lose the modes of their sequences"
                hint = "--per sequence (per=) keeps each in a column; --no-modes (modes=False) leaves them out"
                raise UsageError(message, file=self._source.file(TABLE), hint=hint)
            yield Block(np.diff(self._ends(bounds)), self._mode(int(bounds[0]), last))

    def _mode(self, start: int, stop: int) -> NDArray[np.int8] | None:
        if not self._modes:
            return None
        return np.frombuffer(self._source.get(TABLE, *self._head.mode(start, stop)), np.int8)

    def _ends(self, bounds: Integers) -> Integers:
        """Return how many tokens precede each bound, counted from the first bound."""
        found, total, first, last = np.zeros(len(bounds), np.int64), 0, int(bounds[0]), int(bounds[-1])
        for low in range(first, last, ROWS):
            high = min(low + ROWS, last)
            sums = np.concatenate(([0], self._sizes(low, high).cumsum())) + total
            here = slice(*np.searchsorted(bounds, [low, high + (high == last)]).tolist())
            found[here] = sums[bounds[here] - low]
            total = int(sums[-1])
        return found

    def _sizes(self, start: int, stop: int) -> Integers:
        """Return the tokens of sequences, which must follow one another in the file."""
        sizes = self.rows(self._head.sizes(start, stop), "<i4")
        pointers = self.rows(self._head.pointers(start, stop), "<i8")
        if (sizes < 0).any():
            place = f"sequence {start + int((sizes < 0).argmax())}"
            raise CorruptError("a sequence has a negative size", file=self._source.file(TABLE), place=place)
        ends = self._next + self._item * sizes.cumsum()
        expected = np.concatenate(([self._next], ends[:-1]))
        if (wrong := pointers != expected).any():
            first = int(wrong.argmax())
            message = "the sequences do not follow one another in the file of tokens, so it cannot be read in place"
            place, found = f"sequence {start + first}", f"byte {pointers[first]:,}"
            file, byte = self._source.file(TABLE), f"byte {expected[first]:,}"
            raise UnsupportedError(message, file=file, place=place, found=found, expected=byte, hint=_CONVERT)
        if len(ends):
            self._next = int(ends[-1])
        return sizes

    def _check_bounds(self, bounds: Integers, start: int, last: int) -> None:
        """Raise CorruptError unless the bounds from number `start` on ascend from 0 to the number of sequences."""
        head = self._head
        bad = np.diff(bounds, prepend=last) < 0
        if start == 0:
            bad[0] = bounds[0] != 0
        if start + len(bounds) == head.bounds:
            bad[-1] |= bounds[-1] != head.sequences
        bad |= bounds > head.sequences
        if bad.any():
            first = int(bad.argmax())
            place, expected = f"bound {start + first} of documents", "0, then ascending to the number of sequences"
            message, file = "documents do not cover the sequences", self._source.file(TABLE)
            found, expected = int(bounds[first]), f"{expected}, {head.sequences:,}"
            raise CorruptError(message, file=file, place=place, found=found, expected=expected)
