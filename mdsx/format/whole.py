"""The index of a simple stored format: its shards are objects that are read whole, its samples are Python values.

Such a format needs only a subclass with `samples_of`. It is as fast as decoding its values in Python. Reading a single
sample decodes its whole shard.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec
import numpy as np
import xxhash
from numpy.typing import NDArray

from mdsx.base.cached import cached_property
from mdsx.errors import CorruptError, UnsupportedError
from mdsx.format.decode import RowDecoder
from mdsx.format.encode import Encoder
from mdsx.format.filenames import is_name
from mdsx.format.lengths import lengths_of_selection
from mdsx.format.protocol import ReadsWhole
from mdsx.format.schema import Schema
from mdsx.format.selection import Selection

if TYPE_CHECKING:
    from typing_extensions import Buffer

_Number = Annotated[int, msgspec.Meta(ge=0, le=2**40)]


class WholeShard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A shard: the key of its object, its numbers of samples and bytes, and the XXH3-128 of the bytes in
    hexadecimal."""

    name: str
    samples: _Number
    size: _Number
    hash: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]


@dataclass(frozen=True, eq=False)
class WholeIndex(ReadsWhole, ABC):
    """An index. `fingerprint`: the XXH3-128 of the bytes that it was parsed from. Raise CorruptError for a shard with
    an invalid name, and UnsupportedError for a column of an unknown type."""

    schema: Schema
    shards: Sequence[WholeShard]
    fingerprint: str
    file: str
    metadata: dict[str, Any] = field(default_factory=dict)
    format: ClassVar[str]
    checks: ClassVar[str] = "XXH3-128 of shards"
    compression: ClassVar[str | None] = None
    least: ClassVar[int] = 1
    """The fewest bytes of a sample. A shard that claims more samples than fit is refused."""

    def __post_init__(self) -> None:
        for shard in self.shards:
            if not is_name(shard.name) or shard.size < self.least * shard.samples:
                raise CorruptError("a shard has a wrong name or size", file=self.file, found=shard.name[:80])
        for column in self.schema.columns:
            if not column.type.known:
                message = "unknown column type"
                raise UnsupportedError(message, file=self.file, place=column.name, found=str(column.type)[:80])

    @abstractmethod
    def samples_of(self, data: memoryview, *, file: str) -> Sequence[Mapping[str, object]]:
        """Return the samples of a shard, in the form that a writer accepts. Raise CorruptError or ValueError."""

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        return np.array([shard.samples for shard in self.shards], np.int64)

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        return np.array([shard.size for shard in self.shards], np.int64)

    @property
    def raw_sizes(self) -> NDArray[np.int64]:
        return self.sizes

    @cached_property
    def raw_hashes(self) -> NDArray[np.uint8]:
        return np.frombuffer(bytes.fromhex("".join(shard.hash for shard in self.shards)), np.uint8).reshape(-1, 16)

    @property
    def samples(self) -> int:
        return sum(shard.samples for shard in self.shards)

    def name(self, shard: int) -> str:
        return self.shards[shard].name

    def receive(self, shard: int, *, file: str) -> _Receiver:
        return _Receiver(self.shards[shard], file)

    def open(self, shard: int, raw: Buffer, *, file: str) -> _Opened:
        view = memoryview(raw).cast("B").toreadonly()
        if len(view) != (expected := self.shards[shard].size):
            raise CorruptError("the shard has another size", file=file, found=len(view), expected=expected)
        return _Opened(self, view, self.shards[shard].samples, file)

    def verify(self, shard: int, opened: _Opened, *, file: str) -> None:
        _check_hash(xxhash.xxh3_128_hexdigest(opened.buffer), self.shards[shard], file)

    def check(self, shard: int, raw: Buffer, *, file: str) -> Sequence[CorruptError]:
        try:
            opened = self.open(shard, raw, file=file)
            opened.select(np.arange(opened.samples), verify=True)
        except CorruptError as error:
            return [error]
        return []

    def decoder(self, columns: Mapping[str, int]) -> RowDecoder:
        return RowDecoder(self.schema, columns)


def _check_hash(found: str, shard: WholeShard, file: str) -> None:
    if found != shard.hash:
        message = "the shard's bytes do not match the index"
        raise CorruptError(message, file=file, place="XXH3-128", found=found, expected=shard.hash)


class _Receiver:
    def __init__(self, shard: WholeShard, file: str) -> None:
        self._shard, self._file, self._hash = shard, file, xxhash.xxh3_128()

    def feed(self, chunk: Buffer) -> Iterable[Buffer]:
        self._hash.update(chunk)
        return (chunk,)

    def finish(self) -> None:
        _check_hash(self._hash.hexdigest(), self._shard, self._file)


@dataclass(frozen=True)
class _Opened:
    index: WholeIndex
    buffer: memoryview
    samples: int
    file: str
    checks_samples: ClassVar[bool] = False
    checks_cheaply: ClassVar[bool] = False

    def select(self, samples: NDArray[np.int64], *, verify: bool) -> Selection:
        schema, encoder = self.index.schema, Encoder(self.index.schema)
        try:
            found = self.index.samples_of(self.buffer, file=self.file)
            if len(found) != self.samples:
                raise CorruptError("the shard has another number of samples", file=self.file, found=len(found))
            values = [value for number in samples.tolist() for value in encoder.sample(found[number])[0]]
        except (ValueError, RecursionError) as error:  # SampleError is a ValueError
            raise CorruptError(f"a sample is damaged: {error}", file=self.file) from None
        return Selection.of(schema, self.file, samples, encoder.gather(values))

    def lengths(self, column: int) -> NDArray[np.int64]:
        return lengths_of_selection(self.select(np.arange(self.samples), verify=False), column)
