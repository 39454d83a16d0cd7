"""A small stored format for tests, JSON lines: the layers above the formats are tested with two formats.

`lines.json` is the index. A shard has a line for each sample, and may be zlib-compressed. With `table`, a shard
begins with the offsets of its lines (u64, one more than the lines), and samples are read by range.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np
import xxhash
from numpy.typing import NDArray

from mdsx.errors import CorruptError
from mdsx.format import Decoder, Encoder, Reading, Reads, RowDecoder, Schema, Selection, StoredIndex, check_stored

if TYPE_CHECKING:
    from typing_extensions import Buffer

Sample = dict[str, Any]


def write_lines(
    folder: Path, columns: Mapping[str, str], shards: Sequence[Sequence[Sample]], *, table: bool, compress: bool = False
) -> None:
    """Write a dataset of this format."""
    folder.mkdir()
    entries = []
    for number, samples in enumerate(shards):
        lines = [json.dumps(sample).encode() + b"\n" for sample in samples]
        offsets = np.cumsum([8 * (len(lines) + 1), *map(len, lines)]).astype("<u8")
        raw = (offsets.tobytes() if table else b"") + b"".join(lines)
        stored = zlib.compress(raw) if compress else raw
        (folder / f"{number}.lines").write_bytes(stored)
        hashed = xxhash.xxh3_128_hexdigest(raw)
        entries.append({"samples": len(lines), "size": len(stored), "raw_size": len(raw), "hash": hashed})
    index = {"format": "lines", "columns": dict(columns), "table": table, "compress": compress, "shards": entries}
    (folder / "lines.json").write_text(json.dumps(index))


class LinesFormat:
    name = "lines"
    index_key = "lines.json"

    def recognizes(self, data: bytes) -> bool:
        return b'"lines"' in data[:100]

    def parse_index(self, data: bytes, *, file: str) -> LinesIndex:
        try:
            found = json.loads(data)
        except ValueError as error:
            raise CorruptError(f"this is not JSON: {error}", file=file) from None
        shards = found["shards"]
        numbers = {key: np.array([each[key] for each in shards], np.int64) for key in ("samples", "size", "raw_size")}
        hashes = bytes.fromhex("".join(each["hash"] for each in shards))
        return LinesIndex(
            schema=Schema.from_columns(found["columns"]),
            samples=int(numbers["samples"].sum()),
            counts=numbers["samples"],
            sizes=numbers["size"],
            raw_sizes=numbers["raw_size"],
            raw_hashes=np.frombuffer(hashes, np.uint8).reshape(-1, 16),
            compression="zlib" if found["compress"] else None,
            fingerprint=xxhash.xxh3_128_hexdigest(data),
            metadata={"from": "lines"},
            table=found["table"],
        )


@dataclass(frozen=True)
class LinesIndex:
    schema: Schema
    samples: int
    counts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    raw_sizes: NDArray[np.int64]
    raw_hashes: NDArray[np.uint8]
    compression: str | None
    fingerprint: str
    metadata: dict[str, Any]
    table: bool
    format: ClassVar[str] = "lines"
    checks: ClassVar[str] = "XXH3-128 of shards"
    exact_sizes: ClassVar[bool] = True

    def project(self, columns: Sequence[int]) -> LinesIndex:
        return self

    def reads(self, shard: int) -> Reads:
        return Reads.SAMPLES if self.table and self.compression is None else Reads.SHARDS

    def read_group(self, shard: int, *, file: str) -> NoReturn:
        raise NotImplementedError

    def object_size(self, shard: int) -> int:
        return int(self.sizes[shard])

    def name(self, shard: int) -> str:
        return f"{shard}.lines"

    def raw_hash(self, shard: int) -> str:
        return bytes(self.raw_hashes[shard]).hex()

    def receive(self, shard: int, *, file: str) -> LinesReceiver:
        return LinesReceiver(self, shard, file)

    def open(self, shard: int, raw: Buffer, *, file: str) -> LinesShard:
        view = memoryview(raw).cast("B").toreadonly()
        if len(view) != self.raw_sizes[shard]:
            raise CorruptError("the shard has another size", file=file, found=len(view))
        starts = 8 * (int(self.counts[shard]) + 1) if self.table else 0
        lines = bytes(view[starts:]).splitlines(keepends=True)
        if len(lines) != self.counts[shard]:
            raise CorruptError("the shard has another number of lines", file=file, found=len(lines))
        return LinesShard(view, self.schema, lines, file)

    def verify(self, shard: int, opened: LinesShard, *, file: str) -> None:
        if xxhash.xxh3_128_hexdigest(opened.buffer) != self.raw_hash(shard):
            raise CorruptError("the shard's bytes do not match the index", file=file)

    def check(self, shard: int, raw: Buffer, *, file: str) -> Sequence[CorruptError]:
        opened = self.open(shard, raw, file=file)
        try:
            opened.select(np.arange(opened.samples), verify=True)
        except CorruptError as error:
            return [error]
        return []

    def by_range(self, shard: int, *, file: str) -> LinesRanges:
        return LinesRanges(self.schema, int(self.counts[shard]), file)

    def find_damage(
        self, shard: int, stored: memoryview, *, size: int, file: str, first: int | None
    ) -> Sequence[CorruptError]:
        return check_stored(self, shard, stored, file=file)

    def decoder(self, columns: Mapping[str, int]) -> Decoder:
        return RowDecoder(self.schema, columns)


class LinesReceiver:
    def __init__(self, index: StoredIndex, shard: int, file: str) -> None:
        self._expected, self._file, self._hash = index.raw_hash(shard), file, xxhash.xxh3_128()
        self._unpack = zlib.decompressobj() if index.compression else None

    def feed(self, chunk: Buffer) -> Iterator[bytes]:
        try:
            raw = bytes(chunk) if self._unpack is None else self._unpack.decompress(chunk)
        except zlib.error as error:
            raise CorruptError(f"the shard is damaged: {error}", file=self._file) from None
        self._hash.update(raw)
        yield raw

    def finish(self) -> None:
        if self._hash.hexdigest() != self._expected:
            raise CorruptError("the shard's bytes do not match the index", file=self._file)


@dataclass(frozen=True)
class LinesShard:
    buffer: memoryview
    schema: Schema
    lines: list[bytes]
    file: str
    checks_samples: ClassVar[bool] = False

    @property
    def samples(self) -> int:
        return len(self.lines)

    def select(self, samples: NDArray[np.int64], *, verify: bool) -> Selection:
        return selection(self.schema, self.file, samples, [self.lines[sample] for sample in samples.tolist()])


class LinesRanges:
    def __init__(self, schema: Schema, count: int, file: str) -> None:
        self._schema, self._count, self._file = schema, count, file
        self._offsets: list[int] | None = None

    def select(self, samples: NDArray[np.int64]) -> Reading[Selection]:
        yield from self.check()
        assert self._offsets is not None
        lines = yield [(self._offsets[sample], self._offsets[sample + 1]) for sample in samples.tolist()]
        return selection(self._schema, self._file, samples, map(bytes, lines))

    def check(self) -> Reading[None]:
        if self._offsets is None:
            (table,) = yield [(0, 8 * (self._count + 1))]
            self._offsets = np.frombuffer(table, "<u8").tolist()


def selection(schema: Schema, file: str, samples: NDArray[np.int64], lines: Iterable[bytes]) -> Selection:
    encoder = Encoder(schema)
    try:
        values = [encoder.sample(json.loads(line))[0] for line in lines]
    except ValueError as error:
        raise CorruptError(f"a line is not JSON: {error}", file=file) from None
    return Selection.of(schema, file, samples, encoder.gather(values))
