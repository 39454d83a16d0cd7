"""The file of a dataset's lengths by one column, `_lengths/<column>.u32`, and the hash of a shard's lengths.

    file = u32 length of each sample, in stored order; trailer, as JSON on one line

The trailer names the dataset, the column and the rule, and has a hash of each shard's lengths. So a reader fetches the
trailer once, and then only the lengths of the shards that it needs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec
import numpy as np
import xxhash
from numpy.typing import NDArray

from mdsx.base.cached import cached_property
from mdsx.errors import CorruptError
from mdsx.format import filenames
from mdsx.format.lengths import SIDES, LengthRule
from mdsx.format.seal import check_version, checksums, seal

STORED_LENGTH = np.dtype("<u4")

_START = re.compile(rb'\{"format":"mdsx-lengths","version":(0|[1-9][0-9]*),')
_VERSION = 1


@dataclass(frozen=True)
class LengthIdentity:
    """The source of lengths: a dataset, by its fingerprint, and one of its columns, by its stored name."""

    fingerprint: str
    column: str
    rule: LengthRule

    @property
    def key(self) -> str:
        """Return the key of the file, next to the index."""
        return filenames.lengths(self.column, self.rule if self.rule in SIDES else "")

    @property
    def fields(self) -> dict[str, object]:
        """Return the fields for JSON."""
        return {"fingerprint": self.fingerprint, "column": self.column, "rule": self.rule}

    @cached_property
    def digest(self) -> str:
        """Return a hash of the identity: 32 hexadecimal digits."""
        return xxhash.xxh3_128_hexdigest("\n".join((self.fingerprint, self.rule, self.column)).encode())

    def hash(self, shard: int, lengths: NDArray[np.uint32]) -> int:
        """Return the hash of the stored lengths of shard number `shard`."""
        found: int = xxhash.xxh3_64_intdigest(lengths.data, (self._seed + shard) % 2**64)
        return found

    @cached_property
    def _seed(self) -> int:
        return int(self.digest[16:], 16)


class _Trailer(msgspec.Struct):
    fingerprint: str
    column: str
    rule: str
    samples: Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
    sum: Annotated[int, msgspec.Meta(ge=0)]
    xxh3_64: Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{16})*$")]


_DECODER = msgspec.json.Decoder(_Trailer)  # here, because msgspec crashes if two threads prepare a type at once


@dataclass(frozen=True, slots=True, eq=False)
class LengthTrailer:
    """The trailer of a file of lengths: their source, their sum, and the hash of each shard's lengths (uint64 [S])."""

    identity: LengthIdentity
    samples: int
    sum: int
    hashes: NDArray[np.uint64]

    @classmethod
    def of(cls, identity: LengthIdentity, parts: Iterable[NDArray[np.uint32]]) -> LengthTrailer:
        """Return the trailer for the lengths of all shards, in order."""
        hashes, samples, total = [], 0, 0
        for shard, lengths in enumerate(parts):
            hashes.append(identity.hash(shard, lengths))
            samples, total = samples + len(lengths), total + int(lengths.sum(dtype=np.int64))
        return cls(identity, samples, total, np.array(hashes, np.uint64))

    @staticmethod
    def most_bytes(shards: int) -> int:
        """Return how many bytes to read for the trailer of a dataset with this many shards: more than it has."""
        return 16 * shards + 2**16

    def text(self) -> bytes:
        """Return the bytes that follow the lengths in the file."""
        hashes = self.hashes.astype(">u8").tobytes().hex()
        numbers = {"samples": self.samples, "sum": self.sum, "xxh3_64": hashes}
        fields = {"format": "mdsx-lengths", "version": _VERSION, **self.identity.fields, **numbers}
        return seal(json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode().removesuffix(b"}"))

    @classmethod
    def parse(cls, data: bytes, *, file: str) -> LengthTrailer:
        """Parse the bytes that follow the lengths. Raise CorruptError or UnsupportedError."""
        check_version(_START.match(data), data, _VERSION, what="a trailer of lengths", file=file)
        computed, stored = checksums(data)
        if computed != stored:
            raise CorruptError("the trailer is damaged", file=file, place="checksum")
        try:
            found = _DECODER.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise CorruptError(f"the trailer is damaged: {error}", file=file) from None
        identity = LengthIdentity(found.fingerprint, found.column, found.rule)  # type: ignore[arg-type]  # compared only
        hashes = np.frombuffer(bytes.fromhex(found.xxh3_64), ">u8").astype(np.uint64)
        return cls(identity, found.samples, found.sum, hashes)

    def check(self, identity: LengthIdentity, counts: Sequence[int] | NDArray[np.int64], *, file: str) -> None:
        """Raise CorruptError unless this belongs to a dataset with this identity and these numbers of samples."""
        ours = (identity, int(np.sum(counts)), len(counts))
        theirs = (self.identity, self.samples, len(self.hashes))
        names = ("identity", "number of samples", "number of shards")
        for place, found, expected in zip(names, theirs, ours, strict=True):
            if found != expected:
                message = "these are the lengths of another dataset, or of an earlier state of this one"
                raise CorruptError(message, file=file, place=place, found=found, expected=expected)
