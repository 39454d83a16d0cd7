"""Token files whose documents are lines of JSON, a byte as a token: so that they store the columns of all formats.

It wraps the format of token files: what is read of storage, and how, is that format's own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

import mdsx
from mdsx.errors import CorruptError
from mdsx.foreign.tokens import TabledIndex, TokensFormat, TokensIndex, TokensShard
from mdsx.format import (
    Extent,
    RangeReader,
    Reading,
    Receiver,
    RowDecoder,
    Schema,
    Selection,
    SideObject,
    lengths_of_selection,
)
from tests.foreign.tokens.writers import write_megatron
from tests.shards.formats.json_lines import selection

if TYPE_CHECKING:
    from typing_extensions import Buffer

SCHEMA = Schema.from_columns({"extra": "json", "id": "int64", "maybe": "str?", "text": "str", "vector": "float32[3]"})


class DocumentsFormat:
    name = "documents"
    index_key = "_mdsx-documents.json"
    files: ClassVar[Mapping[str, str]] = {}

    def recognizes(self, data: bytes) -> bool:
        return True

    def parse_index(self, data: bytes, *, file: str) -> DocumentsIndex:
        found = TokensFormat().parse_index(data, file=file)
        if [str(column.type) for column in found.schema.columns] != ["uint8[*]"] or found.layout.every is not None:
            raise CorruptError("the tokens are no bytes", file=file)
        return DocumentsIndex(found)


@dataclass(frozen=True, eq=False)
class DocumentsIndex:
    inner: TokensIndex
    format: ClassVar[str] = DocumentsFormat.name
    schema: ClassVar[Schema] = SCHEMA
    compression: ClassVar[None] = None

    @property
    def checks(self) -> str:
        return self.inner.checks

    @property
    def samples(self) -> int:
        return self.inner.samples

    @property
    def counts(self) -> NDArray[np.int64]:
        return self.inner.counts

    @property
    def sizes(self) -> NDArray[np.int64]:
        return self.inner.sizes

    @property
    def raw_sizes(self) -> NDArray[np.int64]:
        return self.inner.raw_sizes

    @property
    def raw_hashes(self) -> NDArray[np.uint8]:
        return self.inner.raw_hashes

    @property
    def fingerprint(self) -> str:
        return self.inner.fingerprint

    @property
    def metadata(self) -> dict[str, Any]:
        return self.inner.metadata

    def name(self, shard: int) -> str:
        return self.inner.name(shard)

    def extents(self, shard: int) -> list[Extent]:
        return self.inner.extents(shard)

    def identify(self, shard: int, extent: int, *, file: str) -> Reading[None]:
        return self.inner.identify(shard, extent, file=file)

    def receive_extents(self, shard: int, *, file: str) -> Receiver:
        return self.inner.receive_extents(shard, file=file)

    def side_object(self, shard: int) -> SideObject:
        assert isinstance(self.inner, TabledIndex)
        return self.inner.side_object(shard)

    def with_side_object(self, shard: int, data: Buffer, *, file: str) -> DocumentsIndex:
        assert isinstance(self.inner, TabledIndex)
        return replace(self, inner=self.inner.with_side_object(shard, data, file=file))

    def open(self, shard: int, raw: Buffer, *, file: str) -> DocumentsShard:
        return DocumentsShard(self.inner.open(shard, raw, file=file))

    def verify(self, shard: int, opened: DocumentsShard, *, file: str) -> None:
        self.inner.verify(shard, opened.inner, file=file)

    def check(self, shard: int, raw: Buffer, *, file: str) -> Sequence[CorruptError]:
        found = self.inner.check(shard, raw, file=file)
        if not found:
            try:
                self.open(shard, raw, file=file).select(np.arange(self.counts[shard]), verify=False)
            except CorruptError as error:
                return [error]
        return found

    def has_ranges(self, shard: int) -> bool:
        return self.inner.has_ranges(shard)

    def by_range(self, shard: int, *, file: str) -> RangeReader:
        return DocumentsRanges(self.inner.by_range(shard, file=file))

    def decoder(self, columns: Mapping[str, int]) -> RowDecoder:
        return RowDecoder(SCHEMA, columns)


def converted(found: Selection) -> Selection:
    """Return the documents as samples."""
    copied = found.copied()
    ends = np.append(copied.rows["edge"], len(copied.heap)).tolist()
    lines = [bytes(copied.heap[low:high]) for low, high in pairwise(ends)]
    return selection(SCHEMA, found.file or "", found.samples, lines)


@dataclass(frozen=True)
class DocumentsShard:
    inner: TokensShard

    @property
    def buffer(self) -> memoryview:
        return self.inner.buffer

    @property
    def samples(self) -> int:
        return self.inner.samples

    @property
    def checks_samples(self) -> bool:
        return self.inner.checks_samples

    @property
    def checks_cheaply(self) -> bool:
        return self.inner.checks_cheaply

    def select(self, samples: NDArray[np.int64], *, verify: bool) -> Selection:
        return converted(self.inner.select(samples, verify=verify))

    def lengths(self, column: int) -> NDArray[np.int64]:
        return lengths_of_selection(self.select(np.arange(self.samples), verify=False), column)


@dataclass(frozen=True)
class DocumentsRanges:
    inner: RangeReader

    def select(self, samples: NDArray[np.int64]) -> Reading[Selection]:
        return converted((yield from self.inner.select(samples)))

    def check(self) -> Reading[None]:
        return self.inner.check()


def write_documents(folder: Path, shards: Sequence[Sequence[dict[str, Any]]], *, hash: bool) -> None:
    """Write a file for each shard."""
    folder.mkdir()
    for number, samples in enumerate(shards):
        lines = [json.dumps(sample).encode() for sample in samples]
        write_megatron(folder / f"{number:05}", [np.frombuffer(line, np.uint8) for line in lines], "uint8")
    mdsx.index_megatron(folder, hash=hash)
    (folder / "_mdsx-tokens.json").rename(folder / DocumentsFormat.index_key)
    for path in _indexes(folder):
        path.unlink()  # only `mdsx index` reads them


def _indexes(folder: Path) -> Iterator[Path]:
    return folder.glob("*.idx")
