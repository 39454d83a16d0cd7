"""Decoding with Pillow."""

from __future__ import annotations

from functools import cache
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mdsx.decoding.boxes import Box
from mdsx.decoding.jpeg_header import ORIENTATION
from mdsx.errors import CorruptError, UsageError

if TYPE_CHECKING:
    from PIL import Image

Pixels = NDArray[np.uint8]

_FORMATS = ("JPEG", "PNG", "WEBP", "AVIF", "GIF", "BMP", "TIFF", "PPM")
"""Formats that Pillow decodes without another program."""


def check_installed(what: str = "mdsx.Image") -> None:
    """Raise UsageError if Pillow, which `what` needs, is not installed."""
    try:
        import PIL.Image  # noqa: F401
    except ModuleNotFoundError:
        raise UsageError(f"{what} needs the package Pillow", hint="pip install 'mdsx[images]'") from None


def opened(data: memoryview) -> Image.Image:
    """Open a picture. Only its header is read."""
    import PIL.Image

    try:
        return PIL.Image.open(BytesIO(data), formats=_formats())
    except PIL.UnidentifiedImageError:
        expected = ", ".join(_formats())
        raise CorruptError("the bytes are not a picture", found=f"{bytes(data[:8])!r}", expected=expected) from None


@cache
def _formats() -> tuple[str, ...]:
    """Return those of `_FORMATS` that this version of Pillow has."""
    import PIL.Image

    PIL.Image.init()
    return tuple(name for name in _FORMATS if name in PIL.Image.OPEN)


def orientation_of(picture: Image.Image) -> int:
    """Return the EXIF orientation of a picture's pixels, 1 to 8; 1 if it is missing or invalid."""
    if picture.format == "TIFF":  # Pillow turns these itself
        return 1
    try:
        found = picture.getexif().get(ORIENTATION, 1)
    except Exception:  # damaged EXIF data: the pixels may be undamaged
        return 1
    return found if type(found) is int and 1 <= found <= 8 else 1


def shrink(picture: Image.Image, mode: str, factor: int) -> None:
    """Let Pillow decode a JPEG with its sides divided by `factor`, rounded up. No effect on other pictures."""
    width, height = picture.size
    if picture.format == "JPEG":
        picture.draft("L" if mode == "L" else None, (max(width // factor, 1), max(height // factor, 1)))


def pixels_of(picture: Image.Image, mode: str) -> Pixels:
    """Return a picture as uint8 [H, W, C]."""
    import PIL.Image

    if picture.mode == "I" or picture.mode.startswith("I;16"):
        picture = PIL.Image.fromarray(_high_bytes(picture))
    elif picture.mode not in ("1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr", "LAB"):
        raise CorruptError("the picture's mode is not supported", found=f"mode {picture.mode!r}")
    if picture.mode == "P":
        picture = picture.convert("RGBA" if "transparency" in picture.info else "RGB")
    if picture.mode != mode:
        picture = picture.convert(mode)
    pixels = np.asarray(picture)
    return pixels[:, :, None] if pixels.ndim == 2 else pixels


def _high_bytes(picture: Image.Image) -> Pixels:
    """Return the higher byte of each 16-bit pixel."""
    values = np.asarray(picture)
    if values.min(initial=0) < 0 or values.max(initial=0) > 0xFFFF:
        raise CorruptError("the picture has pixels of more than 16 bits", found=f"mode {picture.mode!r}")
    return (values >> 8).astype(np.uint8)


def resize(pixels: Pixels, box: Box, wide: int, high: int) -> Pixels:
    """Return a box of `pixels`, uint8 [H, W, C], as uint8 [high, wide, C]."""
    import PIL.Image

    flat = pixels[:, :, 0] if pixels.shape[2] == 1 else pixels
    picture = PIL.Image.fromarray(np.ascontiguousarray(flat))
    found = np.asarray(picture.resize((wide, high), PIL.Image.Resampling.BILINEAR, box=box))
    return found.reshape(high, wide, pixels.shape[2])
