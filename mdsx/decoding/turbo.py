"""Decode JPEGs with libjpeg-turbo (simplejpeg), and resize with fast_image_resize (cykooz_resizer).

Both release the GIL. Decoded pixels are the same as Pillow's; resized ones may differ by 1.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mdsx.decoding.boxes import Box
from mdsx.decoding.jpeg_header import JpegHeader
from mdsx.decoding.pictures import Pixels
from mdsx.errors import UsageError

_COLOURS = {"RGB": "RGB", "L": "GRAY", "RGBA": "RGBA"}


def check_installed() -> None:
    """Raise UsageError if the packages are not installed."""
    try:
        import cykooz_resizer  # noqa: F401
        import simplejpeg  # noqa: F401
    except ModuleNotFoundError as error:
        raise UsageError(
            "backend='turbo' of an mdsx.Image needs simplejpeg and cykooz-resizer",
            found=str(error),
            hint="pip install 'mdsx[images]', or give backend='pillow'",
        ) from None


def decode_jpeg(
    data: memoryview, header: JpegHeader, mode: str, factor: int, out: Pixels | None = None
) -> Pixels | None:
    """Return a JPEG as uint8 [H, W, C], not turned, with its sides divided by `factor` (1, 2, 4 or 8) and rounded up.
    Decode into `out` if given, which has that shape.

    Return None if the JPEG is damaged or unusual: then Pillow decides.
    """
    import simplejpeg

    try:
        pixels: Pixels = simplejpeg.decode_jpeg(
            data,
            _COLOURS[mode],
            min_height=-(-header.height // factor),
            min_width=-(-header.width // factor),
            buffer=out,
        )
    except ValueError:
        return None
    return pixels


def resize(pixels: Pixels, box: Box, wide: int, high: int) -> Pixels:
    """Return a box of `pixels`, uint8 [H, W, C], as uint8 [high, wide, C]. The triangle filter is widened when it
    shrinks, as in Pillow's BILINEAR."""
    import cykooz_resizer as fast

    kinds = {1: fast.PixelType.U8, 3: fast.PixelType.U8x3, 4: fast.PixelType.U8x4}
    height, width, channels = pixels.shape
    left, top, right, bottom = box
    low, rows = _reached(top, bottom, high, height)
    start, columns = _reached(left, right, wide, width)
    part = pixels[low:rows, start:columns]
    kind: Any = kinds[channels]
    options = fast.ResizeOptions(
        resize_alg=fast.ResizeAlg.convolution(fast.FilterType.bilinear),
        crop_box=fast.CropBox(left - start, top - low, right - left, bottom - top),
    )
    target = fast.ImageData(wide, high, kind)
    fast.Resizer().resize(fast.ImageData(part.shape[1], part.shape[0], kind, part.tobytes()), target, options)
    return np.frombuffer(target.get_buffer(), np.uint8).reshape(high, wide, channels)


def _reached(low: float, high: float, size: int, most: int) -> tuple[int, int]:
    """Return the range of pixels that the filter reaches. The others need not be copied."""
    support = math.ceil(max((high - low) / size, 1)) + 1
    return max(math.floor(low) - support, 0), min(math.ceil(high) + support, most)
