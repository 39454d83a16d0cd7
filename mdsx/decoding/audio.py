"""Audio: how sound is decoded and resampled."""

from __future__ import annotations

import math
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsx.base.arguments import check_count
from mdsx.errors import CorruptError, UsageError, shown
from mdsx.format import BYTES, FLOAT32, MEDIA

Samples = NDArray[np.float32]

_STORED = (BYTES.name, *(base.name for base in MEDIA if (base.media or "").startswith("audio/")))


@dataclass(frozen=True)
class Audio:
    """Decodes a column of encoded sound to arrays of float32: [samples] if `mono`, else [channels, samples].

        mdsx.Loader(url, 16, decode={"speech": mdsx.Audio(rate=16000)})

    The package soundfile decodes WAV, FLAC, MP3, Ogg (Vorbis and Opus), AIFF and the other formats of libsndfile.
    Integer samples are scaled to the range -1 to 1. The package soxr resamples at its quality "HQ": n samples become
    n * rate / (the file's rate), rounded. Both packages are in `mdsx[audio]`.

    Args:
        rate: Samples per second. None: each file's own rate.
        mono: Whether to average all channels into one.
        max_samples: The most samples that a file may have in all channels together, before and after resampling. A file
            with more counts as damaged.

    Raises:
        UsageError: An argument is invalid, or a package is not installed.
    """

    rate: int | None = None
    mono: bool = True
    max_samples: int = 2**27

    def __post_init__(self) -> None:
        if self.rate is not None:
            check_count("rate of an mdsx.Audio", self.rate)
        check_count("max_samples of an mdsx.Audio", self.max_samples)
        if not isinstance(self.mono, bool):
            raise UsageError("mono of an mdsx.Audio must be True or False", found=shown(self.mono))
        try:
            import soundfile  # noqa: F401
            import soxr  # noqa: F401
        except (ModuleNotFoundError, OSError) as error:  # soundfile lacks its library
            hint = "pip install 'mdsx[audio]'"
            raise UsageError("mdsx.Audio needs soundfile and soxr", found=str(error), hint=hint) from None

    def gives(self, stored: str) -> str:
        """Return the type of the arrays; see `mdsx.Decoder`."""
        if stored not in _STORED:
            raise UsageError("mdsx.Audio cannot decode this column", found=stored, expected=" or ".join(_STORED))
        return f"{FLOAT32.name}[*]" if self.mono else f"{FLOAT32.name}[*,*]"

    def decode(self, data: bytes | memoryview, seed: int = 0) -> NDArray[np.float32]:
        """Return the samples of a file. Raise CorruptError if it is damaged, too long, or not a sound file."""
        try:
            return self._samples(data)
        except (CorruptError, MemoryError):
            raise
        except Exception as error:
            message = getattr(error, "error_string", str(error))  # without the name of a Python object
            raise CorruptError(f"the sound cannot be decoded: {message}") from error

    def _samples(self, data: bytes | memoryview) -> Samples:
        import soundfile
        import soxr

        with soundfile.SoundFile(BytesIO(data)) as file:
            own, channels, announced = file.samplerate, file.channels, file.frames
            longer = max((self.rate or own) / own, 1.0)
            most = math.floor(self.max_samples / longer) // channels
            if announced > most:
                raise self._too_long(announced, channels)
            found: Any = file.read(dtype=FLOAT32.name, always_2d=True)
        if self.mono and channels > 1:
            found = found.mean(axis=1, keepdims=True, dtype=np.float32)
        if self.rate is not None and self.rate != own:
            found = soxr.resample(found, own, self.rate, quality="HQ")
        samples: Samples = np.ascontiguousarray(found.T, np.float32)
        return samples[0] if self.mono else samples

    def _too_long(self, frames: int, channels: int) -> CorruptError:
        return CorruptError(
            "the sound is too long",
            found=f"{frames} samples of {channels} channels",
            expected=f"at most {self.max_samples} samples in all",
            hint="give the mdsx.Audio a larger max_samples=",
        )
