"""Hashes of whole files that an index may have: those of hashlib, and xxHash."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import xxhash

from mdsx.errors import CorruptError

if TYPE_CHECKING:
    from typing_extensions import Buffer

_XXHASH = ("xxh3_128", "xxh128", "xxh3_64", "xxh64", "xxh32")
_FASTEST = (*_XXHASH, "sha1", "sha256", "sha224", "blake2b", "md5")  # of many; the rest are slower
_HASHLIB = {name for name in hashlib.algorithms_guaranteed if not name.startswith("shake_")}


def is_known(name: str) -> bool:
    return name in _XXHASH or name in _HASHLIB


@cache
def digest_size(name: str) -> int:
    """Return the size of the hash `name`, which must be known."""
    return int(_new(name).digest_size)


def fastest(hashes: Mapping[str, str]) -> dict[str, str]:
    """Return the fastest of `hashes`, name -> digits."""
    name = next((name for name in _FASTEST if name in hashes), next(iter(hashes), None))
    return {} if name is None else {name: hashes[name]}


class FileHashes:
    """Hashes a file, piece by piece, with all of `expected`: name -> hexadecimal digits."""

    def __init__(self, expected: Mapping[str, str], what: str, file: str) -> None:
        self._expected, self._what, self._file = expected, what, file
        self._hashers = {name: _new(name) for name in expected}

    def update(self, data: Buffer) -> None:
        for hasher in self._hashers.values():
            hasher.update(data)

    def check(self) -> None:
        """Raise CorruptError unless all hashes match."""
        for name, hasher in self._hashers.items():
            found = hasher.hexdigest()
            if found != self._expected[name]:
                raise CorruptError(
                    f"the {self._what} bytes do not match the index",
                    file=self._file,
                    place=name,
                    found=found,
                    expected=self._expected[name],
                    hint="the shard is damaged, or was replaced: fetch or write it again",
                )


def _new(name: str) -> Any:
    return getattr(xxhash, name)() if name in _XXHASH else hashlib.new(name, usedforsecurity=False)
