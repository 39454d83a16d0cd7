"""Deferred: a JPEG that a GPU will decode."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeGuard

from mdsx.decoding.image import Image
from mdsx.decoding.jpeg_header import JPEG, ON_ITS_SIDE, JpegHeader, read_header
from mdsx.errors import CorruptError, UsageError

_END = b"\xff\xd9"


Part = tuple[int, int, int, int]
"""Left, top, right and bottom, in pixels."""


class Way(NamedTuple):
    """The part of a stored picture to resize, the height and width to resize it to, and the part of that to keep."""

    part: Part
    size: tuple[int, int]
    middle: Part


@dataclass(frozen=True, slots=True)
class Deferred:
    """A JPEG, and how to decode, resize and crop it. `place` names it in errors."""

    image: Image
    data: bytes
    header: JpegHeader
    seed: int
    place: str

    @property
    def way(self) -> Way:
        """Return how to resize and crop the stored picture before it is turned. Raise CorruptError if it is too
        large."""
        image, (width, height) = self.image, self.header[:2]
        box, _ = image._planned(width, height, self.header.orientation, self.seed)
        whole = 0, 0, width, height
        if box is None:
            return Way(whole, (height, width), whole)
        wide, high = image._size if self.header.orientation in ON_ITS_SIDE else image._size[::-1]
        left, top, right, bottom = box
        if image.resize in ("exact", "random_crop"):  # its box has edges of whole pixels
            return Way((round(left), round(top), round(right), round(bottom)), (high, wide), (0, 0, wide, high))
        across, down = wide / (right - left), high / (bottom - top)
        x, y = round(left * across), round(top * down)
        return Way(whole, (round(height * down), round(width * across)), (x, y, x + wide, y + high))


def deferred(image: Image, data: bytes | memoryview, seed: int, place: str) -> Deferred | None:
    """Return the picture for a GPU to decode, or None if the CPU must: it is not a JPEG, has colours other than YCbCr
    and grey, has more than 8 bits, or is truncated or damaged."""
    if bytes(data[:3]) != JPEG or bytes(data[-2:]) != _END:
        return None
    try:
        found = Deferred(image, bytes(data), read_header(memoryview(data)), seed, place)
        _ = found.way
    except CorruptError:
        return None
    header = found.header
    return found if header.bits == 8 and header.components in (1, 3) and header.plain else None


def on_gpu(decoder: object) -> TypeGuard[Image]:
    """Return whether a decoder leaves decoding to a GPU."""
    return isinstance(decoder, Image) and decoder.device != "cpu"


def check_on_cpu(decoders: Mapping[str, Iterable[object]], what: str) -> None:
    """Raise UsageError if a column is left to a GPU: `what` needs decoded pictures."""
    for name, each in decoders.items():
        if any(map(on_gpu, each)):
            raise UsageError(
                f"{what} needs decoded pictures, but with mdsx.Image(device='cuda') the loader decodes them later, on "
                "the GPU",
                place=f"decode, column {name!r}",
                hint="give the mdsx.Image device='cpu', or use StreamingDataLoader(device='cuda') without transform, "
                "collate_fn, packing and on_error='skip'",
            )


def corrupt(error: Exception, place: str) -> CorruptError:
    """Return the CorruptError of the value at `place` for an exception of its decoder."""
    text = f"the value cannot be decoded: {type(error).__name__}: {error}"
    hint = getattr(error, "hint", None)
    if isinstance(error, CorruptError):
        text = str(error).removesuffix(f"; {hint}")  # the new error gets the hint too
    return CorruptError(text, place=place, hint=hint)
