"""Values that a browser may show or play: images by their first bytes, arrays of pixels, sound and video."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsx.format import MEDIA, PICTURES

PNG = "image/png"

_SIDES = range(8, 4097)  # side lengths of arrays that are shown as pictures
_COLOURS = {1: 0, 3: 2, 4: 6}  # samples of a pixel -> PNG's colour type


def image_type(data: bytes) -> str | None:
    """Return the media type of a picture of our types, or a GIF, by the first bytes; None for everything else.

    SVG is excluded, because it can contain scripts.
    """
    found = next((base.media for base in PICTURES if base.matches(data)), None)
    return "image/gif" if found is None and data.startswith((b"GIF87a", b"GIF89a")) else found


def media_type(data: bytes, base: str) -> str | None:
    """Return the media type of a value in a column with this base. Images are recognised whatever the base; sound and
    video, whose first bytes say less, only with the matching base."""
    own = next((each for each in MEDIA if each.name == base), None)
    return own.media if own is not None and own.matches(data) else image_type(data)


def is_pixels(array: NDArray[Any]) -> bool:
    """Return whether an array looks like pixels: uint8 [height, width], or [height, width, 1, 3 or 4]."""
    sides = array.shape[:2]
    return (
        array.dtype == np.uint8
        and (array.ndim == 2 or (array.ndim == 3 and array.shape[2] in _COLOURS))
        and all(side in _SIDES for side in sides)
    )


def png(pixels: NDArray[Any]) -> bytes:
    """Return pixels (see `is_pixels`) as a PNG file."""
    height, width = pixels.shape[:2]
    depth = 1 if pixels.ndim == 2 else pixels.shape[2]
    rows = np.zeros((height, 1 + width * depth), np.uint8)  # each begins with its filter: none
    rows[:, 1:] = pixels.reshape(height, width * depth)
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOURS[depth], 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 1)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
