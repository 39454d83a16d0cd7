"""Read a JPEG's header without decoding it: size, components and orientation."""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

from mdsx.errors import CorruptError

JPEG = b"\xff\xd8\xff"
"""The first bytes of a JPEG."""
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
"""Markers of a frame's header: SOF0 to SOF15, without DHT, JPG and DAC."""
_MARKER = re.compile(rb"\xff[^\x00\x01\xd0-\xd8\xff]", re.DOTALL)
"""The next marker with a segment: not TEM, RST0 to RST7 or SOI, and not padding. libjpeg skips stray bytes, too."""
_EXIF, _ADOBE, _SCAN, _END = 0xE1, 0xEE, 0xDA, 0xD9
ORIENTATION = 0x0112  # EXIF's tag
_SHORT = 3
ON_ITS_SIDE, LEFT_TO_RIGHT, UPSIDE_DOWN = (5, 6, 7, 8), (2, 3, 6, 7), (3, 4, 7, 8)
"""EXIF orientations in which the axes are exchanged, and in which then the columns or the rows are reversed."""


class JpegHeader(NamedTuple):
    """Sizes are in pixels, as stored. `orientation`: EXIF's, 1 to 8. `plain`: whether three components are certain to
    be YCbCr."""

    width: int
    height: int
    components: int
    bits: int
    orientation: int
    plain: bool


def read_header(data: memoryview) -> JpegHeader:
    """Return the header of a JPEG. Raise CorruptError if it has none."""
    frame: tuple[int, int, int, int] | None = None
    orientation: int | None = None
    plain = True
    at = 2
    while (found := _MARKER.search(data, at)) and (at := found.start()) + 4 <= len(data):
        marker = data[at + 1]
        if marker in (_SCAN, _END):
            break
        segment = data[at + 4 : at + 2 + (data[at + 2] << 8 | data[at + 3])]
        if marker in _FRAMES and frame is None and len(segment) >= 6:
            bits, height, width, components = struct.unpack_from(">BHHB", segment)
            frame = width, height, components, bits
            plain = plain and bytes(segment[6:16:3]) != b"RGB"  # the components' IDs
        elif marker == _EXIF and orientation is None and bytes(segment[:6]) == b"Exif\0\0":
            orientation = _orientation(segment[6:])
        elif marker == _ADOBE and bytes(segment[:5]) == b"Adobe":
            plain = plain and bytes(segment[11:12]) == b"\x01"
        at += 2 + max(data[at + 2] << 8 | data[at + 3], 2)
    if frame is None or not frame[0] or not frame[1]:
        raise CorruptError("the JPEG has no valid frame header")
    return JpegHeader(*frame, orientation or 1, plain)


def _orientation(tiff: memoryview) -> int:
    """Return the orientation in EXIF data; 1 if it is missing or invalid."""
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(bytes(tiff[:4]))
    if order is None or len(tiff) < 8:
        return 1
    (first,) = struct.unpack_from(order + "I", tiff, 4)
    if first + 2 > len(tiff):
        return 1
    (entries,) = struct.unpack_from(order + "H", tiff, first)
    for place in range(first + 2, min(first + 2 + 12 * entries, len(tiff) - 11), 12):
        tag, kind, _, value = struct.unpack_from(order + "HHIH", tiff, place)
        if tag == ORIENTATION and kind == _SHORT:
            return value if 1 <= value <= 8 else 1
    return 1
