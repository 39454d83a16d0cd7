"""One pass over a token file: find its documents and shards, and write their tables next to the index."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import xxhash
from numpy.typing import NDArray

from mdsx.base.process import REQUESTS, Report, Share
from mdsx.errors import CorruptError, UnsupportedError, UsageError
from mdsx.foreign.tokens import (
    LOSS,
    MAX_DOCUMENT,
    TOKENS,
    Cut,
    IndexedLoss,
    IndexedShard,
    IndexedTokens,
    Shards,
    cut_shards,
    ends_hash,
    ends_of,
)
from mdsx.format import filenames
from mdsx.storage import Entry, Storage, believe
from mdsx.transfer.indexing.tokens.source import Documents, SourceFile, TokensKind, Values

_TABLES = 2**22  # about this many bytes of tables per object
_CHUNK = 2**23  # bytes of a loss file that are read at once


@dataclass(frozen=True, slots=True)
class FoundFile:
    """An indexed file, and how many of its tokens belong to no document."""

    file: IndexedTokens
    dtype: str
    modes: bool
    left_out: int

    @property
    def samples(self) -> int:
        return sum(shard.samples for shard in self.file.shards)


@dataclass(frozen=True, slots=True)
class TokensPass:
    """Indexes files, some at a time. `local`: whether they are on a disk, so that ETags are valid only on this
    machine."""

    storage: Storage
    place: Storage
    kind: TokensKind
    hash: bool
    known: tuple[str, ...]
    """Known facts about endpoints that have answered."""
    local: bool

    def __call__(self, task: Sequence[dict[str, Entry]], report: Report) -> list[FoundFile]:
        believe(self.known)
        reads = self.hash or self.kind.reads_values
        found: list[FoundFile] = []
        samples = size = shards = 0
        done = map(self._index, task) if reads else Share(REQUESTS).map(self._index, task)
        for entries, each in zip(task, done, strict=True):
            found.append(each)
            samples, size = samples + each.samples, size + entries[TOKENS].size
            shards += len(each.file.shards)
            report(task[0][TOKENS].key, samples, size, shards)
        return found

    def _index(self, entries: dict[str, Entry]) -> FoundFile:
        source = SourceFile(self.storage, entries)
        documents = self.kind.open(source)
        hashed = (TOKENS, *([LOSS] if LOSS in entries else [])) if self.hash else ()
        tables = _Tables(self.place, entries[TOKENS].key)
        lengths, shards, tokens = xxhash.xxh3_128(), list[IndexedShard](), 0
        for shard in self._shards(source, documents, hashed, tables, lengths):
            shards.append(shard)
            tokens += shard.tokens
        tables.end()
        entry = entries[TOKENS]
        indexed = IndexedTokens(
            entry.key,
            entry.size,
            "" if self.local else entry.etag,
            documents.start,
            _ends(source, TOKENS),
            lengths.hexdigest(),
            tuple(shards),
            tuple(tables.found),
            self._loss(source),
        )
        return FoundFile(indexed, documents.dtype, documents.modes, documents.tokens - tokens)

    def _loss(self, source: SourceFile) -> IndexedLoss | None:
        if LOSS not in source.entries:
            return None
        entry = source.entries[LOSS]
        return IndexedLoss(entry.key, entry.size, "" if self.local else entry.etag, _ends(source, LOSS))

    def _shards(
        self,
        source: SourceFile,
        documents: Documents,
        hashed: tuple[str, ...],
        tables: _Tables,
        lengths: xxhash.xxh3_128,
    ) -> Iterator[IndexedShard]:
        """Yield the shards of a file, and update the hash of its `lengths`."""
        size = Shards(np.dtype(documents.dtype).itemsize)
        if documents.every is not None:
            lengths.update(f"every {documents.every}\n".encode())
            if not hashed:
                yield from _equal_shards(documents.tokens // documents.every, documents.every, size)
                return
        reached, values = 0, documents.values or Values(source)
        for cut in cut_shards(documents.blocks, size):
            reached += cut.tokens
            self._check(cut, documents, source, reached, size)
            if documents.every is None:
                lengths.update(cut.lengths.astype("<u4").tobytes())
                lengths.update(b"" if cut.modes is None else cut.modes.tobytes())
            table, hashes = cut.table(hashed), list[str]()
            for name in hashed:
                width = size.item_size if name == TOKENS else 1
                first = (documents.start if name == TOKENS else 0) + cut.first * width
                stop = first + cut.tokens * width
                data = values.get(first, stop) if name == TOKENS else _read(source, LOSS, first, stop)
                hashes.append(xxhash.xxh3_128_hexdigest(data))
                table[name][:-1] = _hashes(data, cut.lengths, width)
            values.let_go(documents.start + (cut.first + cut.tokens) * size.item_size)
            yield IndexedShard(len(cut.lengths), cut.tokens, tables.add(table), tuple(hashes))

    def _check(self, cut: Cut, documents: Documents, source: SourceFile, reached: int, size: Shards) -> None:
        """Raise an error unless the documents of a shard are inside the file, and short enough to be values."""
        if reached > documents.tokens:
            message, found = "its documents have more tokens than the file", f"{reached:,} or more"
            raise CorruptError(message, file=source.file(TOKENS), found=found, expected=f"at most {documents.tokens:,}")
        longest = int(cut.lengths.max(initial=0))
        if longest * size.item_size > MAX_DOCUMENT:
            raise UnsupportedError(
                "a document is too long to be one value",
                file=source.file(TOKENS),
                found=f"{longest:,} tokens",
                expected=f"at most {MAX_DOCUMENT // size.item_size:,}",
                hint="index raw tokens with --every L, which makes samples of L tokens",
            )


def _equal_shards(documents: int, every: int, size: Shards) -> Iterator[IndexedShard]:
    if every * size.item_size > MAX_DOCUMENT:
        expected = f"at most {MAX_DOCUMENT // size.item_size:,}"
        raise UsageError("samples of that many tokens are too long", found=every, expected=expected)
    step = size.equal(every)
    for low in range(0, documents, step):
        count = min(step, documents - low)
        yield IndexedShard(count, count * every, "", ())


class _Tables:
    """The objects with the tables of a file."""

    def __init__(self, place: Storage, key: str) -> None:
        self._place, self._key = place, key
        self._pieces: list[bytes] = []
        self.found: list[tuple[str, int]] = []

    def add(self, table: NDArray[np.void]) -> str:
        """Add the next shard's table. Return its hash."""
        self._pieces.append(table.tobytes())
        if sum(map(len, self._pieces)) >= _TABLES:
            self.end()
        found: str = xxhash.xxh3_128_hexdigest(table.tobytes())
        return found

    def end(self) -> None:
        """Store the remaining tables."""
        if self._pieces:
            data = b"".join(self._pieces)
            name = filenames.token_table(self._key, len(self.found), xxhash.xxh3_128_hexdigest(data))
            self._place.put(name, data)
            self.found.append((name, len(self._pieces)))
            self._pieces.clear()


def _ends(source: SourceFile, role: str) -> str:
    return ends_hash([source.get(role, *each) for each in ends_of(source.size(role))])


def _read(source: SourceFile, role: str, start: int, stop: int) -> bytearray:
    found = bytearray()
    for low in range(start, stop, _CHUNK):
        found += source.get(role, low, min(low + _CHUNK, stop))
    return found


def _hashes(data: bytearray, lengths: NDArray[np.int64], width: int) -> NDArray[np.uint64]:
    """Return the XXH3-64 of each document. `data` has the documents' bytes one after the other."""
    view = memoryview(data)
    ends = (lengths.cumsum() * width).tolist()
    digests = b"".join(map(xxhash.xxh3_64_digest, map(view.__getitem__, map(slice, [0, *ends[:-1]], ends))))
    return np.frombuffer(digests, ">u8").astype(np.uint64)
