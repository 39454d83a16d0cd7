"""An index of tars as a stored format: a tar is a shard, and its pointer shard is its side object.

The tars are read unchanged: mapped in place, cached whole, or read by range, sample by sample. The pointers locate
samples and values, so tars are not parsed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import xxhash
from numpy.typing import NDArray

from mdsx.base.cached import cached_property
from mdsx.errors import CorruptError, restated
from mdsx.foreign.checks import MOST_PROBLEMS, TRAILER, check_trailer
from mdsx.foreign.tars.decode import TarDecoder
from mdsx.foreign.tars.layout import TarLayout
from mdsx.foreign.tars.shard import CHANGED, Pointers, TarShard
from mdsx.foreign.tars.stored_bytes import TarRanges, TarReceiver
from mdsx.foreign.tars.text import INDEX_KEY, Parsed, parse_text, recognizes
from mdsx.format import (
    FindsDamage,
    NeedsSideObjects,
    Reading,
    ReadsLengths,
    ReadsRows,
    ReadsSamples,
    ReadsWhole,
    Schema,
    Selection,
    SideObject,
    sample_name,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

_WITHOUT = "the headers of members, because the index was made without reading the tars"


class TarsFormat:
    """Tars that `mdsx index tar` has indexed."""

    name = "tar"
    index_key = INDEX_KEY
    files: ClassVar[dict[str, str]] = {
        r"tgz|tar\.\w+": "convert them with `mdsx convert tar {url}/*.{ending} OUT`",
        "tar": "make an index of them with `mdsx index tar {url}`, or convert them (`mdsx convert tar`)",
    }

    def recognizes(self, data: bytes) -> bool:
        return recognizes(data)

    def parse_index(self, data: bytes, *, file: str) -> TarIndex:
        parsed = parse_text(data, file=file)
        return TarIndex(parsed, TarLayout(parsed.pointers), file)


@dataclass(frozen=True, eq=False)
class TarIndex(ReadsWhole, ReadsSamples, NeedsSideObjects, ReadsLengths, ReadsRows, FindsDamage):
    """A parsed index of tars, and how their bytes become samples. See `StoredIndex`. `pointers`: those of one shard,
    once they are known."""

    _parsed: Parsed
    layout: TarLayout
    _file: str
    _pointers: tuple[int, Pointers] | None = None

    format: ClassVar[str] = TarsFormat.name
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

    @property
    def sizes(self) -> NDArray[np.int64]:
        return self._parsed.sizes

    @cached_property
    def raw_sizes(self) -> NDArray[np.int64]:
        without = np.array([tar.hash is None for tar in self._parsed.tars], np.int64)
        return self.sizes + TRAILER * without

    @cached_property
    def raw_hashes(self) -> NDArray[np.uint8]:
        """Return the hashes of tars. If the index has none, include the place, because different tars may have equal
        pointers."""
        # The text has the names of IndexedTar's fields: to rename one is to rename all cached shards.
        found = [
            bytes.fromhex(tar.hash)
            if tar.hash is not None
            else xxhash.xxh3_128_digest(f"{number}\n{tar}\n{self._file}".encode(errors="surrogateescape"))
            for number, tar in enumerate(self._parsed.tars)
        ]
        return np.frombuffer(b"".join(found), np.uint8).reshape(-1, 16)

    @cached_property
    def fingerprint(self) -> str:
        """Return a hash that is the same for the same tars under other names and in other storages."""
        hasher = xxhash.xxh3_128(b"mdsx-tars 1\n" + self.schema.json)
        for tar in self._parsed.tars:
            hasher.update(f"{tar.samples} {tar.size} {tar.hash} {tar.pointers_hash}\n".encode())
        found: str = hasher.hexdigest()
        return found

    @cached_property
    def checks(self) -> str:
        without = sum(tar.hash is None for tar in self._parsed.tars)
        if not without:
            return "XXH3-64 of samples, XXH3-128 of tars"
        if without == len(self._parsed.tars):
            return f"only {_WITHOUT}"
        return f"XXH3-64 of samples, XXH3-128 of tars; of {without} tars only {_WITHOUT}"

    @property
    def metadata(self) -> dict[str, Any]:
        return self._parsed.metadata

    def name(self, shard: int) -> str:
        if not 0 <= shard < len(self._parsed.tars):
            raise IndexError(shard)
        return self._parsed.tars[shard].name

    def has_ranges(self, shard: int) -> bool:
        return True

    def side_object(self, shard: int) -> SideObject:
        tar = self._parsed.tars[shard]
        return SideObject(tar.pointers, tar.pointers_size, tar.pointers_hash)

    def with_side_object(self, shard: int, data: Buffer, *, file: str) -> TarIndex:
        tar = self._parsed.tars[shard]
        pointers = Pointers.parse(
            data,
            self.layout,
            count=tar.samples,
            size=tar.size,
            checksums=tar.hash is not None,
            file=file,
            tar=tar.name,
        )
        return replace(self, _pointers=(shard, pointers))

    def _pointers_of(self, shard: int, file: str) -> Pointers:
        """Return the pointers of the tar `file`."""
        number, pointers = self._pointers or (-1, None)
        assert pointers is not None
        assert number == shard
        return replace(pointers, file=file)

    def receive(self, shard: int, *, file: str) -> TarReceiver:
        tar, name = self._parsed.tars[shard], bytes(self.raw_hashes[shard])
        return TarReceiver(size=tar.size, hash=tar.hash, name=name, file=file)

    def open(self, shard: int, raw: Buffer, *, file: str) -> TarShard:
        return TarShard.parse(raw, self._pointers_of(shard, file))

    def verify(self, shard: int, opened: TarShard, *, file: str) -> None:
        """Check a tar by its hash in the index. Without one, only the cache's own hash can be checked; headers are
        compared whenever a sample is read."""
        name, message = bytes(self.raw_hashes[shard]), "the tar was damaged in the cache"
        check_trailer(opened.trailer, name, opened.buffer, message=message, file=file)
        expected = self._parsed.tars[shard].hash
        if expected is not None and xxhash.xxh3_128_hexdigest(opened.buffer) != expected:
            for problem in opened.problems():
                raise problem
            raise self._outside(file)

    def check(self, shard: int, raw: Buffer, *, file: str) -> Sequence[CorruptError]:
        opened = self.open(shard, raw, file=file)
        return [*islice(opened.problems(), MOST_PROBLEMS)] or [*islice(opened.wrong_values(), MOST_PROBLEMS)]

    def find_damage(
        self, shard: int, stored: memoryview, *, size: int, file: str, first: int | None
    ) -> Sequence[CorruptError]:
        pointers = self._pointers_of(shard, file)
        pointers.check_size(size)
        opened, expected = TarShard.parse(stored, pointers), self._parsed.tars[shard].hash
        problems = [*islice(opened.problems(), MOST_PROBLEMS)]
        if not problems and expected is not None and xxhash.xxh3_128_hexdigest(stored) != expected:
            return [self._outside(file)]
        problems = problems or [*islice(opened.wrong_values(), MOST_PROBLEMS)]
        return [_numbered(problem, first) for problem in problems]

    def by_range(self, shard: int, *, file: str) -> TarRanges:
        return TarRanges(self._pointers_of(shard, file))

    def read_lengths(self, shard: int, column: int, *, file: str) -> Reading[NDArray[np.int64]]:
        yield from ()
        return self._pointers_of(shard, file).lengths(column)

    def read_rows(self, shard: int, *, file: str) -> Reading[Selection] | None:
        """Read rows from the pointers, if no fixed-size column has its values in the tar."""
        schema, values = self.schema, self.layout.pointers.values
        return self._rows(shard, file) if all(number in values for number in schema.fixed) else None

    def _rows(self, shard: int, file: str) -> Reading[Selection]:
        yield from ()
        pointers = self._pointers_of(shard, file)
        samples = np.arange(pointers.samples)
        return Selection(self.layout, file, samples, pointers.view.rows, samples, memoryview(b""))

    def decoder(self, columns: Mapping[str, int]) -> TarDecoder:
        return TarDecoder(self.layout, columns)

    def _outside(self, file: str) -> CorruptError:
        message = "bytes of the tar that belong to no sample have changed"
        return CorruptError(message, file=file, place="XXH3-128", hint=CHANGED)


def _numbered(problem: CorruptError, first: int | None) -> CorruptError:
    """Return a problem with its sample's number in the dataset added."""
    number, comma, rest = (problem.place or "").removeprefix("sample ").partition(",")
    return restated(problem, place=f"sample {sample_name(int(number), first)}{comma}{rest}")
