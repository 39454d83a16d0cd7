"""Files of datatrove's tokenizer: `.ds.index` has the end of each document, in tokens, as `<u8`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mdsx.errors import CorruptError
from mdsx.foreign.tokens import LOSS, TOKENS, Block, item_size_of
from mdsx.transfer.indexing.tokens.source import ROWS, TABLE, Documents, Integers, SourceFile


@dataclass(frozen=True)
class DatatroveKind:
    """Files of datatrove's tokenizer: `.ds`, with `.ds.index` and maybe `.ds.loss`."""

    name: ClassVar[str] = "datatrove"
    suffixes: ClassVar[tuple[str, ...]] = (".ds",)
    reads_values: ClassVar[bool] = False

    def beside(self, key: str) -> dict[str, str]:
        return {TABLE: f"{key}.index", LOSS: f"{key}.loss"}

    def open(self, source: SourceFile) -> Documents:
        size, file = source.size(TABLE), source.file(TABLE)
        documents, rest = divmod(size, 8)
        if rest:
            message = "the file is not a list of the ends of documents"
            raise CorruptError(message, file=file, found=f"{size:,} bytes", expected="8 bytes for each")
        tokens = int(_ends(source, documents - 1, documents)[0]) if documents else 0
        total = source.size(TOKENS)
        if not 0 <= tokens <= total:
            found = f"{tokens:,} tokens, and {total:,} bytes of tokens"
            raise CorruptError("the list of the ends of documents is damaged", file=file, found=found)
        item = item_size_of(total, tokens, file=source.file(TOKENS))
        if LOSS in source.entries and source.size(LOSS) != tokens:
            message, found = "the file does not have one byte per token", f"{source.size(LOSS):,} bytes"
            raise CorruptError(message, file=source.file(LOSS), found=found, expected=f"{tokens:,}")
        return Documents(f"uint{8 * item}", 0, tokens, self._blocks(source, documents))

    def _blocks(self, source: SourceFile, documents: int) -> Iterator[Block]:
        last = 0
        for low in range(0, documents, ROWS):
            ends = _ends(source, low, min(low + ROWS, documents))
            lengths = np.diff(ends, prepend=last)
            if (lengths < 0).any():
                place = f"document {low + int((lengths < 0).argmax())}"
                raise CorruptError("the ends of documents do not ascend", file=source.file(TABLE), place=place)
            last = int(ends[-1])
            yield Block(lengths)


def _ends(source: SourceFile, start: int, stop: int) -> Integers:
    return np.frombuffer(source.get(TABLE, 8 * start, 8 * stop), "<i8")
