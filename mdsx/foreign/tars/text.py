"""The text of `_mdsx-tars.json`: the facts about a set of tars that need not be read from the tars.

    {"format":"mdsx-tars","version":1,
     "columns":[{"name":"__key__","type":"str"},{"name":"jpg","type":"jpeg"},{"name":"cls","type":"int64"}],
     "samples":20000,
     "tars":{"name":["train/0000.tar",...],"size":[...],"etag":["..."],"xxh3_128":["<32 digits>" or null,...],
             "samples":[...]},
     "pointers":{"name":["_mdsx-tars/<16 digits>-<16 digits>.mdsx",...],"size":[...],"xxh3_128":["<32 digits>",...]},
     "metadata":{...},
     "checksum":"<16 digits>"}

It is one line without spaces between tokens, and ends with the checksum and a line feed. The checksum is XXH3-64 of all
bytes before `,"checksum":`, and is checked before anything is parsed. Tars are in the order of the samples; those
without samples are left out. Each has a pointer shard (see `pointers`).

- Names of tars are keys below the folder of the tars; names of pointer shards are keys below the folder of the index,
  which may be another one (`index=`). They have no scheme, no `..` and no backslash.
- A tar's `xxh3_128` is the hash of all its bytes, compressed or not; null if they were not read. Its pointer shard then
  has no checksums of samples either.
- `etag` is recorded for `mdsx index tar`, which does not read a tar again if its size and ETag are the same; "" for a
  tar on a disk.
- `metadata` is any JSON object: the names and drops that the index was made with.

The name of a pointer shard contains a hash of the tar's name and a part of the pointer shard's own hash. So a new index
of other tars does not replace pointers that a running job still reads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from mdsx.errors import UnsupportedError, UsageError
from mdsx.foreign.tars.pointers import PointerSchema, check_pointable
from mdsx.format import MAX_SHARDS, FileIndexParser, Schema, is_file_key, seal_file_index

INDEX_KEY = "_mdsx-tars.json"
VERSION = 1
AGAIN = "run `mdsx index tar` again"
MAX_POINTERS_SIZE = 2**36
"""The most bytes of a pointer shard."""

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_COMPRESSED = re.compile(r"\.(?:tgz|tar\.(?:gz|bz2|xz|zst|zstd|lz4))\Z", re.IGNORECASE)

_Number = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
_Count = Annotated[int, msgspec.Meta(ge=1, le=2**40)]
_PointersSize = Annotated[int, msgspec.Meta(ge=1, le=MAX_POINTERS_SIZE)]
_Hash = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]


@dataclass(frozen=True, slots=True)
class IndexedTar:
    """A tar that has samples: its key, size, ETag ("" on a disk), the XXH3-128 of its bytes in hexadecimal (None if
    they were not read, and the pointers have no checksums), and its number of samples; also the key, size and XXH3-128
    of its pointer shard: see `filenames.pointers`."""

    name: str
    size: int
    etag: str
    hash: str | None
    samples: int
    pointers: str
    pointers_size: int
    pointers_hash: str


def build_text(schema: Schema, tars: Sequence[IndexedTar], metadata: Mapping[str, Any] | None = None) -> bytes:
    """Return the text of an index of `tars`, whose samples have the columns in `schema`. Raise UsageError."""
    for column in schema.columns:
        check_pointable(column)
    if len(tars) > MAX_SHARDS:
        raise UsageError(
            "too many tars", found=len(tars), expected=f"at most {MAX_SHARDS} (2^22)", hint="convert the tars"
        )
    members = {
        "format": "mdsx-tars",
        "version": VERSION,
        "columns": [{"name": column.name, "type": str(column.type)} for column in schema.columns],
        "samples": sum(tar.samples for tar in tars),
        "tars": {
            "name": [tar.name for tar in tars],
            "size": [tar.size for tar in tars],
            "etag": [tar.etag for tar in tars],
            "xxh3_128": [tar.hash for tar in tars],
            "samples": [tar.samples for tar in tars],
        },
        "pointers": {
            "name": [tar.pointers for tar in tars],
            "size": [tar.pointers_size for tar in tars],
            "xxh3_128": [tar.pointers_hash for tar in tars],
        },
        "metadata": dict(metadata or {}),
    }
    return seal_file_index(members)


class _Column(msgspec.Struct):
    name: str
    type: str


class _Tars(msgspec.Struct):
    name: list[str]
    size: list[_Number]
    etag: list[str]
    xxh3_128: list[_Hash | None]
    samples: list[_Count]


class _Pointers(msgspec.Struct):
    name: list[str]
    size: list[_PointersSize]
    xxh3_128: list[_Hash]


class _Root(msgspec.Struct):
    columns: list[_Column]
    samples: _Number
    tars: _Tars
    pointers: _Pointers
    metadata: dict[str, Any]


_ROOT = msgspec.json.Decoder(_Root)  # prepared here, because msgspec crashes if two threads do so at once


@dataclass(frozen=True, slots=True, eq=False)
class Parsed:
    """A parsed index of T tars."""

    pointers: PointerSchema
    tars: tuple[IndexedTar, ...]
    metadata: dict[str, Any]
    counts: NDArray[np.int64]
    """int64 [T]: samples."""
    sizes: NDArray[np.int64]
    """int64 [T]: bytes of the tars."""

    @property
    def schema(self) -> Schema:
        return self.pointers.dataset

    @property
    def names(self) -> tuple[str, ...]:
        """Return the keys of the tars."""
        return tuple(tar.name for tar in self.tars)


def recognizes(data: bytes) -> bool:
    """Return whether this is an index of tars, even a damaged one."""
    return data.startswith(b'{"format":"mdsx-tars"')


def is_wids(data: bytes) -> bool:
    """Return whether the data of an `index.json` is WebDataset's own index of tars (wids)."""
    return data.lstrip().startswith(b"{") and b'"shardlist"' in data and b'"format":"mdsx"' not in data[:32]


def parse_text(data: bytes, *, file: str | None = None) -> Parsed:
    """Parse the text of an index. Raise CorruptError or UnsupportedError."""
    return _Parser(file).parse(data)


class _Parser(FileIndexParser):
    FORMAT, VERSION, FILES, AGAIN = "mdsx-tars", VERSION, "tars", AGAIN

    def parse(self, data: bytes) -> Parsed:
        root = self._decode(data, _ROOT)
        schema = self._schema(root)
        tars, pointers = root.tars, root.pointers
        count = len(tars.name)
        self._expect(count <= MAX_SHARDS, "tars.name", count, f"at most {MAX_SHARDS}")
        for group, part in (("tars", tars), ("pointers", pointers)):
            for name in part.__struct_fields__:
                self._expect(len(getattr(part, name)) == count, f"{group}.{name}", len(getattr(part, name)), count)
        self._check_names(tars.name, "tars.name")
        self._check_names(pointers.name, "pointers.name")
        for name in tars.name:
            if is_compressed(name):
                message, hint = "a compressed tar cannot be read in place", "convert it with `mdsx convert tar`"
                raise UnsupportedError(message, file=self._file, place="tars.name", found=repr(name[:200]), hint=hint)
        self._expect(sum(tars.samples) == root.samples, "samples", root.samples, sum(tars.samples))
        self._expect(sum(tars.size) <= 2**62, "tars.size", sum(tars.size), "at most 2^62")
        layout = PointerSchema(schema)
        row_size = layout.schema.row_size
        for samples, size in zip(tars.samples, pointers.size, strict=True):
            self._expect(samples * row_size <= size, "pointers.size", f"{size} bytes for {samples} samples", None)
        counts, sizes = np.array(tars.samples, np.int64), np.array(tars.size, np.int64)
        for numbers in (counts, sizes):
            numbers.setflags(write=False)
        fields = (getattr(part, name) for part in (tars, pointers) for name in part.__struct_fields__)
        entries = tuple(IndexedTar(*each) for each in zip(*fields, strict=True))
        return Parsed(layout, entries, root.metadata, counts, sizes)

    def _is_key(self, name: str) -> bool:
        return is_key(name)

    def _schema(self, root: _Root) -> Schema:
        schema = Schema.from_pairs(((column.name, column.type) for column in root.columns), file=self._file)
        for column in schema.columns:
            try:
                check_pointable(column)
            except UsageError as error:
                hint = f"upgrade mdsx, or {AGAIN}"
                raise UnsupportedError(error.message, file=self._file, place=error.place, hint=hint) from None
        return schema


def is_key(name: str) -> bool:
    """Return whether `name` can be the key of a file in an index: see `is_file_key`. It must not have a scheme."""
    return is_file_key(name) and not _SCHEME.match(name)


def is_compressed(name: str) -> bool:
    """Return whether a file's name is that of a compressed tar."""
    return bool(_COMPRESSED.search(name))
