"""Image: how pictures are decoded, cropped and resized."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mdsx.base.arguments import check_count
from mdsx.decoding import pictures, turbo
from mdsx.decoding.boxes import Box, covering_box, random_box
from mdsx.decoding.jpeg_header import JPEG, LEFT_TO_RIGHT, ON_ITS_SIDE, UPSIDE_DOWN, JpegHeader, read_header
from mdsx.decoding.pictures import Pixels
from mdsx.errors import CorruptError, UsageError, shown
from mdsx.format import IMAGES

_CHANNELS = {"RGB": 3, "L": 1, "RGBA": 4}
_LARGEST = 2**15  # pixels of a side


@dataclass(frozen=True)
class Image:
    """Decodes a column of encoded pictures to arrays of uint8, [H, W, C] or [C, H, W].

        mdsx.torch.StreamingDataset(url, decode={"image": mdsx.Image(size=224, resize="random_crop")})

    It reads JPEG, PNG, WebP, AVIF, BMP, PPM, and the first picture of GIF and TIFF, and applies the EXIF orientation.
    JPEGs are decoded at 1/2, 1/4 or 1/8 of their size where that is still as large as `size`. 16-bit pixels are reduced
    to their higher byte, CMYK becomes RGB, and the alpha channel is dropped except with mode="RGBA". docs/images.md
    compares the speed and the pixels of the backends.

    Args:
        size: The height and width of all arrays: a pair, or one number for both. None: as stored.
        mode: "RGB", "L" (grey, one channel) or "RGBA".
        resize: How to resize pictures. "shortest", the default with `size`: resize to just cover the size, keeping the
            aspect ratio, and crop the centre, as torchvision's Resize(size) and CenterCrop(size). "exact": resize to
            the size, ignoring the aspect ratio. "random_crop": resize a random part to the size, as RandomResizedCrop.
            The sample's own seed chooses the part, so it is the same after a resume, and for any ranks, workers and
            batch size.
        layout: "HWC" or "CHW".
        scale: With "random_crop", the smallest and largest area of the part, as shares of the picture's area.
        ratio: With "random_crop", the smallest and largest aspect ratio (width / height) of the part.
        backend: "turbo" uses the packages simplejpeg and cykooz-resizer, from `mdsx[images]`. It decodes JPEGs and
            resizes all pictures about twice as fast as "pillow", which needs only Pillow.
        max_pixels: The most pixels that a picture may have by its header. A picture with more counts as damaged. Pillow
            has its own limit above 89 million.
        device: "cuda": the GPU decodes, crops and resizes JPEGs with torchvision's nvJPEG, in a
            `StreamingDataLoader(device="cuda")` without transform. Threads decode other pictures, and `decode` itself
            uses the CPU. Pixels differ slightly; docs/images.md says how much.

    Raises:
        UsageError: An argument is invalid, or a package is not installed.
    """

    size: int | tuple[int, int] | None = None
    mode: Literal["RGB", "L", "RGBA"] = "RGB"
    resize: Literal["shortest", "exact", "random_crop"] | None = None
    layout: Literal["HWC", "CHW"] = "HWC"
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    backend: Literal["turbo", "pillow"] = "turbo"
    max_pixels: int = 2**26
    device: Literal["cpu", "cuda"] = "cpu"

    def __post_init__(self) -> None:
        choices = {
            "mode": tuple(_CHANNELS),
            "resize": (None, "shortest", "exact", "random_crop"),
            "layout": ("HWC", "CHW"),
            "backend": ("turbo", "pillow"),
            "device": ("cpu", "cuda"),
        }
        for name, expected in choices.items():
            if (given := getattr(self, name)) not in expected:
                raise UsageError(
                    f"{name} of an mdsx.Image is invalid", found=shown(given), expected=" or ".join(map(repr, expected))
                )
        if self.size is None and self.resize is not None:
            raise UsageError("resize needs a size", found=shown(self.resize), hint="give size=(height, width)")
        sides = (1, 1) if self.size is None else self._size
        if len(sides) != 2 or not all(type(side) is int and 1 <= side <= _LARGEST for side in sides):
            expected_sides = f"a number from 1 to {_LARGEST}, or two: the height and the width"
            raise UsageError("size of an mdsx.Image is invalid", found=shown(self.size), expected=expected_sides)
        for name, most in (("scale", 1.0), ("ratio", float(_LARGEST))):
            low, high = _pair(getattr(self, name), name)
            if not 0 < low <= high <= most:
                expected_pair = f"the smallest and the largest, above 0 and up to {most:g}"
                message = f"{name} of an mdsx.Image is invalid"
                raise UsageError(message, found=shown((low, high)), expected=expected_pair)
            object.__setattr__(self, name, (low, high))
        if self.device == "cuda" and self.mode == "RGBA":
            raise UsageError("a GPU decodes JPEGs to RGB or L, without alpha", found="mode='RGBA'")
        check_count("max_pixels", self.max_pixels)
        pictures.check_installed()
        if self.backend == "turbo":
            turbo.check_installed()

    @property
    def _size(self) -> tuple[int, ...]:
        return tuple(self.size) if isinstance(self.size, tuple | list) else (self.size or 0, self.size or 0)

    def gives(self, stored: str) -> str:
        """Return the type of the arrays; see `mdsx.Decoder`."""
        if stored not in IMAGES:
            raise UsageError("mdsx.Image cannot decode this column", found=stored, expected=" or ".join(IMAGES))
        high, wide = ("*", "*") if self.size is None else self._size
        channels = _CHANNELS[self.mode]
        return f"uint8[{channels},{high},{wide}]" if self.layout == "CHW" else f"uint8[{high},{wide},{channels}]"

    def decode(self, data: bytes | memoryview, seed: int = 0, out: Pixels | None = None) -> NDArray[np.uint8]:
        """Return the pixels of a picture. Raise CorruptError if it is damaged, too large, or not a picture.

        `out`: an array to decode into. It is used, and returned, for a JPEG of its shape that is neither resized nor
        turned. An error may leave pixels in it.
        """
        try:
            pixels = self._pixels(memoryview(data), seed, out)
        except (CorruptError, MemoryError):
            raise
        except Exception as error:  # Pillow's errors have no common base class
            raise CorruptError(f"the picture cannot be decoded: {error}") from error
        return pixels.transpose(2, 0, 1) if self.layout == "CHW" and pixels is not out else pixels

    def _pixels(self, data: memoryview, seed: int, out: Pixels | None) -> Pixels:
        header = read_header(data) if bytes(data[:3]) == JPEG else None
        if header is None:
            picture = pictures.opened(data)
            self._check_size(*picture.size)
            orientation = pictures.orientation_of(picture)
            pixels = pictures.pixels_of(picture, self.mode)
            height, width, _ = pixels.shape  # older versions of Pillow turn a TIFF's size only now
            box, _ = self._planned(width, height, orientation, seed)
            return self._shown(pixels, box, 1, orientation)
        box, factor = self._planned(header.width, header.height, header.orientation, seed)
        found: Pixels | None = None
        if self.backend == "turbo" and header.components in (1, 3) and header.bits == 8:
            place = out if out is not None and self._fits(header, box, out) else None
            found = turbo.decode_jpeg(data, header, self.mode, factor, place)
            if place is not None and found is not None:
                return place
        if found is None:
            picture = pictures.opened(data)
            if picture.size != (header.width, header.height):
                expected = str((header.width, header.height))
                raise CorruptError("the JPEG has contradictory sizes", found=str(picture.size), expected=expected)
            pictures.shrink(picture, self.mode, factor)
            found = pictures.pixels_of(picture, self.mode)
        return self._shown(found, box, factor, header.orientation)

    def _check_size(self, width: int, height: int) -> None:
        if width * height > self.max_pixels:
            found = f"{width} x {height}"
            hint = "give the mdsx.Image a larger max_pixels="
            expected = f"at most {self.max_pixels} pixels"
            raise CorruptError("the picture is too large", found=found, expected=expected, hint=hint)

    def _fits(self, header: JpegHeader, box: Box | None, out: Pixels) -> bool:
        """Return whether a JPEG can be decoded straight into `out`."""
        high, wide = header.height, header.width
        stays = header.orientation == 1 and box in (None, (0, 0, wide, high)) and self.layout == "HWC"
        return stays and out.shape == (high, wide, _CHANNELS[self.mode]) and out.flags.c_contiguous

    def _planned(self, width: int, height: int, orientation: int, seed: int) -> tuple[Box | None, int]:
        """Return the box of a stored picture to resize (None: no resizing), and the factor by which the decoder may
        shrink it."""
        self._check_size(width, height)
        if self.size is None:
            return None, 1
        high, wide = self._size
        if orientation in ON_ITS_SIDE:
            width, height = height, width
        if self.resize == "exact":
            box: Box = (0, 0, width, height)
        elif self.resize == "random_crop":
            box = random_box(width, height, self.scale, self.ratio, seed)
        else:
            box = covering_box(width, height, wide, high)
        left, top, right, bottom = box
        fits = [factor for factor in (8, 4, 2) if right - left >= factor * wide and bottom - top >= factor * high]
        return _as_stored(box, width, height, orientation), max(fits, default=1)

    def _shown(self, pixels: Pixels, box: Box | None, factor: int, orientation: int) -> Pixels:
        """Return a box of a stored picture, resized and turned. `pixels`: the picture, shrunk by `factor`."""
        if box is not None:
            wide, high = self._size if orientation in ON_ITS_SIDE else self._size[::-1]
            height, width = pixels.shape[:2]
            left, top, right, bottom = (side / factor for side in box)
            part = left, top, min(right, width), min(bottom, height)
            if part != (0, 0, wide, high) or (width, height) != (wide, high):
                library = turbo if self.backend == "turbo" and self.mode != "RGBA" else pictures
                pixels = library.resize(pixels, part, wide, high)
        return _turned(pixels, orientation)


def _pair(given: object, name: str) -> tuple[float, float]:
    try:
        low, high = map(float, given)  # type: ignore[call-overload]  # checked by trying
    except (TypeError, ValueError):
        raise UsageError(f"{name} of an mdsx.Image must be two numbers", found=shown(given)) from None
    return low, high


def _turned(pixels: Pixels, orientation: int) -> Pixels:
    """Return a picture turned to its EXIF orientation."""
    if orientation in ON_ITS_SIDE:
        pixels = pixels.transpose(1, 0, 2)
    if orientation in LEFT_TO_RIGHT:
        pixels = pixels[:, ::-1]
    return pixels[::-1] if orientation in UPSIDE_DOWN else pixels


def _as_stored(box: Box, width: int, height: int, orientation: int) -> Box:
    """Return the box in the stored picture for a box in the turned picture, whose size is `width` x `height`."""
    left, top, right, bottom = box
    if orientation in LEFT_TO_RIGHT:
        left, right = width - right, width - left
    if orientation in UPSIDE_DOWN:
        top, bottom = height - bottom, height - top
    return (top, left, bottom, right) if orientation in ON_ITS_SIDE else (left, top, right, bottom)
