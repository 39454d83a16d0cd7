"""Parse the index, and check everything in it that can be checked without the shards.

The raw bytes are checked first: the beginning (a later version may change everything after it), the end, and the
checksum. The rest may be any JSON text. The arrays of numbers and hashes are parsed separately, because a large index
has hundreds of megabytes. Unknown keys are ignored: a later minor version may add some.
"""

from __future__ import annotations

import binascii
import re
from typing import Annotated, Any, ClassVar, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from mdsx.base.strict_json import parse_json
from mdsx.errors import CorruptError, UnsupportedError, shown
from mdsx.format.filenames import INDEX, NameRun, is_name, join_name
from mdsx.format.frames import MAX_FRAMES, frame_count, seek_table_size
from mdsx.format.index import MAX_METADATA_SIZE, MAX_SHARDS, VERSION, Index, exact_sum, fingerprint_of
from mdsx.format.lengths import MAX_LENGTH
from mdsx.format.plain_arrays import plain_hexadecimal, plain_integers
from mdsx.format.schema import HEADER_SIZE, Schema, up
from mdsx.format.seal import END_SIZE, checksums, shown_version
from mdsx.format.shard import MAX_HEADER_SIZE, MAX_SIZE

_T = TypeVar("_T")

_MOST_SAMPLES = 2**62 - 1

_START = re.compile(rb'\{"format":"mdsx","version":(0|[1-9][0-9]*),')
_CHUNK = 2**16  # shards to check at once
_SHORT = 2**12  # shorter texts of numbers are parsed faster one by one than as an array

_Number = Annotated[int, msgspec.Meta(ge=0, le=MAX_SIZE)]


class _ColumnText(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    type: str


class _ShardArrays(msgspec.Struct):
    files: list[NameRun]
    samples: msgspec.Raw
    row_key: msgspec.Raw
    size: msgspec.Raw
    xxh3_128: msgspec.Raw
    raw_size: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    raw_xxh3_128: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Root(msgspec.Struct):
    columns: list[_ColumnText]
    rows_offset: _Number
    row_size: _Number
    samples: _Number
    shards: _ShardArrays
    fingerprint: str
    metadata: msgspec.Raw
    compression: str | None = None
    lengths: dict[str, _Number] = {}
    requires: list[str] = msgspec.field(default_factory=list)


class _Requires(msgspec.Struct):
    requires: list[str] = msgspec.field(default_factory=list)


# msgspec prepares a type on first use, and crashes if two threads do so at once. So prepare the types here.
_ROOT, _REQUIRES = msgspec.json.Decoder(_Root), msgspec.json.Decoder(_Requires)
_INTEGERS = msgspec.json.Decoder(list[int])
_TEXT = msgspec.json.Decoder(str)


def parse_index(data: bytes, *, file: str | None = None) -> Index:
    """Parse an index. Raise CorruptError or UnsupportedError."""
    return _Parser(file).parse(data)


class _Parser:
    def __init__(self, file: str | None) -> None:
        self._file = file

    def parse(self, data: bytes) -> Index:
        self._check_bytes(data)
        if b'"requires"' in data:  # first, because a feature may change the meaning of other keys
            self._check_requires(self._decode(data, _REQUIRES).requires)
        root = self._decode(data, _ROOT)
        self._check_requires(root.requires)
        schema = Schema.from_pairs(((column.name, column.type) for column in root.columns), file=self._file)
        if root.compression not in (None, "zstd"):
            message = f"compression {root.compression[:80]!r} is not known to this version"
            raise UnsupportedError(message, file=self._file, place="compression", hint="upgrade mdsx")
        self._check_layout(root, schema)
        shards = root.shards
        counts = self._integers(shards.samples, "samples")
        if len(counts) > MAX_SHARDS:
            raise self._error("too many shards", "shards", found=len(counts), expected=f"at most {MAX_SHARDS}")
        keys = self._hashes(shards.row_key, "row_key", 8, len(counts)).view(">u8").reshape(-1).astype(np.uint64)
        sizes = raw_sizes = self._integers(shards.size, "size", len(counts))
        hashes = raw_hashes = self._hashes(shards.xxh3_128, "xxh3_128", 16, len(counts))
        if root.compression is None:
            if shards.raw_size is not msgspec.UNSET or shards.raw_xxh3_128 is not msgspec.UNSET:
                raise self._error("only a compressed dataset has raw sizes and hashes", "shards")
        else:
            if shards.raw_size is msgspec.UNSET or shards.raw_xxh3_128 is msgspec.UNSET:
                raise self._error("the dataset is compressed, but has no raw sizes or no raw hashes", "shards")
            raw_sizes = self._integers(shards.raw_size, "raw_size", len(counts))
            raw_hashes = self._hashes(shards.raw_xxh3_128, "raw_xxh3_128", 16, len(counts))
        files = self._files(shards.files, len(counts))
        samples = self._sum(counts, root.samples)
        for first in range(0, len(counts), _CHUNK):
            some = slice(first, first + _CHUNK)
            self._check_raw_sizes(schema, root.rows_offset, counts[some], raw_sizes[some], first)
        if root.compression is not None:
            for first in range(0, len(counts), _CHUNK):
                some = slice(first, first + _CHUNK)
                self._check_frames(sizes[some], raw_sizes[some], first)
        computed = fingerprint_of(schema, counts, raw_sizes, raw_hashes)
        if computed != root.fingerprint:
            message, stored = "it is not that of these shards", root.fingerprint[:80]
            raise self._error(message, "fingerprint", found=stored, expected=computed)
        for array in (counts, keys, sizes, raw_sizes):
            array.setflags(write=False)
        firsts = np.cumsum([0, *(count for *_, count in files[:-1])], dtype=np.int64)
        firsts.setflags(write=False)
        return Index(
            schema=schema,
            compression=root.compression,
            rows_offset=root.rows_offset,
            samples=samples,
            counts=counts,
            row_keys=keys,
            sizes=sizes,
            hashes=hashes,
            raw_sizes=raw_sizes,
            raw_hashes=raw_hashes,
            files=files,
            firsts=firsts,
            fingerprint=computed,
            lengths=self._lengths(root.lengths, schema, samples),
            metadata=self._metadata(root.metadata),
        )

    def _error(
        self,
        message: str,
        place: str | None = None,
        *,
        found: object = None,
        expected: object = None,
        hint: str | None = None,
    ) -> CorruptError:
        return CorruptError(message, file=self._file, place=place, found=found, expected=expected, hint=hint)

    def _check_bytes(self, data: bytes) -> None:
        """Check the beginning, the end and the checksum."""
        start = _START.match(data)
        if start is None:
            found, expected = repr(data[:40]), '{"format":"mdsx","version":1,'
            hint = "this is a web page: check the URL" if data.lstrip()[:1] == b"<" else None
            raise self._error("this is no mdsx index", "its first bytes", found=found, expected=expected, hint=hint)
        if start[1] == b"0":
            raise self._error("there is no such version", "version", found=0, expected=1)
        if start[1] != VERSION:
            message = f"the index is of version {shown_version(start[1])}, this reader knows {VERSION.decode()}"
            raise UnsupportedError(message, file=self._file, place="version", hint="upgrade mdsx")
        computed, stored = checksums(data)
        if stored is None:
            found, expected = (
                repr(data[-END_SIZE:]),
                ',"checksum":"<16 lower-case hexadecimal digits>"} and a line feed',
            )
            raise self._error("the index is cut or damaged", "its last bytes", found=found, expected=expected)
        if computed != stored:
            hint = "copy it from a complete copy of the dataset; an index cannot be edited by hand"
            raise self._error("the index is damaged", "checksum", found=computed, expected=stored, hint=hint)

    def _check_requires(self, features: list[str]) -> None:
        """Raise UnsupportedError if the index requires any feature: this version knows none."""
        if features:
            message = f"the index requires {shown(features[0])}, which is not known to this version"
            raise UnsupportedError(message, file=self._file, place="requires", hint="upgrade mdsx")

    def _decode(self, data: bytes | msgspec.Raw, decoder: msgspec.json.Decoder[_T], place: str = "") -> _T:
        try:
            return decoder.decode(data)
        except RecursionError:
            raise self._error("the JSON is nested too deeply", place or None) from None
        except msgspec.ValidationError as error:
            message, _, path = str(error).partition(" - at `$")
            raise self._error(message, (place + path.rstrip("`")).lstrip(".") or None) from None
        except ValueError as error:  # not JSON, or not UTF-8
            raise self._error(f"this is not JSON: {error}", place or None) from None

    def _check_layout(self, root: _Root, schema: Schema) -> None:
        """Check that the offset of the rows fits an allowed header size. Each shard must have the same offset."""
        if root.row_size != schema.row_size:
            message = "not what the columns need"
            raise self._error(message, "row_size", found=root.row_size, expected=schema.row_size)
        least, most = (up(size + len(schema.json), 64) for size in (HEADER_SIZE, MAX_HEADER_SIZE))
        if root.rows_offset % 64 or not least <= root.rows_offset <= most:
            message = "not after header and schema"
            raise self._error(message, "rows_offset", found=root.rows_offset, expected=least)

    def _integers(self, raw: msgspec.Raw, key: str, count: int | None = None) -> NDArray[np.int64]:
        """Return an array of `count` integers from 0 to 2^63 - 1."""
        place = f"shards.{key}"
        found = plain_integers(raw) if len(memoryview(raw)) > _SHORT else None
        if found is None:
            try:
                numbers = self._decode(raw, _INTEGERS, place)
                found = np.fromiter(numbers, np.int64, len(numbers))
            except OverflowError:
                raise self._error("a number is 2^63 or more", place) from None
        if found.min(initial=0) < 0:
            raise self._error("a number is negative", place, found=int(found.min()))
        if count not in (None, len(found)):
            raise self._error("not as many shards as in samples", place, found=len(found), expected=count)
        return found

    def _hashes(self, raw: msgspec.Raw, key: str, size: int, count: int) -> NDArray[np.uint8]:
        """Return `count` hashes of `size` bytes, [count, size], from one string of their digits."""
        place = f"shards.{key}"
        found = plain_hexadecimal(raw)
        text = self._decode(raw, _TEXT, place) if found is None else ""
        digits = len(text) if found is None else 2 * len(found)
        if digits != 2 * size * count:
            message = "not as many digits as the shards need"
            raise self._error(message, place, found=digits, expected=2 * size * count)
        try:
            if any(digit in text for digit in "ABCDEF"):
                raise ValueError
            found = np.frombuffer(binascii.unhexlify(text), np.uint8) if found is None else found
        except ValueError:
            raise self._error("these are not lower-case hexadecimal digits", place) from None
        found.setflags(write=False)
        return found.reshape(count, size)

    def _files(self, runs: list[NameRun], shards: int) -> tuple[NameRun, ...]:
        suffixes: dict[str, str] = {}
        found = []
        for number, (prefix, suffix, first, count) in enumerate(runs):
            place = f"shards.files[{number}]"
            if first < 0 or count < 1 or first + count > MAX_SIZE:
                raise self._error("numbers out of range", place, found=[first, count])
            name = join_name(prefix, suffix, first + count - 1)  # the longest; the others differ only in their digits
            if not is_name(name):
                raise self._error("this may not be a file's name", place, found=repr(name[:600]))
            found.append((prefix, suffixes.setdefault(suffix, suffix), first, count))
        total = sum(count for *_, count in found)
        if total != shards:
            raise self._error("not as many shards as in samples", "shards.files", found=total, expected=shards)
        return tuple(found)

    def _sum(self, counts: NDArray[np.int64], stored: int) -> int:
        total = exact_sum(counts)
        if total > _MOST_SAMPLES:
            message = "more samples than an order can have"
            raise self._error(message, "samples", found=total, expected="below 2^62")
        if stored != total:
            raise self._error("not the sum over the shards", "samples", found=stored, expected=total)
        return total

    def _check_raw_sizes(
        self, schema: Schema, rows_offset: int, counts: NDArray[np.int64], raw_sizes: NDArray[np.int64], first: int
    ) -> None:
        """Check that each shard, from number `first` on, has room for its rows, and has no heap if it needs none."""
        fits = counts <= raw_sizes // schema.row_size  # else the product may overflow
        spare = raw_sizes - rows_offset - np.where(fits, counts, 0) * schema.row_size
        heaps = spare - (spare - raw_sizes) % 64  # a heap begins at a multiple of 64
        wrong = ~fits | (heaps < 0) | ((heaps > 0) & (not schema.variable or counts == 0))
        if wrong.any():
            shard = int(wrong.argmax())
            found = f"{raw_sizes[shard]} bytes for {counts[shard]} samples"
            raise self._error("the size cannot hold the samples", f"raw size of shard {first + shard}", found=found)

    def _check_frames(self, sizes: NDArray[np.int64], raw_sizes: NDArray[np.int64], first: int) -> None:
        """Check that each stored object, from number `first` on, has room for its seek table."""
        wrong = (frame_count(raw_sizes) > MAX_FRAMES) | (seek_table_size(raw_sizes) > sizes)
        if wrong.any():
            shard = int(wrong.argmax())
            found = f"{sizes[shard]} bytes for {raw_sizes[shard]}"
            place = f"raw size of shard {first + shard}"
            raise self._error("the stored size cannot hold its frames", place, found=found)

    def _lengths(self, sums: dict[str, int], schema: Schema, samples: int) -> dict[str, int]:
        """Return the sums of lengths, including those by columns of later types."""
        names = {column.name for column in schema.columns}
        for name, found in sums.items():
            place = f"lengths[{name[:80]!r}]"
            if name not in names:
                raise self._error("there is no such column", place)
            if found > samples * MAX_LENGTH:
                message = f"{samples} samples cannot have that sum of lengths"
                raise self._error(message, place, found=found, expected=f"at most {samples * MAX_LENGTH}")
        return sums

    def _metadata(self, raw: msgspec.Raw) -> dict[str, Any]:
        text = bytes(raw)
        if len(text) > MAX_METADATA_SIZE:
            raise self._error("it is too large", "metadata", found=f"{len(text)} bytes", expected="at most 1 MiB")
        try:
            metadata = parse_json(text)
        except CorruptError as error:
            raise self._error(str(error), "metadata") from None
        if not isinstance(metadata, dict):
            raise self._error("it is not an object", "metadata")
        return metadata


class MdsxFormat:
    """Our own format: see `protocol.StoredFormat`."""

    name = Index.format
    index_key = INDEX
    files: ClassVar[dict[str, str]] = {
        r"mdsx(?:\.\w+)?": "the index is written last: wait for the writer; if it died, run it again with "
        "resume=True, or see `mdsx repair {url}`"
    }

    def recognizes(self, data: bytes) -> bool:
        return data.startswith(b'{"format":"mdsx"')

    def parse_index(self, data: bytes, *, file: str) -> Index:
        return parse_index(data, file=file)
