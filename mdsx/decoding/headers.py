"""The sizes of pictures, read from their headers without decoding pixels."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any

from mdsx.decoding.jpeg_header import ON_ITS_SIDE, ORIENTATION
from mdsx.decoding.pictures import check_installed

_WIDTH, _HEIGHT = 0x0100, 0x0101  # tags of TIFF

SizeOf = Callable[[Any], tuple[int, int]]


def header_reader() -> SizeOf:
    """Return a function from an encoded image to its height and width, or (0, 0) if they cannot be read. Pillow may
    warn about the image. Raise UsageError without Pillow."""
    check_installed("reading the headers of images")
    import PIL.Image

    base = PIL.Image.Image

    def size_of(data: Any) -> tuple[int, int]:
        try:
            image = PIL.Image.open(BytesIO(data))
            tags = getattr(image, "tag_v2", None)  # of TIFF, whose size Pillow may have turned already
            width, height = image.size if tags is None else (tags[_WIDTH], tags[_HEIGHT])
        except MemoryError:
            raise
        except Exception:  # a damaged header may raise nearly anything
            return 0, 0
        try:
            turned = base.getexif(image).get(ORIENTATION) in ON_ITS_SIDE  # PNG's own getexif decodes the image
        except MemoryError:
            raise
        except Exception:  # damaged EXIF data: the pixels may be undamaged
            turned = False
        return (width, height) if turned else (height, width)

    return size_of
