"""The protocols of stored formats: how the reading layers find samples in files of any format.

A format is pure: bytes in, samples out, without I/O. `mdsx/shards/` does the I/O, and the layers above it do not know
which format they read. Our own format is one of them.

The *stored* bytes of a shard are those of its object in storage. Its *raw* bytes are kept in the cache and passed to
`open`: the stored bytes, decompressed or otherwise converted if necessary.

Every format has a `StoredFormat` and a `StoredIndex`. Other capabilities of an index are separate protocols, which
`mdsx/shards/` checks for by isinstance. An index has one of the first three, and any of the others:

| capability | meaning |
|---|---|
| `ReadsWhole` | each shard is an object, which is fetched whole |
| `ReadsParts` | each shard is a part of an object |
| `ReadsExtents` | each shard consists of unchanged bytes of one or several objects |
| `ReadsSamples` | single samples can be read from an object by byte range |
| `NeedsSideObjects` | reading a shard needs another object, next to the index |
| `ProjectsColumns` | columns are stored separately, so that only some need to be fetched |
| `ReadsLengths` | lengths can be read without the values |
| `EstimatesLengths` | the index alone determines the mean length |
| `ReadsRows` | fixed-size values can be read without the others |
| `FindsDamage` | damage can be described more precisely than by the checks of `ReadsWhole` |

In any format, samples are selected (`Selection`), so that the samples of a batch can come from many shards, of several
formats, and one call copies each column.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import CorruptError
from mdsx.format.schema import Schema
from mdsx.format.selection import Selection

if TYPE_CHECKING:
    from typing_extensions import Buffer

T = TypeVar("T")


Range = tuple[int, int]
"""Half-open, in bytes of a stored object."""


class Extent(NamedTuple):
    """Bytes [start, stop) of an object of `size` bytes with the key `name`. `etag`: the object's ETag when it was
    indexed, "" if unknown. An object with this ETag needs no other check; a copy may have another one."""

    name: str
    size: int
    start: int
    stop: int
    etag: str = ""


class SideObject(NamedTuple):
    """An object that is read with a shard: its key next to the index, its size, and its XXH3-128 in hexadecimal.

    `total`: the size of an object that has the side objects of several shards; this one begins at `start`.
    """

    name: str
    size: int
    hash: str
    start: int = 0
    total: int | None = None

    @property
    def stop(self) -> int:
        """Return where the bytes end in the object."""
        return self.start + self.size

    @property
    def object_size(self) -> int:
        """Return the size of the whole object."""
        return self.size if self.total is None else self.total


Reading = Generator[Sequence[Range], Sequence[memoryview], T]
"""A generator that yields ranges of one stored object, is sent their bytes, and returns its result."""


class OpenedShard(Protocol):
    """The raw bytes of a shard, parsed enough to find its samples."""

    @property
    def buffer(self) -> memoryview: ...
    @property
    def samples(self) -> int: ...
    @property
    def checks_samples(self) -> bool:
        """Whether a sample can be checked by itself. Otherwise the whole shard is checked before it is read."""

    @property
    def checks_cheaply(self) -> bool:
        """Whether checking a sample takes less time than checking whether the file has changed: about 2 us."""

    def select(self, samples: NDArray[np.int64], *, verify: bool) -> Selection:
        """Select `samples` (int64 [n]). With `verify`, check each one. Raise CorruptError."""

    def lengths(self, column: int) -> NDArray[np.int64]:
        """Return the length of each sample, int64 [n], by the column with this number, which has a `length_rule`.

        Read no more than necessary. Raise CorruptError.
        """


class Receiver(Protocol):
    """Checks the stored bytes of a shard while they arrive."""

    def feed(self, chunk: Buffer) -> Iterable[Buffer]:
        """Return the raw bytes that are complete with the next `chunk`. Raise CorruptError."""

    def finish(self) -> None:
        """Raise CorruptError unless the bytes fed are the complete shard that the index names."""


class Decoder(Protocol):
    """Decodes single samples of opened shards into the values that users get."""

    def decode(self, shard: Any, sample: int, *, verify: bool) -> dict[str, Any]:
        """Return column name -> value. With `verify`, check the sample first, unless it has been checked.

        Raise CorruptError.
        """


class RangeReader(Protocol):
    """Reads samples of one shard from the stored object, request by request. It may keep bytes for later requests."""

    def select(self, samples: NDArray[np.int64]) -> Reading[Selection]:
        """Select `samples` (int64 [n]), each checked. Raise CorruptError."""

    def check(self) -> Reading[None]:
        """Raise CorruptError if the shard itself is damaged, or is another shard, so that no sample can be read."""


class StoredIndex(Protocol):
    """The index of one dataset: its shards, and how their bytes become samples. It can be pickled.

    Arrays have one item for each shard. `file`: the full name of a shard's object, for messages.
    """

    __slots__ = ()

    @property
    def format(self) -> str:
        """The format's name, as people write it: "mdsx", "MDS", "Parquet"."""

    @property
    def checks(self) -> str:
        """How read bytes are checked, in a few words for `mdsx info`: "SHA1 of shards"."""

    @property
    def schema(self) -> Schema: ...
    @property
    def samples(self) -> int: ...
    @property
    def counts(self) -> NDArray[np.int64]:
        """Numbers of samples."""

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Stored bytes."""

    @property
    def raw_sizes(self) -> NDArray[np.int64]:
        """Raw bytes. For `ReadsParts` they are estimates; the cache learns the exact size when it has a shard."""

    @property
    def raw_hashes(self) -> NDArray[np.uint8]:
        """[S, 16]: hashes that identify the raw bytes, and name them in the cache."""

    @property
    def compression(self) -> str | None:
        """The compression. None: stored and raw bytes are the same, and a local shard is mapped in place."""

    @property
    def fingerprint(self) -> str:
        """Identifies the dataset's content: 32 lower-case hexadecimal digits."""

    @property
    def metadata(self) -> dict[str, Any]: ...

    def name(self, shard: int) -> str:
        """Return the key of the shard's object."""

    def open(self, shard: int, raw: Buffer, *, file: str) -> OpenedShard:
        """Parse the raw bytes of a shard in constant time. Raise CorruptError if they are not this shard's."""

    def verify(self, shard: int, opened: Any, *, file: str) -> None:
        """Raise CorruptError, with the place if possible, unless all raw bytes are those that the index names."""

    def check(self, shard: int, raw: Buffer, *, file: str) -> Sequence[CorruptError]:
        """Check received raw bytes against every rule that can be tested, and return the problems."""

    def decoder(self, columns: Mapping[str, int]) -> Decoder:
        """Return a decoder of `columns`: new name -> number in the schema. See `RowDecoder`."""


@runtime_checkable
class ReadsWhole(Protocol):
    """Each shard is a separate object, which can be fetched whole."""

    __slots__ = ()

    def receive(self, shard: int, *, file: str) -> Receiver:
        """Return the checks for a whole object."""


@runtime_checkable
class ReadsParts(Protocol):
    """Each shard is a part of an object. `name` returns the same key for all parts of an object."""

    __slots__ = ()

    def object_size(self, shard: int) -> int:
        """Return the size of the shard's object."""

    def read_part(self, shard: int, *, file: str) -> Reading[Sequence[Buffer]]:
        """Return a reading of the raw bytes of a shard, in pieces.

        It raises CorruptError if the part is damaged: `on_error="skip"` then skips its samples. It raises ChangedError
        if the object is not the one that was indexed.
        """


@runtime_checkable
class ReadsExtents(Protocol):
    """The stored bytes of a shard are its extents, concatenated. Local ones are mapped in place."""

    __slots__ = ()

    def extents(self, shard: int) -> Sequence[Extent]:
        """Return the extents of the stored bytes: at least one, each in a separate object. `name` returns the key of
        the first one."""

    def identify(self, shard: int, extent: int, *, file: str) -> Reading[None]:
        """Return a reading that checks that the object of the extent with this number is the one that was indexed. Its
        ranges are offsets in the whole object. It raises ChangedError."""

    def receive_extents(self, shard: int, *, file: str) -> Receiver:
        """Return the checks for all stored bytes of a shard. They need no side object."""


@runtime_checkable
class ReadsSamples(Protocol):
    """Single samples can be read from the object of a shard; for `ReadsExtents`, by ranges of the shard's bytes."""

    __slots__ = ()

    def has_ranges(self, shard: int) -> bool:
        """Return whether this shard supports it. Otherwise it is read whole."""

    def by_range(self, shard: int, *, file: str) -> RangeReader:
        """Return a reader of single samples."""


@runtime_checkable
class NeedsSideObjects(Protocol):
    """Each shard needs an object next to the index, with facts that the shard itself does not have.

    `mdsx/shards/` fetches it whole, checks its hash, keeps it in the cache, and passes it to `with_side_object`.
    """

    __slots__ = ()

    def side_object(self, shard: int) -> SideObject:
        """Return the object that must be read before the shard."""

    def with_side_object(self, shard: int, data: Buffer, *, file: str) -> StoredIndex:
        """Return an index with the same capabilities that can read this shard. Only `receive` needs no such index.

        `data`: the side object, with its hash verified; `file`: its full name. Raise CorruptError, which names the side
        object, if it does not fit.
        """


@runtime_checkable
class ProjectsColumns(Protocol):
    """Columns are stored separately."""

    __slots__ = ()

    def project(self, columns: Sequence[int]) -> StoredIndex:
        """Return an index of the same samples that reads only the columns with these numbers, in this order.

        The fingerprint stays the same; `raw_hashes` change.
        """


@runtime_checkable
class ReadsLengths(Protocol):
    """Lengths can be read without the values."""

    __slots__ = ()

    def read_lengths(self, shard: int, column: int, *, file: str) -> Reading[NDArray[np.int64]] | None:
        """Return a reading of the result of `OpenedShard.lengths` by range from the stored object; None if this column
        needs the whole shard. The reading raises CorruptError."""


@runtime_checkable
class EstimatesLengths(Protocol):
    """The index alone determines the mean length of samples."""

    __slots__ = ()

    def mean_length(self, column: int) -> Fraction | None:
        """Return the mean of the lengths by this column, or an estimate; None if the index does not determine it. The
        default window of groups follows from it, so it must be the same wherever this index is read."""

    def total_length(self, column: int) -> int | None:
        """Return the exact sum of the lengths by this column; None if the index does not have it."""
        return None


@runtime_checkable
class ReadsRows(Protocol):
    """Fixed-size values are stored separately from the others."""

    __slots__ = ()

    def read_rows(self, shard: int, *, file: str) -> Reading[Selection] | None:
        """Return a reading that selects all samples of the stored object for only their fixed-size values; None if that
        would read as much as the whole shard. The reading raises CorruptError."""


@runtime_checkable
class FindsDamage(Protocol):
    """The format can find more problems in damaged stored bytes than the first one."""

    __slots__ = ()

    def find_damage(
        self, shard: int, stored: memoryview, *, size: int, file: str, first: int | None
    ) -> Sequence[CorruptError]:
        """Return the problems of stored bytes that failed `receive` or `check`, as precisely as possible.

        `stored`: the first bytes of an object of `size` bytes, at most as many as the index says. `first`: the number
        in the dataset of the shard's first sample, for messages.
        """


class StoredFormat(Protocol):
    """A way of storing datasets."""

    @property
    def name(self) -> str:
        """The format's name, the same as `StoredIndex.format` of its indexes."""

    @property
    def index_key(self) -> str:
        """The key of a dataset's index."""

    def recognizes(self, data: bytes) -> bool:
        """Return whether an index with these bytes, even if damaged, has this format."""

    @property
    def files(self) -> Mapping[str, str]:
        """Regular expression for the endings of this format's files -> advice for a folder that has such files but no
        index. "{url}" stands for the folder, "{ending}" for the ending."""

    def parse_index(self, data: bytes, *, file: str) -> StoredIndex:
        """Parse and check an index. Raise CorruptError or UnsupportedError."""


def object_sizes(index: StoredIndex, shards: Iterable[int]) -> dict[str, int]:
    """Return the keys of these shards' objects, and their sizes."""
    if isinstance(index, ReadsExtents):
        return {extent.name: extent.size for shard in shards for extent in index.extents(shard)}
    if isinstance(index, ReadsParts):
        return {index.name(shard): index.object_size(shard) for shard in shards}
    return {index.name(shard): int(index.sizes[shard]) for shard in shards}
