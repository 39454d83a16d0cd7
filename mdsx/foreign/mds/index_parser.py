"""Parse an MDS index, and check everything in it that can be checked without the shards.

    {"shards": [{"column_names": [...], "column_encodings": [...], "column_sizes": [...], "samples": ...,
                 "format": "mds", "version": 2, "compression": null or "name[:level]",
                 "raw_data": {"basename": ..., "bytes": ..., "hashes": {...}}, "zip_data": the same or null, ...}, ...],
     "version": 2}

All shards must have the same columns. Unknown keys are ignored.
"""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, TypeVar

import msgspec
import numpy as np
import xxhash

from mdsx.base.decompress import MOST_UNPACKED, most_unpacked
from mdsx.errors import CorruptError, UnsupportedError
from mdsx.foreign.checks import TRAILER
from mdsx.foreign.mds import compressions, hashes
from mdsx.foreign.mds.encodings import parse_encoding
from mdsx.foreign.mds.index import MdsEntry, MdsIndex
from mdsx.foreign.mds.layout import MdsLayout
from mdsx.format import MAX_SHARDS, Column, Schema, filenames

_T = TypeVar("_T")

VERSION = 2
MAX_NAME_SIZE = 1024
_MAX_RAW_SIZE = 2**32 - 1  # offsets have 32 bits
_OTHER_FORMATS = ("json", "csv", "tsv", "xsv")

_NONE: dict[str, str] = {}  # one for all shards

_START = re.compile(rb'\s*\{\s*"(?:shards|version)"\s*:')
_COMPONENT = re.compile(r"[^/\\\x00-\x1f\x7f]+")
_HEXADECIMAL = re.compile("[0-9a-f]*")

_Number = Annotated[int, msgspec.Meta(ge=0, le=_MAX_RAW_SIZE)]


class _Data(msgspec.Struct):
    basename: str
    bytes: Annotated[int, msgspec.Meta(ge=0, le=2**40)]
    hashes: dict[str, str]


class _Kind(msgspec.Struct):
    format: str
    version: int


class _Shard(msgspec.Struct):
    column_names: list[str]
    column_encodings: list[str]
    column_sizes: list[_Number | None]
    samples: _Number
    raw_data: _Data
    compression: str | None = None
    zip_data: _Data | None = None


class _Root(msgspec.Struct):
    version: int
    shards: list[msgspec.Raw]


# msgspec prepares a type at its first use, and crashes if two threads do so at once. So prepare the types here.
_ROOT = msgspec.json.Decoder(_Root)
_KIND = msgspec.json.Decoder(_Kind)
_SHARD = msgspec.json.Decoder(_Shard)


class MdsFormat:
    """MDS: see `protocol.StoredFormat`."""

    name = MdsIndex.format
    index_key = filenames.INDEX
    files: ClassVar[dict[str, str]] = {
        r"mds(?:\.\w+)?": "these are MDS shards without their index.json: copy it here too"
    }

    def recognizes(self, data: bytes) -> bool:
        return _START.match(data) is not None

    def parse_index(self, data: bytes, *, file: str) -> MdsIndex:
        return _Parser(file).parse(data)


class _Parser:
    def __init__(self, file: str) -> None:
        self._file = file

    def parse(self, data: bytes) -> MdsIndex:
        root = self._decode(data, _ROOT, "")
        self._check_version(root.version, "version")
        if not 1 <= len(root.shards) <= MAX_SHARDS:
            message = "the index has no shards, and so no columns" if not root.shards else "too many shards"
            raise self._error(message, "shards", found=len(root.shards), expected=f"1 to {MAX_SHARDS}")
        layout, columns = None, None
        entries, numbers, ids, names = [], [], [], set[str]()
        for number, raw in enumerate(root.shards):
            place = f"shards[{number}]"
            shard = self._shard(raw, place)
            found = self._columns(shard, place)
            if layout is None:
                layout, columns = self._layout(found, place), found
            elif columns != found:
                message = "its columns are not those of the first shard"
                raise self._error(message, place, found=found, expected=columns, unsupported=True)
            entry = self._entry(shard, place)
            if entry.name in names:
                raise self._error("two shards have the same file", f"{place}.basename", found=repr(entry.name[:200]))
            names.add(entry.name)
            stored = shard.zip_data or shard.raw_data
            self._check_room(shard, layout, place)
            entries.append(entry)
            numbers.append((shard.samples, stored.bytes, shard.raw_data.bytes + TRAILER))
            # Datasets of equal sizes can have equal indexes. Without hashes, only the place tells them apart in the
            # cache. The text has the names of the entry's fields: to rename one is to rename all cached shards.
            home = "" if entry.hashed else self._file
            text = f"{number}\n{entry}\n{numbers[-1]}\n{home}"
            ids.append(xxhash.xxh3_128_digest(text.encode(errors="surrogateescape")))
        assert layout is not None
        arrays = np.array(numbers, np.int64).T.copy()
        raw_hashes = np.frombuffer(b"".join(ids), np.uint8).reshape(-1, 16)
        arrays.setflags(write=False)
        return MdsIndex(
            layout=layout,
            entries=tuple(entries),
            samples=int(arrays[0].sum()),
            counts=arrays[0],
            sizes=arrays[1],
            raw_sizes=arrays[2],
            raw_hashes=raw_hashes,
            fingerprint=xxhash.xxh3_128_hexdigest(data),
        )

    def _error(
        self, message: str, place: str, *, found: object = None, expected: object = None, unsupported: bool = False
    ) -> CorruptError | UnsupportedError:
        kind = UnsupportedError if unsupported else CorruptError
        return kind(message, file=self._file, place=place, found=found, expected=expected)

    def _decode(self, data: bytes | msgspec.Raw, decoder: msgspec.json.Decoder[_T], place: str) -> _T:
        try:
            return decoder.decode(data)
        except RecursionError:
            raise self._error("the JSON is nested too deeply", place) from None
        except msgspec.ValidationError as error:
            message, _, path = str(error).partition(" - at `$")
            raise self._error(message, (place + path.rstrip("`")).lstrip(".")) from None
        except ValueError as error:  # not JSON, or not UTF-8
            raise self._error(f"this is not JSON: {error}", place) from None

    def _check_version(self, version: int, place: str) -> None:
        if version != VERSION:
            raise self._error(
                "this version of MDS is not supported", place, found=version, expected=VERSION, unsupported=True
            )

    def _shard(self, raw: msgspec.Raw, place: str) -> _Shard:
        kind = self._decode(raw, _KIND, place)
        if kind.format != "mds":
            message = "the dataset's shards are not MDS shards"
            known = f"{kind.format} lines" if kind.format in _OTHER_FORMATS else repr(kind.format[:80])
            hint = "only MDS shards can be read in place; write the samples with mdsx.Writer"
            raise UnsupportedError(
                message, file=self._file, place=f"{place}.format", found=known, expected="mds", hint=hint
            )
        self._check_version(kind.version, f"{place}.version")
        return self._decode(raw, _SHARD, place)

    def _columns(self, shard: _Shard, place: str) -> list[tuple[str, str, int | None]]:
        names, encodings, sizes = shard.column_names, shard.column_encodings, shard.column_sizes
        if not len(names) == len(encodings) == len(sizes):
            found = [len(names), len(encodings), len(sizes)]
            raise self._error("the numbers of column names, encodings and sizes differ", place, found=found)
        return list(zip(names, encodings, sizes, strict=True))

    def _layout(self, found: list[tuple[str, str, int | None]], place: str) -> MdsLayout:
        columns, widths = [], []
        for number, (name, text, size) in enumerate(found):
            at = f"{place}.column_encodings[{number}]"
            try:
                encoding = parse_encoding(text, name, size)
            except CorruptError as error:
                raise self._error(error.message, at) from None
            if encoding is None:
                raise self._error("this is not an encoding", at, found=repr(text[:80]))
            if encoding.width != size:
                at, message = f"{place}.column_sizes[{number}]", f"not the size of a value of {text[:80]!r}"
                raise self._error(message, at, found=size, expected=encoding.width)
            columns.append(Column(name, encoding.type))
            widths.append(encoding.width)
        return MdsLayout(Schema.of(columns, file=self._file), tuple(widths))

    def _entry(self, shard: _Shard, place: str) -> MdsEntry:
        stored, name = shard.raw_data, None
        if shard.compression is not None:
            name = shard.compression.partition(":")[0]
            if name not in compressions.NAMES:
                at, expected = f"{place}.compression", ", ".join(compressions.NAMES)
                message = "this compression is not supported"
                raise self._error(message, at, found=repr(name[:80]), expected=expected, unsupported=True)
        if (shard.zip_data is None) != (name is None):
            raise self._error("a compressed file and a compression must be given together", f"{place}.zip_data")
        if shard.zip_data is not None:
            stored = shard.zip_data
        raw_hashes = self._hashes(shard.raw_data.hashes, f"{place}.raw_data.hashes")
        stored_hashes = self._hashes(stored.hashes, f"{place}.zip_data.hashes") if name else raw_hashes
        key = stored.basename
        components = key.split("/")
        if (
            len(key) > MAX_NAME_SIZE
            or any(part in (".", "..") for part in components)
            or not all(map(_COMPONENT.fullmatch, components))
        ):
            message, expected = "this may not be a file's name", "a path within the dataset's folder"
            raise self._error(message, f"{place}.basename", found=repr(key[:200]), expected=expected)
        return MdsEntry(key, name, stored_hashes, raw_hashes)

    def _hashes(self, found: dict[str, str], place: str) -> dict[str, str]:
        for name, digits in found.items():
            if not hashes.is_known(name):
                raise self._error("this hash is not supported", place, found=repr(name[:80]), unsupported=True)
            size = 2 * hashes.digest_size(name)
            if len(digits) != size or not _HEXADECIMAL.fullmatch(digits):
                expected = f"{size} lower-case hexadecimal digits"
                raise self._error("this is not a hash", f"{place}.{name}", found=repr(digits[:80]), expected=expected)
        return found or _NONE

    def _check_room(self, shard: _Shard, layout: MdsLayout, place: str) -> None:
        """Check that the raw file is large enough for its samples, so that false claims cost no memory."""
        least = 4 * (shard.samples + 2) + shard.samples * layout.least
        if not least <= shard.raw_data.bytes <= _MAX_RAW_SIZE:
            found = f"{shard.raw_data.bytes} bytes for {shard.samples} samples"
            expected = f"{least} to {_MAX_RAW_SIZE}"
            raise self._error("the size is impossible", f"{place}.raw_data.bytes", found=found, expected=expected)
        if shard.zip_data is not None and shard.raw_data.bytes > most_unpacked(shard.zip_data.bytes):
            raise CorruptError(
                "the compressed bytes are too few to hold the shard",
                file=self._file,
                place=f"{place}.raw_data.bytes",
                found=f"{shard.raw_data.bytes} bytes of {shard.zip_data.bytes}",
                expected=f"at most {MOST_UNPACKED}",
                hint="store it without compression",
            )
