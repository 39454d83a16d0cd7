"""A JSON object in its one form, member by member, without parsing what nobody asks for.

The one form has no spaces between members, no needless escapes in keys, and no key twice. Arrays of numbers and of
hashes are read in bulk: an index has millions of them.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from mdsx.errors import CorruptError
from mdsx.format.jsontext import parse_json

if TYPE_CHECKING:
    from typing_extensions import Buffer

_INTEGER = re.compile(rb"0|[1-9][0-9]{0,18}")
_MAX_INTEGER = 2**63 - 1
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_INTEGERS = msgspec.json.Decoder(list[int])
_STRINGS = msgspec.json.Decoder(list[str])


class JsonObject:
    """The object that `text` holds. `file` and `place` are where it stands, for errors, which are all CorruptError."""

    def __init__(self, text: Buffer, *, file: str | None, place: str | None = None) -> None:
        self._file, self._place = file, place
        self._text = memoryview(text).cast("B")
        try:
            self._members = _MEMBERS.decode(self._text)
        except RecursionError:
            raise self.error("the JSON is nested too deeply") from None
        except ValueError as error:  # as msgspec's errors are
            raise self.error(f"this is not a JSON object: {error}") from None

    def error(
        self, message: str, key: str | None = None, *, found: object = None, expected: object = None
    ) -> CorruptError:
        place = ".".join(part for part in (self._place, key) if part) or None
        return CorruptError(message, file=self._file, place=place, found=found, expected=expected)

    def check_form(self, ending: bytes = b"") -> None:
        """Refuse the object if it is not in its one form, with `ending` behind it."""
        # Anything else is longer: a space, an escape, a member whose key stands twice and which was read only once.
        size = sum(_head_size(key) + len(value) for key, value in self._members.items()) or 1
        ending = b"}" + ending
        if (
            len(self._text) == size + len(ending)
            and bytes(self._text[:1]) == b"{"
            and bytes(self._text[size:]) == ending
        ):
            return
        try:
            parse_json(bytes(self._text), unique_keys=True)
        except CorruptError as error:
            raise self.error(str(error)) from None
        raise self.error("the JSON is not in its one form: without spaces, and with one line feed at the file's end")

    def offset(self, key: str) -> int:
        """Where the value of `key`, which is there, starts in the text, whose form was checked."""
        at = 0
        for other, value in self._members.items():
            at += _head_size(other)
            if other == key:
                break
            at += len(value)
        return at

    def __contains__(self, key: str) -> bool:
        return key in self._members

    def __getitem__(self, key: str) -> memoryview:
        """The text of the value."""
        if key not in self._members:
            raise self.error("the key is missing", key)
        return memoryview(self._members[key])

    def string(self, key: str) -> str:
        try:
            return msgspec.json.decode(self[key], type=str)
        except ValueError:
            raise self.error("this is not a string", key, found=_excerpt(self[key])) from None

    def integer(self, key: str) -> int:
        text = bytes(self[key][:20])
        if _INTEGER.fullmatch(text) is None or int(text) > _MAX_INTEGER:
            raise self.error("this is not an integer from 0 to 2^63 - 1", key, found=_excerpt(text))
        return int(text)

    def integers(self, key: str) -> NDArray[np.int64]:
        """An array of integers from 0 to 2^63 - 1."""
        text = bytes(self[key])
        try:
            if text.translate(None, b"[0123456789,]"):
                raise ValueError
            return np.array(_INTEGERS.decode(text), np.int64)
        except (ValueError, OverflowError):
            raise self.error("this is not an array of integers from 0 to 2^63 - 1", key) from None

    def hashes(self, key: str) -> list[str]:
        """An array of hashes of 128 bits, as 32 lower-case hexadecimal digits each."""
        text = self[key]
        try:
            hashes = _STRINGS.decode(text)
            sizes = set(map(len, hashes))
            if sizes - {32} or len(text) != max(2, 35 * len(hashes) + 1):
                raise ValueError
            if "".join(hashes).encode().translate(None, b"0123456789abcdef"):
                raise ValueError
        except ValueError:
            raise self.error("this is not an array of hashes of 32 lower-case hexadecimal digits", key) from None
        return hashes


def _head_size(key: str) -> int:
    """Of what stands before a value: a brace or comma, the key, a colon."""
    return len(json.dumps(key, ensure_ascii=False).encode("utf-8", "replace")) + 2


def _excerpt(text: Buffer) -> str:
    return repr(bytes(memoryview(text)[:80]))
