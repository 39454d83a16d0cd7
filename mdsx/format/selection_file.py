"""The file of a named selection, `_selections/<name>-<fingerprint>.json`: the samples of a dataset that satisfy a
condition.

It is a JSON object, sealed like an index. The bitmap has a bit for each sample, as base64: sample i has bit i % 8 of
byte i // 8, and the bits after the last sample are 0. The file belongs only to the dataset with this fingerprint, so an
append adds another file for the extended dataset.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from typing import Annotated, TypeVar

import msgspec

from mdsx.errors import CorruptError
from mdsx.format.conditions import MAX_CONDITION
from mdsx.format.seal import check_version, checksums, seal

MAX_SELECTION_HEAD = 8 * MAX_CONDITION
"""The file has at most this many bytes before its bitmap."""

_START = re.compile(rb'\{"format":"mdsx-selection","version":(0|[1-9][0-9]*),')
_BITMAP = b',"bitmap":"'
_VERSION = 1
_DIGITS = re.compile("[A-Za-z0-9+/]*={0,2}")

_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]


class _Head(msgspec.Struct):
    name: str
    fingerprint: str
    where: str
    samples: _Count
    selected: _Count


class _Whole(_Head):
    bitmap: str


_Found = TypeVar("_Found", bound=_Head)

# msgspec crashes if two threads prepare a type at once, so prepare the types here
_HEAD, _WHOLE = msgspec.json.Decoder(_Head), msgspec.json.Decoder(_Whole)


@dataclass(frozen=True, slots=True)
class SelectionHead:
    """The fields of a selection's file before its bitmap: the dataset, the condition, and the numbers of samples."""

    name: str
    fingerprint: str
    where: str
    samples: int
    selected: int

    @classmethod
    def parse(cls, data: bytes, *, file: str) -> SelectionHead:
        """Parse the first bytes of a file, at least up to the bitmap. The result is not verified.

        Raise CorruptError or UnsupportedError.
        """
        _check_start(data, file)
        return _head(_decoded(_HEAD, data.partition(_BITMAP)[0] + b"}", file), file)


@dataclass(frozen=True, slots=True, eq=False)
class StoredSelection:
    """The content of a selection's file. `bits`: a bit for each sample, the least significant bit of a byte first."""

    head: SelectionHead
    bits: bytes

    def text(self) -> bytes:
        """Return the bytes of the file."""
        head = self.head
        fields = {
            "format": "mdsx-selection",
            "version": _VERSION,
            "name": head.name,
            "fingerprint": head.fingerprint,
            "where": head.where,
            "samples": head.samples,
            "selected": head.selected,
        }
        data = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode().removesuffix(b"}")
        return seal(b'%b%b%b"' % (data, _BITMAP, base64.b64encode(self.bits)))

    @classmethod
    def parse(cls, data: bytes, *, file: str) -> StoredSelection:
        """Parse and check the bytes of a file. Raise CorruptError or UnsupportedError."""
        _check_start(data, file)
        computed, stored = checksums(data)
        if stored is None:
            raise CorruptError("the file ends before its checksum", file=file, place="end")
        if computed != stored:
            raise CorruptError("the selection is damaged", file=file, place="checksum", found=computed, expected=stored)
        found = _decoded(_WHOLE, data, file)
        head, size = _head(found, file), -(-found.samples // 8)
        if len(found.bitmap) != 4 * -(-size // 3) or _DIGITS.fullmatch(found.bitmap) is None:
            expected = f"base64 of {size} bytes"
            raise CorruptError("the bitmap has the wrong size", file=file, place="bitmap", expected=expected)
        bits = base64.b64decode(found.bitmap)
        if len(bits) != size or base64.b64encode(bits) != found.bitmap.encode():
            raise CorruptError("the bitmap is not canonical base64", file=file, place="bitmap")
        if head.samples % 8 and bits[-1] >> head.samples % 8:
            raise CorruptError("a bit after the last sample is not 0", file=file, place="bitmap")
        if (count := int.from_bytes(bits, "little").bit_count()) != head.selected:
            message = "the bitmap has another number of samples"
            raise CorruptError(message, file=file, place="selected", found=head.selected, expected=count)
        return cls(head, bits)

    def check(self, name: str, fingerprint: str, samples: int, *, file: str) -> None:
        """Raise CorruptError unless this is the selection `name` of the dataset with this fingerprint."""
        theirs, ours = (self.head.name, self.head.fingerprint, self.head.samples), (name, fingerprint, samples)
        for place, found, expected in zip(("name", "fingerprint", "samples"), theirs, ours, strict=True):
            if found != expected:
                message = "this is another selection, or of another dataset"
                raise CorruptError(message, file=file, place=place, found=found, expected=expected)


def _check_start(data: bytes, file: str) -> None:
    check_version(_START.match(data), data, _VERSION, what="a selection", file=file)


def _decoded(decoder: msgspec.json.Decoder[_Found], data: bytes, file: str) -> _Found:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptError(f"the selection is damaged: {error}", file=file) from None


def _head(found: _Head, file: str) -> SelectionHead:
    if len(found.where) > MAX_CONDITION:
        raise CorruptError("the condition is too long", file=file, place="where", found=len(found.where))
    return SelectionHead(found.name, found.fingerprint, found.where, found.samples, found.selected)
