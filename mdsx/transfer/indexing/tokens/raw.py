"""Raw arrays of tokens: cut by a separator, by the `.csv.gz` of dolma, or into samples of one length."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from mdsx.base.decompress import gunzip
from mdsx.errors import CorruptError, UnsupportedError, UsageError, restated
from mdsx.foreign.tokens import TOKENS, Block, RawHeader, read_raw_header
from mdsx.transfer.indexing.tokens.source import ROWS, TABLE, VALUES, Documents, SourceFile, Values

_LINE = 2**16  # bytes of a line, and of a header
_GZIP = 2**20  # bytes of a .csv.gz that are read at once


@dataclass(frozen=True)
class RawKind:
    """Raw arrays of tokens. Exactly one of the last three fields determines where documents are."""

    dtype: str | None
    separator: int | None = None
    csv: bool = False
    every: int | None = None
    name: ClassVar[str] = "tokens"
    suffixes: ClassVar[tuple[str, ...]] = (".npy", ".bin")

    @property
    def reads_values(self) -> bool:
        return self.separator is not None

    def beside(self, key: str) -> dict[str, str]:
        return {TABLE: f"{key.removesuffix('.npy').removesuffix('.bin')}.csv.gz"} if self.csv else {}

    def open(self, source: SourceFile) -> Documents:
        size, file = source.size(TOKENS), source.file(TOKENS)
        head = read_raw_header(source.get(TOKENS, 0, min(size, _LINE)), size=size, dtype=self.dtype, file=file)
        found = partial(Documents, head.dtype, head.start, head.tokens)
        if self.every is not None:
            return found(_equal(head.tokens // self.every, self.every), every=self.every)
        if self.csv:
            return found(_of_csv(source, head.tokens))
        assert self.separator is not None
        limits = np.iinfo(head.dtype) if np.dtype(head.dtype).kind in "iu" else None
        if limits is None or not limits.min <= self.separator <= limits.max:
            message = "no token of this type is the separator"
            raise UsageError(message, file=file, found=self.separator, expected=head.dtype)
        values = Values(source)
        return found(_separated(values, head, self.separator), values=values)


def _equal(documents: int, every: int) -> Iterator[Block]:
    for low in range(0, documents, ROWS):
        yield Block(np.full(min(ROWS, documents - low), every, np.int64))


def _separated(values: Values, head: RawHeader, separator: int) -> Iterator[Block]:
    """Yield the documents that end with a separator, and the tokens after the last one."""
    item, before = np.dtype(head.dtype).itemsize, 0
    step = VALUES // item
    for low in range(0, head.tokens, step):
        high = min(low + step, head.tokens)
        tokens = np.frombuffer(values.read(head.start + low * item, head.start + high * item), head.dtype)
        ends = np.flatnonzero(tokens == separator) + low + 1
        if len(ends):
            yield Block(np.diff(ends, prepend=before))
            before = int(ends[-1])
    if before < head.tokens:
        yield Block(np.array([head.tokens - before], np.int64))


def _of_csv(source: SourceFile, tokens: int) -> Iterator[Block]:
    """Yield the documents of a `.csv.gz`, whose lines begin with the start and stop of each document."""
    file, last, lengths = source.file(TABLE), 0, list[int]()
    for number, text in enumerate(_lines(source, file), 1):
        place, fields = f"line {number}", text.split(b",", 2)
        try:
            start, stop = int(fields[0]), int(fields[1])
        except (IndexError, ValueError):
            message, expected = "the line does not locate a document", "its start and stop, such as 0,1024"
            raise CorruptError(message, file=file, place=place, found=repr(text[:40]), expected=expected) from None
        if not start < stop <= tokens:
            message, found = "the document is not in the file", f"tokens {start} to {stop}"
            expected = f"one or more, within {tokens:,}"
            raise CorruptError(message, file=file, place=place, found=found, expected=expected)
        if start != last:
            message = "the documents are not contiguous, so they cannot be read in place"
            hint = "cut the files by --separator, or at --every L tokens"
            raise UnsupportedError(message, file=file, place=place, found=start, expected=last, hint=hint)
        lengths.append(stop - start)
        last = stop
        if len(lengths) == ROWS:
            yield Block(np.array(lengths, np.int64))
            lengths.clear()
    yield Block(np.array(lengths, np.int64))


def _lines(source: SourceFile, file: str) -> Iterator[bytes]:
    """Yield the lines of a gzip file, in bounded memory."""
    size, rest = source.size(TABLE), b""
    chunks = (source.get(TABLE, low, min(low + _GZIP, size)) for low in range(0, size, _GZIP))
    try:
        for piece in gunzip(chunks):
            *lines, rest = (rest + piece).split(b"\n")
            if len(rest) > _LINE:
                raise CorruptError("a line is too long", expected=f"at most {_LINE} bytes")
            yield from (line for line in lines if line.strip())
    except CorruptError as error:
        raise restated(error, file=file) from None
    if rest.strip():
        yield rest
