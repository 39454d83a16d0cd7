"""Parse the text of `_mdsx-tokens.json`, which `text.py` specifies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from mdsx.errors import UnsupportedError
from mdsx.foreign.tokens.documents import MAX_DOCUMENTS
from mdsx.foreign.tokens.layout import LOSS, LOSS_TYPE, MODE, MODE_TYPE, TOKENS
from mdsx.foreign.tokens.tables import record_dtype
from mdsx.foreign.tokens.text import AGAIN, KINDS, VERSION, is_key
from mdsx.format import MAX_SHARDS, FileIndexParser, Schema, filenames

_Number = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
_Documents = Annotated[int, msgspec.Meta(ge=1, le=MAX_DOCUMENTS)]
_Tokens = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
_Some = Annotated[int, msgspec.Meta(ge=0, le=MAX_SHARDS)]


class _Column(msgspec.Struct):
    name: str
    type: str


class _Files(msgspec.Struct):
    name: list[str]
    size: list[_Number]
    etag: list[str]
    start: list[_Number]
    ends: str
    lengths: str
    shards: list[_Some]
    tables: list[_Some]


class _Loss(msgspec.Struct):
    name: list[str]
    size: list[_Number]
    etag: list[str]
    ends: str


class _Shards(msgspec.Struct):
    samples: list[_Documents]
    tokens: list[_Tokens]
    table: str
    hashes: dict[str, str]


class _Tables(msgspec.Struct):
    name: list[str]
    shards: list[_Some]


class _Root(msgspec.Struct):
    kind: str
    columns: list[_Column]
    samples: _Number
    files: _Files
    loss: _Loss | None
    shards: _Shards
    tables: _Tables


_ROOT = msgspec.json.Decoder(_Root)  # prepared here, because msgspec crashes if two threads do so at once


@dataclass(frozen=True, slots=True, eq=False)
class Files:
    """F files: their keys, ETags, sizes (int64 [F]), and the hashes of their ends (uint8 [F, 16])."""

    names: tuple[str, ...]
    etags: tuple[str, ...]
    sizes: NDArray[np.int64]
    ends: NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """T objects with tables: their keys and sizes (int64 [T]); for each of S shards, the object and the offset of its
    table (int64 [S] both); the hash of each table (uint8 [S, 16])."""

    names: tuple[str, ...]
    sizes: NDArray[np.int64]
    homes: NDArray[np.int64]
    starts: NDArray[np.int64]
    hashes: NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class Parsed:
    """A parsed index of F files and S shards. `every`: the tokens of each document, if all have the same number."""

    kind: str
    schema: Schema
    every: int | None
    record: np.dtype[np.void]
    files: Files
    starts: NDArray[np.int64]
    """int64 [F]: the byte at which the tokens of each file begin."""
    lengths: NDArray[np.uint8]
    """uint8 [F, 16]"""
    loss: Files | None
    homes: NDArray[np.int64]
    """int64 [S]: the file of each shard."""
    counts: NDArray[np.int64]
    tokens: NDArray[np.int64]
    firsts: NDArray[np.int64]
    """int64 [S]: the number of each shard's first token in its file."""
    hashes: dict[str, NDArray[np.uint8]]
    """Column -> uint8 [S, 16]"""
    tables: Tables | None

    @property
    def item(self) -> int:
        """Return the bytes of a token."""
        return self.schema.columns[0].type.item_dtype.itemsize


def recognizes(data: bytes) -> bool:
    """Return whether this is an index of token files, even a damaged one."""
    return data.startswith(b'{"format":"mdsx-tokens"')


def parse_text(data: bytes, *, file: str | None = None) -> Parsed:
    """Parse the text of an index. Raise CorruptError or UnsupportedError."""
    return _Parser(file).parse(data)


class _Parser(FileIndexParser):
    FORMAT, VERSION, FILES, AGAIN = "mdsx-tokens", VERSION, "token files", AGAIN

    def parse(self, data: bytes) -> Parsed:
        root = self._decode(data, _ROOT)
        files, shards = root.files, root.shards
        if root.kind not in KINDS:
            message, hint = "this version does not know this kind of token files", f"upgrade mdsx, or {AGAIN}"
            raise UnsupportedError(message, file=self._file, place="kind", found=root.kind[:40], hint=hint)
        schema = Schema.from_pairs(((column.name, column.type) for column in root.columns), file=self._file)
        every = self._every(schema, root.loss is not None)
        for name in ("size", "etag", "start", "shards", "tables"):
            self._same(len(getattr(files, name)), len(files.name), f"files.{name}")
        self._check_names([*files.name, *(root.loss.name if root.loss else ())], "files.name")
        count = len(shards.samples)
        self._expect(count <= MAX_SHARDS, "shards.samples", count, f"at most {MAX_SHARDS}")
        self._same(len(shards.tokens), count, "shards.tokens")
        self._same(sum(files.shards), count, "files.shards")
        self._same(sum(shards.samples), root.samples, "samples")
        self._expect(sum(files.size) <= 2**62, "files.size", sum(files.size), "at most 2^62")
        counts, tokens = np.array(shards.samples, np.int64), np.array(shards.tokens, np.int64)
        if every is not None:
            self._expect(bool((tokens == counts * every).all()), "shards.tokens", "other tokens than samples", None)
        homes = np.repeat(np.arange(len(files.name)), files.shards)
        sizes, starts = np.array(files.size, np.int64), np.array(files.start, np.int64)
        before = np.concatenate((np.zeros(1, np.int64), tokens.cumsum()))
        edges = np.concatenate((np.zeros(1, np.int64), np.cumsum(files.shards, dtype=np.int64)))
        of_files = before[edges[1:]] - before[edges[:-1]]
        item = schema.columns[0].type.item_dtype.itemsize
        self._expect(bool((starts <= sizes).all()), "files.start", "a start outside of its file", None)
        fits = of_files <= (sizes - starts) // item
        self._expect(bool(fits.all()), "shards.tokens", "more tokens than their file has", None)
        hashes = {name: self._hashes(text, count, f"shards.hashes.{name}") for name, text in shards.hashes.items()}
        hashed = tuple(name for name in (TOKENS, *([LOSS] if root.loss else [])) if hashes)
        self._expect(set(hashes) == set(hashed), "shards.hashes", ", ".join(hashes)[:80], ", ".join(hashed))
        record = record_dtype(modes=MODE in [column.name for column in schema.columns], hashed=hashed)
        for numbers in (counts, tokens, homes, sizes, starts):
            numbers.setflags(write=False)
        return Parsed(
            kind=root.kind,
            schema=schema,
            every=every,
            record=record,
            files=Files(
                tuple(files.name), tuple(files.etag), sizes, self._hashes(files.ends, len(files.name), "files.ends")
            ),
            starts=starts,
            lengths=self._hashes(files.lengths, len(files.name), "files.lengths"),
            loss=self._loss(root.loss, of_files),
            homes=homes,
            counts=counts,
            tokens=tokens,
            firsts=before[:-1] - np.repeat(before[edges[:-1]], files.shards),
            hashes=hashes,
            tables=self._tables(root, counts, record, every),
        )

    def _every(self, schema: Schema, loss: bool) -> int | None:
        """Check the columns. Return the tokens of each document, if the column has a fixed size."""
        names = [column.name for column in schema.columns]
        expected = [TOKENS, *([LOSS] if loss else []), *([MODE] if MODE in names else [])]
        self._expect(names == expected, "columns", ", ".join(names)[:80], ", ".join(expected))
        first, *others = schema.columns
        right = first.type.known and first.type.scalar and not first.type.nullable and not first.type.number.minor
        right = right and first.type.shape is not None and len(first.type.shape) == 1
        self._expect(right, "columns", str(first.type)[:80], "an array of numbers of one dimension")
        for column in others:
            kind = MODE_TYPE if column.name == MODE else LOSS_TYPE
            self._expect(column.type == kind, "columns", str(column.type)[:80], str(kind))
        assert first.type.shape is not None
        every = first.type.shape[0]
        self._expect(every is None or (every > 0 and len(names) == 1), "columns", str(first.type), "no other columns")
        return every

    def _loss(self, loss: _Loss | None, tokens: NDArray[np.int64]) -> Files | None:
        if loss is None:
            return None
        count = len(tokens)
        for name in ("name", "size", "etag"):
            self._same(len(getattr(loss, name)), count, f"loss.{name}")
        self._expect(sum(loss.size) <= 2**62, "loss.size", sum(loss.size), "at most 2^62")
        sizes = np.array(loss.size, np.int64)
        self._expect(bool((tokens <= sizes).all()), "loss.size", "fewer bytes than tokens", None)
        return Files(tuple(loss.name), tuple(loss.etag), sizes, self._hashes(loss.ends, count, "loss.ends"))

    def _tables(
        self, root: _Root, counts: NDArray[np.int64], record: np.dtype[np.void], every: int | None
    ) -> Tables | None:
        tables, of_shards = root.tables, root.shards.table
        self._same(len(tables.shards), len(tables.name), "tables.shards")
        self._same(sum(root.files.tables), len(tables.name), "files.tables")
        if every is not None and not tables.name and not root.shards.hashes:
            self._same(len(of_shards), 0, "shards.table")
            return None
        self._same(sum(tables.shards), len(counts), "tables.shards")
        self._expect(len(set(tables.name)) == len(tables.name), "tables.name", "a name twice", None)
        for name in tables.name:
            if not filenames.is_token_table(name):
                raise self._error("not the name of a table of documents", "tables.name", repr(name[:200]))
        sizes = (counts + 1) * record.itemsize
        ends = np.concatenate((np.zeros(1, np.int64), sizes.cumsum()))
        edges = np.concatenate((np.zeros(1, np.int64), np.cumsum(tables.shards, dtype=np.int64)))
        starts = ends[:-1] - np.repeat(ends[edges[:-1]], tables.shards)
        return Tables(
            names=tuple(tables.name),
            sizes=ends[edges[1:]] - ends[edges[:-1]],
            homes=np.repeat(np.arange(len(tables.name)), tables.shards),
            starts=starts,
            hashes=self._hashes(of_shards, len(counts), "shards.table"),
        )

    def _same(self, found: int, expected: int, place: str) -> None:
        self._expect(found == expected, place, found, expected)

    def _is_key(self, name: str) -> bool:
        return is_key(name)
