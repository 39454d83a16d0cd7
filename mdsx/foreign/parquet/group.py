"""A row group as a shard in our format, made from the bytes of its column chunks when it is fetched.

The cache keeps this shard, and all processes map it. It is followed by 32 bytes: the hash that names it in the cache,
so that no shard is taken for another, and the shard's XXH3-128, so that a cached shard is checked at memory speed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import xxhash

from mdsx.errors import CorruptError, SampleError, UnsupportedError
from mdsx.foreign.arrow import encode_batch, pa
from mdsx.foreign.parquet.footer import Footer, open_file, readable
from mdsx.foreign.parquet.metadata import DICTIONARY, START, UNCOMPRESSED
from mdsx.foreign.parquet.text import AGAIN
from mdsx.foreign.parquet.thrift import Thrift, ThriftError
from mdsx.format import Encoded, Encoder, Range, Schema, ShardBuilder, ShardView

if TYPE_CHECKING:
    from typing_extensions import Buffer

TRAILER_SIZE = 32
MAX_SHARD_SIZE = 2**32
"""The most bytes of a decoded row group: a few bytes in a hostile file may claim any size."""

_BATCH_BYTES = 2**25  # decoded at once
_FEWEST, _MOST = 64, 2**16  # rows decoded at once
_FIRST = 1024  # rows whose sizes are measured
_PAGE_HEAD, _PAGE_SIZE = 256, 2  # bytes of a page's header to parse; its field with the page's uncompressed size
_DECLARED = f"{AGAIN}, with --column NAME=TYPE to give the column another type, or without it to use the file's"


def chosen_leaves(footer: Footer, schema: Schema) -> list[int]:
    """Return the numbers of the column chunks for the columns of `schema`. Raise CorruptError."""
    for column in schema.columns:
        if column.name not in footer.leaves:
            raise CorruptError(f"it has no column {column.name[:80]!r}", file=footer.file, place="schema")
    return [leaf for column in schema.columns for leaf in footer.leaves[column.name]]


def build_shard(
    footer: Footer, group: int, schema: Schema, ranges: Sequence[Range], parts: Sequence[memoryview], name: bytes
) -> list[Buffer]:
    """Return the raw bytes of a row group with the columns of `schema`, in pieces.

    `parts` are the bytes of the `ranges` of its column chunks, and `name` is the hash that names the result in the
    cache. Raise CorruptError, with the column if possible, or UnsupportedError.
    """
    encoder, builder = Encoder(schema), ShardBuilder(schema, 2 * MAX_SHARD_SIZE)
    file, place, size = footer.file, f"row group {group}", 0
    if footer.rows(group) * schema.row_size > MAX_SHARD_SIZE:
        raise _too_large(file, place)
    try:
        for batch in read_batches(footer, group, chosen_leaves(footer, schema), ranges, parts):
            for encoded in _encode(encoder, batch, place, builder.samples, file):
                builder.add(encoded)
                size += _size(encoded) + encoded.samples * schema.row_size
            if size > MAX_SHARD_SIZE:
                raise _too_large(file, place)
    except CorruptError:
        for column in schema.columns if len(schema.columns) > 1 else ():
            _try_alone(footer, group, column.name, ranges, parts)
        raise
    footer.check_rows(group, builder.samples)
    shard = builder.pieces()
    return [*shard, name, shard.digest()]


def _too_large(file: str, place: str) -> UnsupportedError:
    message, hint = "the row group is too large", "write it again with smaller row groups"
    return UnsupportedError(message, file=file, place=place, expected="at most 4 GiB decoded", hint=hint)


def mean_sizes(
    footer: Footer, group: int, schema: Schema, ranges: Sequence[Range], parts: Sequence[memoryview]
) -> dict[str, float]:
    """Return the average heap bytes of each column's values, over a row group's first rows."""
    found = {}
    for column in schema.columns:
        encoder, leaves = Encoder(Schema((column,))), list(footer.leaves[column.name])
        for batch in read_batches(footer, group, leaves, ranges, parts, most=_FIRST):
            encoded = _encode(encoder, batch, f"row group {group}", 0, footer.file)
            found[column.name] = sum(map(_size, encoded)) / max(batch.num_rows, 1)
            break
    return found


def _size(encoded: Encoded) -> int:
    return int(encoded.stops[-1]) if encoded.samples else 0


def _try_alone(footer: Footer, group: int, name: str, ranges: Sequence[Range], parts: Sequence[memoryview]) -> None:
    """Raise CorruptError, with the column's name, if this column cannot be decoded."""
    try:
        for _ in read_batches(footer, group, list(footer.leaves[name]), ranges, parts):
            pass
    except CorruptError as error:
        place = f"row group {group}, column {name[:80]!r}"
        raise CorruptError(error.message, file=footer.file, place=place) from None


def read_batches(
    footer: Footer,
    group: int,
    leaves: list[int],
    ranges: Sequence[Range],
    parts: Sequence[memoryview],
    most: int = _MOST,
) -> Iterator[Any]:
    """Yield record batches of some columns of a row group, of about 32 MiB and at most `most` rows each.

    `parts` are the bytes of `ranges` of the file. Each of the `leaves`, the column chunks, is inside one range. Raise
    CorruptError or UnsupportedError.
    """
    chunks = footer.metadata.chunks[group, leaves]
    claimed = int(chunks[:, UNCOMPRESSED].sum())
    rows = min(max(_BATCH_BYTES * footer.rows(group) // max(claimed, 1), _FEWEST), most)
    for start, has_dictionary in chunks[:, [START, DICTIONARY]].tolist():
        if has_dictionary:  # its first page: one value may fill it, and be the value of every row
            rows = min(rows, max(MAX_SHARD_SIZE // max(_page_size(start, ranges, parts), 1), 1))
    with readable(footer.file, f"row group {group}"):
        source = pa.PythonFile(_FetchedBytes(footer.offset, ranges, parts), mode="r")
        opened = open_file(source, footer.parsed)
        yield from opened.reader.iter_batches(rows, row_groups=[group], column_indices=leaves, use_threads=False)


def _page_size(offset: int, ranges: Sequence[Range], parts: Sequence[memoryview]) -> int:
    """Return the size of the uncompressed page at `offset` of the file, by its header; 0 if that cannot be parsed."""
    for (start, stop), part in zip(ranges, parts, strict=True):
        if start <= offset < stop:
            with suppress(ThriftError, IndexError):
                head = bytes(part[offset - start : offset - start + _PAGE_HEAD])
                return int(Thrift(head).struct({_PAGE_SIZE: Thrift.integer}).get(_PAGE_SIZE, 0))
    return 0


def _encode(encoder: Encoder, batch: Any, place: str, first: int, file: str) -> list[Encoded]:
    """Encode a batch that begins with row `first` of the row group `place`. Raise CorruptError for values that do not
    fit the declared types."""
    try:
        return encode_batch(encoder, batch)
    except SampleError as error:
        at = f"{place}, after row {first}" + (f", {error.place}" if error.place else "")
        raise CorruptError(
            error.message,
            file=file,
            place=at,
            found=error.found,
            expected=error.expected,
            hint=error.hint or _DECLARED,
        ) from None


class _FetchedBytes:
    """The fetched ranges of a file, as a Python file. Reading other bytes is an error."""

    closed = False

    def __init__(self, size: int, ranges: Sequence[Range], parts: Sequence[memoryview]) -> None:
        self._size, self._at = size, 0
        self._parts = [(start, stop, part) for (start, stop), part in zip(ranges, parts, strict=True)]

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, count: int = -1) -> memoryview:
        first = self._at
        last = self._size if count < 0 else min(first + count, self._size)
        for start, stop, part in self._parts:
            if start <= first and last <= stop:
                self._at = last
                return part[first - start : last - start]
        raise OSError(f"bytes [{first}, {last}) belong to none of its column chunks")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True

    def flush(self) -> None:
        return


@dataclass(frozen=True, slots=True, eq=False)
class GroupView(ShardView):
    """A row group's shard, with the XXH3-128 that follows it."""

    hash: bytes = b""

    @classmethod
    def of(cls, raw: Buffer, *, name: bytes, schema: Schema, samples: int, file: str) -> GroupView:
        """Parse the raw bytes that `build_shard` returned. Raise CorruptError if they have another name than `name`."""
        view = memoryview(raw).cast("B").toreadonly()
        if len(view) < TRAILER_SIZE or view[-TRAILER_SIZE:-16] != name:
            raise CorruptError("the cached row group is damaged, or belongs to another file", file=file)
        shard = ShardView.parse(view[:-TRAILER_SIZE], file=file, schema=schema)
        if shard.samples != samples:
            message = "the cached row group has another number of rows"
            raise CorruptError(message, file=file, found=shard.samples, expected=samples)
        return cls(
            buffer=shard.buffer,
            file=file,
            schema=schema,
            row_key=shard.row_key,
            rows_offset=shard.rows_offset,
            rows=shard.rows,
            heap=shard.heap,
            hash=bytes(view[-16:]),
        )

    def verify(self) -> None:
        """Raise CorruptError if the shard has changed since it was made."""
        found, expected = xxhash.xxh3_128_hexdigest(self.buffer), self.hash.hex()
        if found != expected:
            message = "the cached row group is damaged"
            raise CorruptError(message, file=self.file, place="XXH3-128", found=found, expected=expected)
