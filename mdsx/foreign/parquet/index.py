"""An index of Parquet files as a stored format: a row group is a shard, and only its chosen columns are read.

Row groups without rows are left out. A process reads a file's footer when it first reads one of its row groups, and
compares the footer's hash with the index: a file that was replaced or has grown is an error. Footers are kept, up to a
limit.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import xxhash
from numpy.typing import NDArray

from mdsx.base.cached import cached_property
from mdsx.errors import ChangedError, CorruptError
from mdsx.foreign.parquet.footer import Footer, parse_footer
from mdsx.foreign.parquet.group import TRAILER_SIZE, GroupView, build_shard, chosen_leaves
from mdsx.foreign.parquet.text import AGAIN, INDEX_KEY, MAX_HEAP, Parsed, parse_text, recognizes
from mdsx.format import (
    EstimatesLengths,
    ProjectsColumns,
    Reading,
    ReadsParts,
    SampleDecoder,
    Schema,
    check_shard,
    estimated_mean,
    raw_size,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

_CONVERSION = b"mdsx-parquet 1\n"
"""The version of the conversion from row groups to shards. If the conversion changes, this must change, so that old
shards in the cache are not used."""


class ParquetFormat:
    """Parquet files that `mdsx index parquet` has indexed."""

    name = "Parquet"
    index_key = INDEX_KEY
    files: ClassVar[dict[str, str]] = {"parquet": "make an index of them with `mdsx index parquet {url}`"}

    def recognizes(self, data: bytes) -> bool:
        return recognizes(data)

    def parse_index(self, data: bytes, *, file: str) -> ParquetIndex:
        parsed = parse_text(data, file=file)
        return ParquetIndex(parsed, tuple(range(len(parsed.schema.columns))), parsed.schema, file)


@dataclass(frozen=True, eq=False)
class ParquetIndex(ReadsParts, ProjectsColumns, EstimatesLengths):
    """A parsed index of Parquet files, and how their bytes become samples. See `StoredIndex`."""

    _parsed: Parsed
    _columns: tuple[int, ...]
    schema: Schema
    _place: str
    _footers: _Footers = field(default_factory=lambda: _Footers())

    format: ClassVar[str] = "Parquet"
    checks: ClassVar[str] = "XXH3-128 of footers; CRC-32 of pages, where the files have it"
    compression: ClassVar[str] = "parquet"

    @property
    def samples(self) -> int:
        return int(self.counts.sum())

    @property
    def counts(self) -> NDArray[np.int64]:
        return self._parsed.groups["rows"]

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Return the bytes of the chosen columns' chunks; estimated if not all columns are chosen."""
        stored = self._parsed.groups["stored"]
        return stored if self._all else (stored * self._share(self._parsed.stored)).astype(np.int64)

    @cached_property
    def raw_sizes(self) -> NDArray[np.int64]:
        heap = (self._parsed.groups["heap"] * self._share(self._parsed.heap)).astype(np.int64)
        sizes = raw_size(self.schema, 0, 0) + self.schema.row_size * self.counts + heap + TRAILER_SIZE
        found: NDArray[np.int64] = np.minimum(sizes, MAX_HEAP)
        return found

    @cached_property
    def raw_hashes(self) -> NDArray[np.uint8]:
        """Return hashes that include the index's place: files with different values may have equal footers."""
        parsed, place = self._parsed, self._place.encode(errors="surrogateescape")
        seeds = [
            xxhash.xxh3_128_digest(self._seed + footer.tobytes() + f"{number}\n{etag}\n".encode() + place)
            for number, (footer, etag) in enumerate(zip(parsed.hashes, parsed.etags, strict=True))
        ]
        firsts = self._parsed.firsts
        found = np.repeat(np.frombuffer(b"".join(seeds), "<u8").reshape(-1, 2), np.diff(firsts), axis=0)
        found[:, 0] += (np.arange(firsts[-1]) - np.repeat(firsts[:-1], np.diff(firsts))).astype(np.uint64)
        return found.view(np.uint8)

    @cached_property
    def fingerprint(self) -> str:
        """Return a hash that is the same for the same files under other names and in other storages."""
        parsed = self._parsed
        hasher = xxhash.xxh3_128(_CONVERSION + parsed.schema.json)
        for array in (parsed.hashes, parsed.sizes, parsed.firsts, parsed.groups["rows"]):
            hasher.update(np.ascontiguousarray(array).tobytes())
        found: str = hasher.hexdigest()
        return found

    @property
    def metadata(self) -> dict[str, Any]:
        names = [column.name for column in self._parsed.schema.columns]
        parquet = {"files": len(self._parsed.names), "types": dict(zip(names, self._parsed.types, strict=True))}
        classes = self._parsed.classes
        return {"parquet": parquet, **({"class_names": classes} if classes else {})}

    @property
    def names(self) -> tuple[str, ...]:
        """Return the keys of the files."""
        return self._parsed.names

    def name(self, shard: int) -> str:
        return self._parsed.names[self._file(shard)]

    def project(self, columns: Sequence[int]) -> ParquetIndex:
        schema = Schema(tuple(self.schema.columns[number] for number in columns))
        return ParquetIndex(self._parsed, tuple(self._columns[number] for number in columns), schema, self._place)

    def __copy__(self) -> ParquetIndex:
        """Return a copy of the index that has read no footers yet."""
        return ParquetIndex(self._parsed, self._columns, self.schema, self._place)

    def object_size(self, shard: int) -> int:
        return int(self._parsed.sizes[self._file(shard)])

    def read_part(self, shard: int, *, file: str) -> Reading[Sequence[Buffer]]:
        number = self._file(shard)
        footer = self._footers.get(number)
        if footer is None:
            footer = yield from self._read_footer(number, file)
            self._footers.keep(number, footer)
        group = footer.groups[shard - int(self._parsed.firsts[number])]
        ranges = footer.chunks(group, chosen_leaves(footer, self.schema))
        parts = yield ranges
        return build_shard(footer, group, self.schema, ranges, parts, bytes(self.raw_hashes[shard]))

    def read_schema(self, shard: int, *, file: str) -> Reading[Any]:
        """Return the `pyarrow.Schema` of a shard's file."""
        return (yield from self._read_footer(self._file(shard), file)).schema

    def _read_footer(self, number: int, file: str) -> Reading[Footer]:
        parsed = self._parsed
        offset, size = int(parsed.footers[number]), int(parsed.sizes[number])
        expected, found = bytes(parsed.hashes[number]).hex(), ""
        for _ in range(2):  # the first bytes may have been damaged in transfer
            (data,) = yield [(offset, size)]
            found = xxhash.xxh3_128_hexdigest(data)
            if found == expected:
                break
        else:
            message = "the file is not the one that was indexed"
            raise ChangedError(message, file=file, place="footer", found=found, expected=expected, hint=AGAIN)
        footer = parse_footer(bytes(data), offset=offset, file=file)
        rows = [footer.rows(group) for group in footer.groups]
        first, last = parsed.firsts[number : number + 2].tolist()
        if rows != self.counts[first:last].tolist():
            raise CorruptError("its row groups differ from the index", file=file, place="footer", hint=AGAIN)
        return footer

    def open(self, shard: int, raw: Buffer, *, file: str) -> GroupView:
        name, samples = bytes(self.raw_hashes[shard]), int(self.counts[shard])
        return GroupView.of(raw, name=name, schema=self.schema, samples=samples, file=file)

    def verify(self, shard: int, opened: GroupView, *, file: str) -> None:
        opened.verify()

    def check(self, shard: int, raw: Buffer, *, file: str) -> Sequence[CorruptError]:
        try:
            opened = self.open(shard, raw, file=file)
            opened.verify()
        except CorruptError as error:
            return [error]
        return check_shard(opened.buffer, file=file, schema=self.schema, row_key=opened.row_key)

    def mean_length(self, column: int) -> Fraction | None:
        kind, size = self.schema.columns[column].type, self._parsed.heap[self._columns[column]]
        return estimated_mean(kind, self.samples, size)

    def decoder(self, columns: Mapping[str, int]) -> SampleDecoder:
        return SampleDecoder(self.schema, columns)

    # --- inside

    def _file(self, shard: int) -> int:
        if not 0 <= shard < len(self.counts):
            raise IndexError(shard)
        return int(np.searchsorted(self._parsed.firsts, shard, side="right")) - 1

    @property
    def _all(self) -> bool:
        return len(set(self._columns)) == len(self._parsed.schema.columns)

    def _share(self, sizes: Sequence[int]) -> float:
        """Return the chosen columns' share of the `sizes` of all columns."""
        return sum(sizes[number] for number in self._columns) / max(sum(sizes), 1)

    @cached_property
    def _seed(self) -> bytes:
        return _CONVERSION + self.schema.json


class _Footers:
    """The footers read so far, by file number. They are not pickled."""

    _LIMIT = 2**26  # bytes of footers, which take some times more memory

    def __init__(self) -> None:
        self._kept: OrderedDict[int, Footer] = OrderedDict()
        self._most = 0  # bytes, at most
        self.get = self._kept.get

    def keep(self, number: int, footer: Footer) -> None:
        """Keep a footer, and drop the oldest ones beyond the limit. Thread-safe."""
        self._kept[number] = footer
        self._most += footer.size
        while self._most > self._LIMIT and len(self._kept) > 1:
            self._kept.popitem(last=False)
            self._most = sum(each.size for each in list(self._kept.values()))

    def __reduce__(self) -> tuple[type[_Footers], tuple[()]]:
        return _Footers, ()
