"""JSON lines stored in other ways: compressed, with single samples by range, and packed into one object.

So tests have each way of reading a shard, and sizes that are only known when a shard was read.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import msgspec
import numpy as np
import xxhash
from numpy.typing import NDArray

from mdsx.errors import CorruptError
from mdsx.format import Reading, Schema, Selection
from tests.shards.formats.json_lines import (
    LinesIndex,
    LinesReceiver,
    LinesShard,
    Size,
    check_hash,
    schema_of,
    selection,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

TABLE = np.dtype([("stop", "<u8"), ("hash", "<u8")])
Hash = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]


class Entry(msgspec.Struct, forbid_unknown_fields=True):
    """A shard: number i of ranged and compressed ones is the object `i.lines`; packed ones follow each other."""

    samples: Size
    size: Size
    raw_size: Size
    hash: Hash
    table: Hash


class Fields(msgspec.Struct, forbid_unknown_fields=True):
    format: Literal["more lines"]
    kind: Literal["compressed", "ranged", "packed"]
    columns: dict[str, str]
    shards: list[Entry]


FIELDS = msgspec.json.Decoder(Fields)


class MoreFormat:
    name = "more lines"
    index_key = "more.json"
    files: ClassVar[Mapping[str, str]] = {}

    def recognizes(self, data: bytes) -> bool:
        return data.startswith(b'{"format":"more lines"')

    def parse_index(self, data: bytes, *, file: str) -> LinesIndex:
        try:
            found = FIELDS.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise CorruptError(f"the index is damaged: {error}", file=file) from None
        sizes = np.array([shard.size for shard in found.shards], np.int64)
        raw_sizes = np.array([shard.raw_size for shard in found.shards], np.int64)
        counts = np.array([shard.samples for shard in found.shards], np.int64)
        if (2 * counts > raw_sizes).any() or (raw_sizes > 2000 * sizes).any():
            raise CorruptError("a shard has no room for its samples", file=file)
        if found.kind == "ranged" and (raw_sizes != sizes).any():
            raise CorruptError("the raw size of a shard differs from its size", file=file)
        return KINDS[found.kind](
            schema=schema_of(found.columns, file),
            names=[f"{number}.lines" for number in range(len(sizes))],
            counts=counts,
            sizes=sizes,
            raw_hashes=_hashes(shard.hash for shard in found.shards),
            fingerprint=xxhash.xxh3_128_hexdigest(data),
            lines_sizes=raw_sizes,
            tables=_hashes(shard.table for shard in found.shards),
        )


def _hashes(digits: Iterable[str]) -> NDArray[np.uint8]:
    return np.frombuffer(bytes.fromhex("".join(digits)), np.uint8).reshape(-1, 16)


@dataclass(frozen=True, eq=False)
class MoreIndex(LinesIndex):
    lines_sizes: NDArray[np.int64]
    tables: NDArray[np.uint8]
    format: ClassVar[str] = MoreFormat.name

    @property
    def raw_sizes(self) -> NDArray[np.int64]:
        return self.lines_sizes


# --- compressed


class CompressedIndex(MoreIndex):
    compression: ClassVar[str | None] = "zlib"

    def receive(self, shard: int, *, file: str) -> CompressedReceiver:
        return CompressedReceiver(self.raw_hash(shard), file, int(self.raw_sizes[shard]))


class CompressedReceiver(LinesReceiver):
    def __init__(self, expected: str, file: str, raw_size: int) -> None:
        super().__init__(expected, file)
        self._unpack, self._left = zlib.decompressobj(), raw_size

    def feed(self, chunk: Buffer) -> Iterator[Buffer]:
        try:
            raw = self._unpack.decompress(chunk, self._left + 1)  # a few bytes may claim to be gigabytes
        except zlib.error as error:
            raise CorruptError(f"the shard is damaged: {error}", file=self._file) from None
        self._left -= len(raw)
        if self._left < 0 or self._unpack.unused_data:
            raise CorruptError("the shard is longer than the index says", file=self._file)
        yield from super().feed(raw)

    def finish(self) -> None:
        if not self._unpack.eof:
            raise CorruptError("the shard ends too early", file=self._file)
        super().finish()


# --- ranged


class RangedIndex(MoreIndex):
    """A shard begins with a table: for each line, where it stops, counted from the table's end, and its XXH3-64."""

    checks: ClassVar[str] = "XXH3-64 of lines, XXH3-128 of shards"

    def has_ranges(self, shard: int) -> bool:
        return True

    def open(self, shard: int, raw: Buffer, *, file: str) -> LinesShard:
        opened = super().open(shard, raw, file=file)
        table = opened.buffer[: opened.samples * TABLE.itemsize]  # its hash shows that this is no other shard
        check_hash(xxhash.xxh3_128_hexdigest(table), bytes(self.tables[shard]).hex(), file)
        return RangedShard(opened.buffer, opened.samples, opened.schema, opened.file)

    def by_range(self, shard: int, *, file: str) -> LinesRanges:
        count, size = int(self.counts[shard]), int(self.sizes[shard])
        return LinesRanges(self.schema, count, size, bytes(self.tables[shard]).hex(), file)


class RangedShard(LinesShard):
    checks_samples: ClassVar[bool] = True
    checks_cheaply: ClassVar[bool] = True

    def select(self, samples: NDArray[np.int64], *, verify: bool) -> Selection:
        table = np.frombuffer(self.buffer[: self.samples * TABLE.itemsize], TABLE)
        start = table.nbytes
        bounds = [*extents(table, len(self.buffer), self.file)]
        lines = [bytes(self.buffer[start + low : start + high]) for low, high in map(bounds.__getitem__, samples)]
        return selection(self.schema, self.file, samples, checked(table["hash"][samples], lines, self.file))


class LinesRanges:
    def __init__(self, schema: Schema, count: int, size: int, table_hash: str, file: str) -> None:
        self._schema, self._count, self._size, self._hash, self._file = schema, count, size, table_hash, file
        self._table: NDArray[np.void] | None = None

    def check(self) -> Reading[None]:
        yield from self._read_table()

    def select(self, samples: NDArray[np.int64]) -> Reading[Selection]:
        table = yield from self._read_table()
        start, bounds = table.nbytes, [*extents(table, self._size, self._file)]
        lines = yield [(start + bounds[sample][0], start + bounds[sample][1]) for sample in samples.tolist()]
        found = checked(table["hash"][samples], map(bytes, lines), self._file)
        return selection(self._schema, self._file, samples, found)

    def _read_table(self) -> Reading[NDArray[np.void]]:
        if self._table is None:
            (data,) = yield [(0, self._count * TABLE.itemsize)]
            check_hash(xxhash.xxh3_128_hexdigest(data), self._hash, self._file)
            self._table = np.frombuffer(bytes(data), TABLE)
        return self._table


def extents(table: NDArray[np.void], size: int, file: str) -> Iterator[tuple[int, int]]:
    """Yield where each line is, from the table's end on."""
    start = 0
    for stop in table["stop"].tolist():
        if not start <= stop <= size - table.nbytes:
            raise CorruptError("a line is not within its shard", file=file, found=stop)
        yield start, stop
        start = stop


def checked(hashes: NDArray[np.uint64], lines: Iterable[bytes], file: str) -> Iterator[bytes]:
    for expected, line in zip(hashes.tolist(), lines, strict=True):
        if xxhash.xxh3_64_intdigest(line) != expected:
            raise CorruptError("a line does not match its checksum", file=file)
        yield line


# --- packed


class PackedIndex(MoreIndex):
    """All shards are in `0.lines`, each zlib-compressed. In the cache, the lines follow the XXH3-128 of
    themselves and the shard's hash, so that no damaged file is read, nor that of another shard."""

    checks: ClassVar[str] = "XXH3-128 of parts"
    compression: ClassVar[str | None] = "zlib"

    def name(self, shard: int) -> str:
        return self.names[0]

    def object_size(self, shard: int) -> int:
        return int(self.sizes.sum())

    def read_part(self, shard: int, *, file: str) -> Reading[Sequence[Buffer]]:
        start, stop = int(self.sizes[:shard].sum()), int(self.sizes[: shard + 1].sum())
        (stored,) = yield [(start, stop)]
        if xxhash.xxh3_128_hexdigest(stored) != self.raw_hash(shard):
            raise CorruptError("the part is damaged", file=file, place=f"bytes {start} to {stop}")
        raw = zlib.decompressobj().decompress(stored, 2**26)  # at most: a few bytes may claim to be gigabytes
        return [xxhash.xxh3_128_digest(bytes(self.raw_hashes[shard]) + raw), raw]

    def open(self, shard: int, raw: Buffer, *, file: str) -> LinesShard:
        view = memoryview(raw).cast("B").toreadonly()
        return PackedShard(view, int(self.counts[shard]), self.schema, file)

    def verify(self, shard: int, opened: LinesShard, *, file: str) -> None:
        hashed = xxhash.xxh3_128(bytes(self.raw_hashes[shard]))
        hashed.update(opened.buffer[16:])
        check_hash(hashed.hexdigest(), bytes(opened.buffer[:16]).hex(), file)


class PackedShard(LinesShard):
    def select(self, samples: NDArray[np.int64], *, verify: bool) -> Selection:
        return LinesShard(self.buffer[16:], self.samples, self.schema, self.file).select(samples, verify=verify)


KINDS = {"compressed": CompressedIndex, "ranged": RangedIndex, "packed": PackedIndex}


def write_more(
    folder: Path,
    columns: Mapping[str, str],
    shards: Iterable[Sequence[dict[str, Any]]],
    kind: Literal["compressed", "ranged", "packed"],
    estimate: float = 1.0,
) -> None:
    """Write a dataset of this format. `estimate`: how large packed shards are said to be, relative to the truth."""
    folder.mkdir()
    entries, packed = [], b""
    for number, samples in enumerate(shards):
        lines = [json.dumps(sample).encode() + b"\n" for sample in samples]
        raw = b"".join(lines)
        table = np.empty(len(lines), TABLE)
        table["stop"] = np.cumsum([*map(len, lines)])
        table["hash"] = [xxhash.xxh3_64_intdigest(line) for line in lines]
        if kind == "ranged":
            raw = table.tobytes() + raw
        stored = raw if kind == "ranged" else zlib.compress(raw)
        hashed = xxhash.xxh3_128_hexdigest(stored if kind == "packed" else raw)
        raw_size = int(len(raw) * estimate) if kind == "packed" else len(raw)
        entries.append(Entry(len(lines), len(stored), raw_size, hashed, xxhash.xxh3_128_hexdigest(table.tobytes())))
        packed += stored
        if kind != "packed":
            (folder / f"{number}.lines").write_bytes(stored)
    if kind == "packed":
        (folder / "0.lines").write_bytes(packed)
    index = Fields("more lines", kind, dict(columns), entries)
    (folder / MoreFormat.index_key).write_bytes(msgspec.json.encode(index))
