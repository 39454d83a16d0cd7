"""Deferred: a JPEG that a GPU is to decode, on its way there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeGuard

from mdsx.decoding.image import Image
from mdsx.decoding.jpeg_header import JpegHeader, read_header
from mdsx.errors import CorruptError, UsageError

_JPEG, _END = b"\xff\xd8\xff", b"\xff\xd9"


@dataclass(frozen=True, slots=True)
class Deferred:
    """A JPEG, and what becomes of it. `place` names it in errors."""

    image: Image
    data: bytes
    header: JpegHeader
    seed: int
    place: str


def deferred(image: Image, data: bytes | memoryview, seed: int, place: str) -> Deferred | None:
    """Return a picture for a GPU. Return None if the processor decodes it: it is no JPEG, one with other colours than
    YCbCr and grey or with more than 8 bits, one that was cut, or damaged."""
    if bytes(data[:3]) != _JPEG or bytes(data[-2:]) != _END:
        return None
    try:
        header = read_header(memoryview(data))
        image.part(header, seed)
    except CorruptError:
        return None
    if header.bits != 8 or header.components not in (1, 3) or not header.plain:
        return None
    return Deferred(image, bytes(data), header, seed, place)


def on_gpu(decoder: object) -> TypeGuard[Image]:
    """Return whether a decoder leaves pictures to a GPU."""
    return isinstance(decoder, Image) and decoder.device != "cpu"


def check_on_cpu(decoders: Mapping[str, Iterable[object]], what: str) -> None:
    """Raise UsageError if a column, by its decoders, is left to a GPU: `what` needs the pictures themselves."""
    for name, each in decoders.items():
        if any(map(on_gpu, each)):
            raise UsageError(
                f"{what} needs the pictures, and those of mdsx.Image(device='cuda') are decoded later, on their way to "
                "the GPU",
                place=f"decode, column {name!r}",
                hint="give the mdsx.Image device='cpu'; or a StreamingDataLoader(device='cuda') without transform, "
                "collate_fn, packing and on_error='skip'",
            )


def corrupt(error: Exception, place: str) -> CorruptError:
    """Return what a decoder raised as the error of the value at `place`."""
    text = f"the value cannot be decoded: {type(error).__name__}: {error}"
    hint = getattr(error, "hint", None)
    if isinstance(error, CorruptError):
        text = str(error).removesuffix(f"; {hint}")  # of which the new error says it
    return CorruptError(text, place=place, hint=hint)
