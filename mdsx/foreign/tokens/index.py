"""An index of token files as a stored format: a shard is a range of a file's documents, with their losses.

The files are read unchanged: mapped in place, cached shard by shard, or read by range, document by document. Their
bytes are checked if the index has hashes. A file's size and its ends identify it as the one that was indexed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import xxhash
from numpy.typing import NDArray

from mdsx.base.cached import cached_property
from mdsx.errors import ChangedError, CorruptError
from mdsx.foreign.checks import MOST_PROBLEMS, TRAILER, check_trailer
from mdsx.foreign.tokens.decode import TokensDecoder
from mdsx.foreign.tokens.headers import ends_hash, ends_of
from mdsx.foreign.tokens.layout import LOSS, MODE, TOKENS, TokensLayout
from mdsx.foreign.tokens.parsed import Files, Parsed, parse_text, recognizes
from mdsx.foreign.tokens.shard import TokensShard, table_lengths
from mdsx.foreign.tokens.stored_bytes import TokensRanges, TokensReceiver
from mdsx.foreign.tokens.tables import equal_table, parse_table
from mdsx.foreign.tokens.text import AGAIN, INDEX_KEY
from mdsx.format import (
    EstimatesLengths,
    Extent,
    NeedsSideObjects,
    ProjectsColumns,
    Reading,
    ReadsExtents,
    ReadsLengths,
    ReadsSamples,
    Schema,
    SideObject,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

_VERSION = b"mdsx-tokens 1\n"


class TokensFormat:
    """Token files that `mdsx index` has indexed."""

    name = "tokens"
    index_key = INDEX_KEY
    files: ClassVar[dict[str, str]] = {
        "idx|bin": "make an index: of Megatron's files (.bin with .idx) with `mdsx index megatron {url}`, of other "
        "files of tokens with `mdsx index tokens {url} --dtype uint16`",
        r"ds(?:\.index|\.loss|\.metadata)?": "make an index of datatrove's files with `mdsx index datatrove {url}`",
        "npy": "if they are arrays of tokens, make an index of them with `mdsx index tokens {url} --dtype uint16`",
    }

    def recognizes(self, data: bytes) -> bool:
        return recognizes(data)

    def parse_index(self, data: bytes, *, file: str) -> TokensIndex:
        parsed = parse_text(data, file=file)
        kind = EqualIndex if parsed.tables is None else TabledIndex if parsed.loss is None else LossIndex
        return kind(parsed, layout_of(parsed, range(len(parsed.schema.columns))), file)


def layout_of(parsed: Parsed, columns: Sequence[int]) -> TokensLayout:
    """Return the layout of shards with only these columns."""
    schema = Schema(tuple(parsed.schema.columns[number] for number in columns))
    names = [column.name for column in schema.columns]
    widths = {TOKENS: parsed.item, LOSS: 1}
    heap = tuple((name, width) for name, width in widths.items() if name in names)
    return TokensLayout(schema, heap or ((TOKENS, widths[TOKENS]),), parsed.record, parsed.every)


@dataclass(frozen=True, eq=False)
class TokensIndex(ReadsExtents, ReadsSamples, ReadsLengths, EstimatesLengths):
    """A parsed index of token files, and how their bytes become documents. See `StoredIndex`. `_table`: the table of
    one shard, once it is known."""

    _parsed: Parsed
    layout: TokensLayout
    _file: str
    _table: tuple[int, NDArray[np.void]] | None = None

    format: ClassVar[str] = TokensFormat.name
    compression: ClassVar[None] = None

    @property
    def schema(self) -> Schema:
        return self.layout.schema

    @property
    def samples(self) -> int:
        return int(self.counts.sum())

    @property
    def counts(self) -> NDArray[np.int64]:
        return self._parsed.counts

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        return self._parsed.tokens * self.layout.stride

    @cached_property
    def raw_sizes(self) -> NDArray[np.int64]:
        return self.sizes + TRAILER

    @cached_property
    def raw_hashes(self) -> NDArray[np.uint8]:
        """Return hashes of the index's place, its entry for the file, and the shard's number: without hashes of their
        bytes, files with equal ends may differ."""
        parsed, place = self._parsed, self._file.encode(errors="surrogateescape")
        columns = "".join(f"{name}\n" for name, _ in self.layout.heap).encode()
        seed = xxhash.xxh3_128_digest(self.fingerprint.encode() + columns + repr(parsed.files.etags).encode() + place)
        found = np.broadcast_to(np.frombuffer(seed, "<u8"), (len(self.counts), 2)).copy()
        found[:, 0] += np.arange(len(found)).astype(np.uint64)
        if parsed.hashes:
            for name, _ in self.layout.heap:
                found[:, 1] ^= parsed.hashes[name].view("<u8")[:, 0]
        return found.view(np.uint8)

    @cached_property
    def fingerprint(self) -> str:
        """Return a hash that is the same for the same files under other names, in other storages, and with or without
        hashes of the bytes."""
        parsed = self._parsed
        hasher = xxhash.xxh3_128(_VERSION + parsed.schema.json)
        for array in (
            parsed.files.sizes,
            parsed.starts,
            parsed.files.ends,
            parsed.lengths,
            parsed.homes,
            parsed.counts,
            parsed.tokens,
        ):
            hasher.update(np.ascontiguousarray(array).tobytes())
        if parsed.loss is not None:
            hasher.update(parsed.loss.sizes.tobytes())
            hasher.update(parsed.loss.ends.tobytes())
        found: str = hasher.hexdigest()
        return found

    @property
    def checks(self) -> str:
        ends = "sizes, and the first and last 64 KiB of files"
        return f"XXH3-64 of documents, XXH3-128 of shards; {ends}" if self._parsed.hashes else f"only {ends}"

    @property
    def metadata(self) -> dict[str, Any]:
        parsed = self._parsed
        return {"tokens": {"kind": parsed.kind, "files": len(parsed.files.names), "tokens": int(parsed.tokens.sum())}}

    @property
    def tokens(self) -> int:
        """Return the number of tokens in all documents."""
        return int(self._parsed.tokens.sum())

    @property
    def names(self) -> tuple[str, ...]:
        """Return the keys of the files."""
        return self._parsed.files.names

    @property
    def table_names(self) -> tuple[str, ...]:
        """Return the keys of the objects with tables."""
        return () if self._parsed.tables is None else self._parsed.tables.names

    def name(self, shard: int) -> str:
        return self.extents(shard)[0].name

    # --- extents

    def extents(self, shard: int) -> list[Extent]:
        parsed = self._parsed
        if not 0 <= shard < len(parsed.counts):
            raise IndexError(shard)
        home, first, tokens = int(parsed.homes[shard]), int(parsed.firsts[shard]), int(parsed.tokens[shard])
        found = []
        for name, width in self.layout.heap:
            files, start = self._files(name), int(parsed.starts[home]) if name == TOKENS else 0
            begin = start + first * width
            stop, size = begin + tokens * width, int(files.sizes[home])
            found.append(Extent(files.names[home], size, begin, stop, files.etags[home]))
        return found

    def identify(self, shard: int, extent: int, *, file: str) -> Reading[None]:
        files, home = self._files(self.layout.heap[extent][0]), int(self._parsed.homes[shard])
        expected, found = bytes(files.ends[home]).hex(), ""
        for _ in range(2):  # the first bytes may have been damaged in transfer
            parts = yield ends_of(int(files.sizes[home]))
            if (found := ends_hash(parts)) == expected:
                return
        message, place = "the file is not the one that was indexed", "first and last 64 KiB"
        raise ChangedError(message, file=file, place=place, found=found, expected=expected, hint=AGAIN)

    def _files(self, name: str) -> Files:
        if name == TOKENS:
            return self._parsed.files
        assert self._parsed.loss is not None
        return self._parsed.loss

    def receive_extents(self, shard: int, *, file: str) -> TokensReceiver:
        tokens, hashes = int(self._parsed.tokens[shard]), self._parsed.hashes
        parts = [(tokens * width, bytes(hashes[name][shard]) if hashes else None) for name, width in self.layout.heap]
        return TokensReceiver(parts, name=bytes(self.raw_hashes[shard]), file=file)

    # --- tables

    def table(self, shard: int) -> NDArray[np.void]:
        """Return the table of a shard, which must be known."""
        number, table = self._table or (-1, None)
        assert table is not None
        assert number == shard
        return table

    # --- shards

    def open(self, shard: int, raw: Buffer, *, file: str) -> TokensShard:
        tokens = int(self._parsed.tokens[shard])
        return TokensShard.parse(raw, self.layout, self.table(shard), tokens=tokens, file=file)

    def verify(self, shard: int, opened: TokensShard, *, file: str) -> None:
        """Check a shard: in the cache, by the hash after it; in place, by the hashes in the index, if there are any."""
        if opened.trailer is not None:
            name, message = bytes(self.raw_hashes[shard]), "the shard was damaged in the cache"
            check_trailer(opened.trailer, name, opened.buffer, message=message, file=file)
            return
        receiver = self.receive_extents(shard, file=file)
        try:
            for _ in receiver.feed(opened.buffer):
                pass
            receiver.finish()
        except CorruptError:
            for problem in opened.problems():
                raise problem from None
            raise

    def check(self, shard: int, raw: Buffer, *, file: str) -> Sequence[CorruptError]:
        return [*islice(self.open(shard, raw, file=file).problems(), MOST_PROBLEMS)]

    def has_ranges(self, shard: int) -> bool:
        return True

    def by_range(self, shard: int, *, file: str) -> TokensRanges:
        tokens = int(self._parsed.tokens[shard])
        return TokensRanges(self.layout, self.table(shard), tokens=tokens, file=file)

    def read_lengths(self, shard: int, column: int, *, file: str) -> Reading[NDArray[np.int64]] | None:
        """Read lengths from the table, without reading the file."""
        if self.schema.columns[column].name == MODE:
            return None
        return self._lengths(shard, file)

    def _lengths(self, shard: int, file: str) -> Reading[NDArray[np.int64]]:
        yield from ()
        return table_lengths(self.table(shard), file=file)

    def mean_length(self, column: int) -> Fraction | None:
        total = self.total_length(column)
        return None if total is None else Fraction(total, max(self.samples, 1))

    def total_length(self, column: int) -> int | None:
        return None if self.schema.columns[column].name == MODE else self.tokens

    def decoder(self, columns: Mapping[str, int]) -> TokensDecoder:
        return TokensDecoder(self.layout, columns)


class EqualIndex(TokensIndex):
    """An index of files whose documents all have the same number of tokens, so that it needs no tables."""

    def table(self, shard: int) -> NDArray[np.void]:
        assert self.layout.every is not None
        return equal_table(self.layout.record, int(self.counts[shard]), self.layout.every)


class TabledIndex(TokensIndex, NeedsSideObjects):
    """An index with tables of documents."""

    def side_object(self, shard: int) -> SideObject:
        tables = self._parsed.tables
        assert tables is not None
        home, size = int(tables.homes[shard]), (int(self.counts[shard]) + 1) * self._parsed.record.itemsize
        start, total = int(tables.starts[shard]), int(tables.sizes[home])
        return SideObject(tables.names[home], size, bytes(tables.hashes[shard]).hex(), start, total)

    def with_side_object(self, shard: int, data: Buffer, *, file: str) -> TabledIndex:
        documents, tokens = int(self.counts[shard]), int(self._parsed.tokens[shard])
        table = parse_table(data, self._parsed.record, documents=documents, tokens=tokens, file=file)
        return replace(self, _table=(shard, table))


class LossIndex(TabledIndex, ProjectsColumns):
    """An index with files of losses, which are read only if their column is."""

    def project(self, columns: Sequence[int]) -> LossIndex:
        names = [column.name for column in self._parsed.schema.columns]
        numbers = [names.index(self.schema.columns[number].name) for number in columns]
        return replace(self, layout=layout_of(self._parsed, numbers), _table=None)
