"""The protocol of stored formats: all that the reading layers need to know about how samples are laid out in files.

A format is pure: bytes in, samples out, without I/O. `mdsx/shards/` does the I/O, and nothing above it knows which
format it reads. Our own format is the first one (`Index` implements `StoredIndex`).

The *stored* bytes of a shard are those of its object in storage. Its *raw* bytes are what the cache keeps and what
`open` takes: the same, or decompressed, or made from the stored bytes in another way. `Reads` says how a shard is read:

- SAMPLES: `by_range` says which bytes of the stored object the wanted samples need, request by request.
- SHARDS: the object is fetched whole, before its first sample, and passes `receive`.
- GROUPS: the shard is a part of a larger object. `read_group` says which bytes it needs, and returns its raw bytes.

A shard may need a *side object*, which is next to the index and says what the shard itself does not: an index of tars
has one for each tar. `mdsx/shards/` fetches it whole, checks its hash, keeps it in the cache, and gives it to
`with_side_object`. The index that this returns can read that shard.

Whatever the format, samples are selected (`Selection`) so that one batch can come from many shards, of several
formats, and each column of it is copied with one call.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from enum import Enum
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import CorruptError
from mdsx.format.decode import SampleDecoder
from mdsx.format.schema import Schema
from mdsx.format.selection import Selection
from mdsx.format.shard import ShardView

if TYPE_CHECKING:
    from typing_extensions import Buffer

T = TypeVar("T")


class Reads(Enum):
    """What can be read of a shard in storage."""

    SAMPLES = "single samples, by byte range"
    GROUPS = "the whole shard, which is a part of an object"
    SHARDS = "the whole shard, which is an object"


Range = tuple[int, int]
"""Half-open, in bytes of a stored object."""


class SideObject(NamedTuple):
    """An object that is read with a shard: its key next to the index, its bytes, and their XXH3-128 in hexadecimal."""

    name: str
    size: int
    hash: str


Reading = Generator[Sequence[Range], Sequence[memoryview], T]
"""A generator that yields ranges of one stored object, is sent their bytes, and returns its result."""


class OpenedShard(Protocol):
    """The raw bytes of a shard, parsed as far as needed to find its samples."""

    @property
    def buffer(self) -> memoryview: ...
    @property
    def samples(self) -> int: ...
    @property
    def checks_samples(self) -> bool:
        """Whether a sample can be checked by itself. Otherwise the shard is checked whole before it is read."""

    @property
    def checks_cheaply(self) -> bool:
        """Whether checking a sample takes less time than asking whether the file was changed: about 2 us."""

    def select(self, samples: NDArray[np.int64], *, verify: bool) -> Selection:
        """Select `samples` (int64 [n]). With `verify`, check each one. Raise CorruptError."""

    def lengths(self, column: int) -> NDArray[np.int64]:
        """Return the length of each sample, int64 [n], by the column with this number: one that has a `length_rule`.

        Read no more than this needs. Raise CorruptError.
        """


class Receiver(Protocol):
    """Checks the stored bytes of a shard while they arrive."""

    def feed(self, chunk: Buffer) -> Iterable[Buffer]:
        """Return the raw bytes that are complete with the next `chunk`. Raise CorruptError."""

    def finish(self) -> None:
        """Raise CorruptError unless the bytes fed are the whole shard that the index names."""


class Decoder(Protocol):
    """Decodes single samples of opened shards into values, as users get them."""

    def decode(self, shard: Any, sample: int, *, verify: bool) -> dict[str, Any]:
        """Return column name -> value. With `verify`, check the sample first, if its bytes are not known to be right.

        Raise CorruptError.
        """


class RangeReader(Protocol):
    """Finds samples of one shard in the stored object, request by request. It may keep bytes for later requests."""

    def select(self, samples: NDArray[np.int64]) -> Reading[Selection]:
        """Select `samples` (int64 [n]), each checked. Raise CorruptError."""

    def check(self) -> Reading[None]:
        """Raise CorruptError if the shard itself is damaged, or is another shard, so that no sample can be read."""


class StoredIndex(Protocol):
    """The shards of one dataset: what its index says, and how their bytes become samples. It can be pickled.

    Arrays have one item for each shard.
    """

    @property
    def format(self) -> str:
        """The format's name, as people write it: "mdsx", "MDS", "Parquet"."""

    @property
    def checks(self) -> str:
        """What is checked of the bytes that are read, in a few words for `mdsx info`: "SHA1 of shards"."""

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
        """Raw bytes, or estimates of them."""

    @property
    def exact_sizes(self) -> bool:
        """Whether `raw_sizes` are exact. Otherwise they are estimates, and the cache finds out when it has a shard."""

    @property
    def raw_hashes(self) -> NDArray[np.uint8]:
        """[S, 16]: hashes that identify the raw bytes, and name them in the cache."""

    @property
    def compression(self) -> str | None:
        """How stored and raw bytes differ. None: they are the same, and a local shard is mapped in place."""

    @property
    def fingerprint(self) -> str:
        """Identifies the dataset's content: 32 lower-case hexadecimal digits."""

    @property
    def metadata(self) -> dict[str, Any]: ...

    def name(self, shard: int) -> str:
        """Return the key of the shard's object."""

    def raw_hash(self, shard: int) -> str:
        """Return the shard's item of `raw_hashes` in hexadecimal."""

    def project(self, columns: Sequence[int]) -> StoredIndex:
        """Return an index of the same samples that reads only the columns with these numbers, in this order; or self,
        if the format cannot fetch columns apart. The fingerprint stays the same, `raw_hashes` do not."""

    def reads(self, shard: int) -> Reads:
        """Return how the shard is read from storage."""

    def side_object(self, shard: int) -> SideObject | None:
        """Return the object next to the index that must be read before the shard; None if it needs none."""

    def with_side_object(self, shard: int, data: Buffer, *, file: str) -> StoredIndex:
        """Return an index on which `open`, `check`, `by_range`, `read_lengths`, `read_rows` and `find_damage` can be
        called for this shard. `data` is its side object, whose hash is right, and `file` that one's full name. Only for
        a shard that has one. Raise CorruptError, which names the side object, if it does not fit."""

    def receive(self, shard: int, *, file: str) -> Receiver:
        """Return the checks for a whole object. Not for GROUPS. `file` is its full name, for messages, as below."""

    def read_group(self, shard: int, *, file: str) -> Reading[Sequence[Buffer]]:
        """Return how to get the raw bytes, in pieces, of a shard that is a part of an object. Only for GROUPS.

        It raises CorruptError if the group is damaged: `on_error="skip"` leaves its samples out. It raises ChangedError
        if the object is not the one that was indexed.
        """

    def object_size(self, shard: int) -> int:
        """Return the size of the object that has the shard."""

    def open(self, shard: int, raw: Buffer, *, file: str) -> OpenedShard:
        """Parse the raw bytes of a shard in constant time. Raise CorruptError if they are not those of this shard."""

    def verify(self, shard: int, opened: Any, *, file: str) -> None:
        """Raise CorruptError, with the place if possible, unless all raw bytes are those that the index names."""

    def check(self, shard: int, raw: Buffer, *, file: str) -> Sequence[CorruptError]:
        """Check raw bytes that passed a receiver against every rule that can be tested, and return the problems."""

    def by_range(self, shard: int, *, file: str) -> RangeReader:
        """Return the way to read single samples of the stored object. Only for SAMPLES."""

    def read_lengths(self, shard: int, column: int, *, file: str) -> Reading[NDArray[np.int64]] | None:
        """Return how to read what `OpenedShard.lengths` returns by range from the stored object; None if that needs the
        whole shard. The reading raises CorruptError."""

    def mean_length(self, column: int) -> Fraction | None:
        """Return the mean of the lengths by this column, from the index alone, or an estimate: the default window of
        groups follows from it, so it is the same wherever this index is read. None if the index has no estimate."""

    def read_rows(self, shard: int, *, file: str) -> Reading[Selection] | None:
        """Return how to select all samples of the stored object for their fixed-size values alone; None if that reads
        no less than the whole shard. The reading raises CorruptError."""

    def find_damage(
        self, shard: int, stored: memoryview, *, size: int, file: str, first: int | None
    ) -> Sequence[CorruptError]:
        """Return the problems of stored bytes that failed `receive` or `check`, as precisely as possible.

        `stored` holds the first bytes of an object of `size` bytes, at most as many as the index says. `first` is the
        number in the dataset of the shard's first sample, for messages. Not for GROUPS. See `check_stored`.
        """

    def decoder(self, columns: Mapping[str, int]) -> Decoder:
        """Return a decoder of `columns`: the name that each gets -> its number in the schema. See `RowDecoder`."""


class StoredFormat(Protocol):
    """A way of storing datasets."""

    @property
    def name(self) -> str:
        """The format's name: that of its indexes (`StoredIndex.format`)."""

    @property
    def index_key(self) -> str:
        """The key of a dataset's index."""

    def recognizes(self, data: bytes) -> bool:
        """Return whether an index with these bytes, even a damaged one, is of this format."""

    def parse_index(self, data: bytes, *, file: str) -> StoredIndex:
        """Parse and check an index. Raise CorruptError or UnsupportedError."""


class WholeShards:
    """What is the same in most indexes: base of a `StoredIndex` whose shards are objects of their own, read whole.

    A format that can do more replaces the methods: `reads`, and what goes with it.
    """

    __slots__ = ()

    exact_sizes: ClassVar[bool] = True

    if TYPE_CHECKING:  # at run time, these are attributes of the class below

        @property
        def schema(self) -> Schema: ...
        @property
        def sizes(self) -> NDArray[np.int64]: ...
        @property
        def raw_hashes(self) -> NDArray[np.uint8]: ...

    def raw_hash(self, shard: int) -> str:
        return bytes(self.raw_hashes[shard]).hex()

    def project(self, columns: Sequence[int]) -> Self:
        return self

    def reads(self, shard: int) -> Reads:
        return Reads.SHARDS

    def object_size(self, shard: int) -> int:
        return int(self.sizes[shard])

    def side_object(self, shard: int) -> SideObject | None:
        return None

    def with_side_object(self, shard: int, data: Buffer, *, file: str) -> StoredIndex:
        raise NotImplementedError("shards have no side objects: `side_object` returns None")

    def read_group(self, shard: int, *, file: str) -> Reading[Sequence[Buffer]]:
        raise NotImplementedError("a shard is an object of its own: `reads` does not return GROUPS")

    def by_range(self, shard: int, *, file: str) -> RangeReader:
        raise NotImplementedError("shards are read whole: `reads` does not return SAMPLES")

    def read_lengths(self, shard: int, column: int, *, file: str) -> Reading[NDArray[np.int64]] | None:
        return None

    def mean_length(self, column: int) -> Fraction | None:
        return None

    def read_rows(self, shard: int, *, file: str) -> Reading[Selection] | None:
        return None

    def find_damage(
        self: Any, shard: int, stored: memoryview, *, size: int, file: str, first: int | None
    ) -> Sequence[CorruptError]:
        return check_stored(self, shard, stored, size=size, file=file)

    def decoder(self, columns: Mapping[str, int]) -> Decoder:
        return RowDecoder(self.schema, columns)


def check_stored(index: StoredIndex, shard: int, stored: memoryview, *, size: int, file: str) -> Sequence[CorruptError]:
    """Pass stored bytes through `receive` and `check`: a `find_damage` for formats without a more precise one."""
    if size != (expected := int(index.sizes[shard])):
        message = "the object has another size than the index says"
        return [CorruptError(message, file=file, place="size", found=size, expected=expected)]
    receiver, raw = index.receive(shard, file=file), bytearray()
    try:
        for piece in receiver.feed(stored):
            raw += piece
        receiver.finish()
        return index.check(shard, raw, file=file)
    except CorruptError as error:
        return [error]


class RowDecoder:
    """A decoder for formats whose selections have rows of ours (`RowLayout`): selects each sample, decodes its row."""

    def __init__(self, schema: Schema, columns: Mapping[str, int]) -> None:
        self._rows = SampleDecoder(schema, columns)

    def decode(self, shard: OpenedShard, sample: int, *, verify: bool) -> dict[str, Any]:
        found = shard.select(np.array([sample]), verify=verify)
        rows = found.rows[found.take]
        buffer = rows.view(np.uint8).data.toreadonly()
        return self._rows.decode(ShardView(buffer, found.file, found.schema, 0, 0, rows, found.heap), 0, verify=False)
