"""The common parts of indexes of Parquet files, tars and token files: their first and last bytes, and the names of
files.

Such an index is one line of JSON. It begins with `{"format":"mdsx-...","version":1,` and ends with a checksum
(`seal.py`), which is checked before anything is parsed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from mdsx.errors import CorruptError, UnsupportedError
from mdsx.format.seal import checksums, seal, shown_version

T = TypeVar("T")

_MAX_NAME_SIZE = 4096
_START = re.compile(rb'\{"format":"([a-z-]+)","version":(0|[1-9][0-9]*),')
_NOT_IN_NAMES = re.compile(r"[\x00-\x1f\x7f-\x9f\\\ud800-\udfff]")


def seal_file_index(members: Mapping[str, Any]) -> bytes:
    """Return the text of an index with these members, `format` and `version` first."""
    return seal(json.dumps(members, ensure_ascii=False, separators=(",", ":")).encode().removesuffix(b"}"))


def is_file_key(name: str) -> bool:
    """Return whether `name` can be the key of an indexed file: components joined by '/', none of them '.' or '..'."""
    if not name or len(name) > _MAX_NAME_SIZE or _NOT_IN_NAMES.search(name):
        return False
    return all(part not in ("", ".", "..") for part in name.split("/"))


class FileIndexParser:
    """Checks the text of an index. A subclass parses its content."""

    FORMAT: ClassVar[str]
    VERSION: ClassVar[int]
    FILES: ClassVar[str]
    """The name of the files in messages."""
    AGAIN: ClassVar[str]
    """How to remake the index."""

    def __init__(self, file: str | None) -> None:
        self._file = file

    def _decode(self, data: bytes, decoder: msgspec.json.Decoder[T]) -> T:
        """Check the bytes of an index, and decode its content. Raise CorruptError or UnsupportedError."""
        start = _START.match(data)
        if start is None or start[1].decode() != self.FORMAT:
            raise self._error(f"this is not an index of {self.FILES}", "start")
        if start[2] != b"%d" % self.VERSION:
            found, hint = shown_version(start[2]), f"upgrade mdsx, or {self.AGAIN}"
            message = "the index has another version"
            raise UnsupportedError(message, file=self._file, found=found, expected=self.VERSION, hint=hint)
        computed, stored = checksums(data)
        if stored is None:
            raise self._error("the file ends before its checksum", "end")
        if computed != stored:
            raise self._error("the index is damaged", "checksum", computed, stored)
        try:
            return decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._error(f"not an index of {self.FILES}: {error}", "JSON") from None

    def _check_names(self, names: Sequence[str], place: str) -> None:
        self._expect(len(set(names)) == len(names), place, "a name twice", None)
        for name in names:
            if not self._is_key(name):
                raise self._error("not the name of a file below the index's folder", place, repr(name[:200]))

    def _is_key(self, name: str) -> bool:
        return is_file_key(name)

    def _hashes(self, text: str, count: int, place: str) -> NDArray[np.uint8]:
        """Return so many hashes of 32 hexadecimal digits as uint8 [count, 16]."""
        try:
            found = np.frombuffer(bytes.fromhex(text), np.uint8) if text.isalnum() or not text else None
        except ValueError:
            found = None
        if found is None or len(found) != 16 * count:
            raise self._error("expected 32 hexadecimal digits for each", place)
        return found.reshape(-1, 16).copy()

    def _expect(self, condition: bool, place: str, found: object, expected: object) -> None:
        if not condition:
            raise self._error("the index contradicts itself", place, found, expected)

    def _error(self, message: str, place: str, found: object = None, expected: object = None) -> CorruptError:
        return CorruptError(message, file=self._file, place=place, found=found, expected=expected, hint=self.AGAIN)
