"""A small stored format, JSON lines: `lines.json` is the index; a shard is a file with a line for each sample."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import msgspec
import numpy as np
import xxhash
from numpy.typing import NDArray

from mdsx.errors import CorruptError, UnsupportedError
from mdsx.format import Encoder, RowDecoder, Schema, Selection, is_name, lengths_of_selection

if TYPE_CHECKING:
    from typing_extensions import Buffer

Size = Annotated[int, msgspec.Meta(ge=0, le=2**40)]


class ShardFields(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    samples: Size
    size: Size
    hash: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]


class IndexFields(msgspec.Struct, forbid_unknown_fields=True):
    format: Literal["lines"]
    columns: dict[str, str]
    shards: list[ShardFields]


FIELDS = msgspec.json.Decoder(IndexFields)


class LinesFormat:
    name = "lines"
    index_key = "lines.json"
    files: ClassVar[Mapping[str, str]] = {"lines": "these need the lines.json that names them: copy it here too"}

    def recognizes(self, data: bytes) -> bool:
        return data.startswith(b'{"format":"lines"')

    def parse_index(self, data: bytes, *, file: str) -> LinesIndex:
        try:
            found = FIELDS.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise CorruptError(f"the index is damaged: {error}", file=file) from None
        for shard in found.shards:
            if not is_name(shard.name):
                raise CorruptError("a shard cannot have this name", file=file, found=shard.name[:80])
            if shard.size < 2 * shard.samples:  # a sample is at least a brace and a line feed
                raise CorruptError("the shard has no room for its samples", file=file, place=shard.name)
        hashes = bytes.fromhex("".join(shard.hash for shard in found.shards))
        return LinesIndex(
            schema=schema_of(found.columns, file),
            names=[shard.name for shard in found.shards],
            counts=np.array([shard.samples for shard in found.shards], np.int64),
            sizes=np.array([shard.size for shard in found.shards], np.int64),
            raw_hashes=np.frombuffer(hashes, np.uint8).reshape(-1, 16),
            fingerprint=xxhash.xxh3_128_hexdigest(data),
        )


def schema_of(columns: Mapping[str, str], file: str) -> Schema:
    schema = Schema.from_pairs(columns.items(), file=file)
    for column in schema.columns:
        if not column.type.known:  # it may be of a later version: nothing can be encoded as it
            raise UnsupportedError("the type is not known", file=file, place=column.name, found=str(column.type)[:80])
    return schema


@dataclass(frozen=True, eq=False)
class LinesIndex:
    schema: Schema
    names: Sequence[str]
    counts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    raw_hashes: NDArray[np.uint8]
    fingerprint: str
    format: ClassVar[str] = LinesFormat.name
    checks: ClassVar[str] = "XXH3-128 of shards"
    compression: ClassVar[str | None] = None
    metadata: ClassVar[dict[str, Any]] = {}

    @property
    def samples(self) -> int:
        return int(self.counts.sum())

    @property
    def raw_sizes(self) -> NDArray[np.int64]:
        return self.sizes

    def name(self, shard: int) -> str:
        return self.names[shard]

    def raw_hash(self, shard: int) -> str:
        return bytes(self.raw_hashes[shard]).hex()

    def receive(self, shard: int, *, file: str) -> LinesReceiver:
        return LinesReceiver(self.raw_hash(shard), file)

    def open(self, shard: int, raw: Buffer, *, file: str) -> LinesShard:
        view = memoryview(raw).cast("B").toreadonly()
        if len(view) != self.raw_sizes[shard]:
            raise CorruptError("the shard has another size", file=file, found=len(view))
        return LinesShard(view, int(self.counts[shard]), self.schema, file)

    def verify(self, shard: int, opened: LinesShard, *, file: str) -> None:
        check_hash(xxhash.xxh3_128_hexdigest(opened.buffer), self.raw_hash(shard), file)

    def check(self, shard: int, raw: Buffer, *, file: str) -> Sequence[CorruptError]:
        try:
            opened = self.open(shard, raw, file=file)
            opened.select(np.arange(opened.samples), verify=True)
        except CorruptError as error:
            return [error]
        return []

    def decoder(self, columns: Mapping[str, int]) -> RowDecoder:
        return RowDecoder(self.schema, columns)


class LinesReceiver:
    def __init__(self, expected: str, file: str) -> None:
        self._expected, self._file, self._hash = expected, file, xxhash.xxh3_128()

    def feed(self, chunk: Buffer) -> Iterator[Buffer]:
        self._hash.update(chunk)
        yield chunk

    def finish(self) -> None:
        check_hash(self._hash.hexdigest(), self._expected, self._file)


def check_hash(found: str, expected: str, file: str) -> None:
    if found != expected:
        message = "the shard's bytes do not match the index"
        raise CorruptError(message, file=file, place="XXH3-128", found=found, expected=expected)


@dataclass(frozen=True)
class LinesShard:
    buffer: memoryview
    samples: int
    schema: Schema
    file: str
    checks_samples: ClassVar[bool] = False
    checks_cheaply: ClassVar[bool] = False

    def select(self, samples: NDArray[np.int64], *, verify: bool) -> Selection:
        lines = bytes(self.buffer).split(b"\n")
        if len(lines) != self.samples + 1:
            raise CorruptError("the shard has another number of lines", file=self.file, found=len(lines) - 1)
        return selection(self.schema, self.file, samples, [lines[sample] for sample in samples.tolist()])

    def lengths(self, column: int) -> NDArray[np.int64]:
        return lengths_of_selection(self.select(np.arange(self.samples), verify=False), column)


def selection(schema: Schema, file: str, samples: NDArray[np.int64], lines: Iterable[bytes]) -> Selection:
    """Return `samples` from their `lines`, with values as our own format stores them."""
    encoder = Encoder(schema)
    try:
        values = [value for line in lines for value in encoder.sample(json.loads(line))[0]]
    except (ValueError, RecursionError) as error:
        raise CorruptError(f"a line is no sample: {error}", file=file) from None
    return Selection.of(schema, file, samples, encoder.gather(values))
