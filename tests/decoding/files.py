"""Real files of pictures and sound, made by the libraries that people use."""

from __future__ import annotations

from functools import cache
from io import BytesIO
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray
from PIL import Image

Pixels = NDArray[np.uint8]

ORIENTATION = 0x0112


@cache
def photo(height: int, width: int, channels: int = 3, seed: int = 0) -> Pixels:
    """Return smooth shapes with some noise: uint8 [H, W, C]."""
    y, x = np.arange(height, dtype=np.float32)[:, None], np.arange(width, dtype=np.float32)
    waves = [np.sin(x / (17 + 5 * c + seed)) * np.cos(y / (13 + 3 * c)) for c in range(channels)]
    noise = np.random.default_rng(seed).integers(-4, 5, (height, width, channels), np.int8)
    found: Pixels = (128 + 90 * np.stack(waves, -1) + noise).astype(np.uint8)
    return found


def encoded(picture: Pixels | Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    """Return a picture as a file."""
    if isinstance(picture, np.ndarray):
        picture = Image.fromarray(picture[..., 0] if picture.shape[-1:] == (1,) else picture)
    output = BytesIO()
    picture.save(output, kind, **({"compress_level": 1} if kind == "PNG" else {}), **options)
    return output.getvalue()


def jpeg(picture: Pixels, quality: int = 92, orientation: int | None = None, **options: Any) -> bytes:
    """Return a picture as a JPEG, with an orientation in its EXIF data."""
    if orientation is not None:
        exif = Image.Exif()
        exif[ORIENTATION] = orientation
        options["exif"] = exif
    return encoded(picture, "JPEG", quality=quality, **options)


def tone(rate: int, seconds: float = 0.5, channels: int = 1, hertz: float = 440.0) -> NDArray[np.float32]:
    """Return a tone, a quieter one in each further channel: float32 [samples, channels]."""
    wave = np.sin(2 * np.pi * hertz * np.arange(round(rate * seconds)) / rate)
    return np.stack([wave * 0.5 / (channel + 1) for channel in range(channels)], 1).astype(np.float32)


def sound(samples: NDArray[np.float32], rate: int, kind: str = "WAV", subtype: str | None = None) -> bytes:
    """Return samples as a file."""
    output = BytesIO()
    soundfile.write(output, samples, rate, format=kind, subtype=subtype)
    return output.getvalue()
