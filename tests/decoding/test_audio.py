"""mdsx.Audio: every kind of file becomes the samples that were put into it, at the rate that is asked for."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import mdsx
from tests.decoding.files import sound, tone

KINDS = [
    ("WAV", "PCM_16", 1e-4),
    ("WAV", "PCM_24", 1e-6),
    ("WAV", "FLOAT", 0.0),
    ("FLAC", "PCM_16", 1e-4),
    ("AIFF", "PCM_16", 1e-4),
    ("OGG", "VORBIS", 0.02),
    ("OGG", "OPUS", 0.02),
    ("MP3", "MPEG_LAYER_III", 0.02),
]


@pytest.mark.parametrize(("kind", "subtype", "tolerance"), KINDS)
@pytest.mark.parametrize("channels", [1, 2])
def test_each_kind_of_file_gives_its_samples(channels: int, kind: str, subtype: str, tolerance: float) -> None:
    samples = tone(48_000, channels=channels)
    found = mdsx.Audio(mono=False).decode(sound(samples, 48_000, kind, subtype))
    assert found.dtype == np.float32
    assert found.shape == (channels, 24_000)
    middle = slice(2000, -2000) if tolerance > 0.01 else slice(None)  # codecs with loss begin and end softly
    assert np.abs(found - samples.T)[:, middle].max() <= tolerance


def test_mono_is_the_mean_of_the_channels() -> None:
    samples = tone(8000, channels=3)
    found = mdsx.Audio().decode(sound(samples, 8000, "WAV", "FLOAT"))
    np.testing.assert_allclose(found, samples.mean(axis=1), atol=1e-7)


@pytest.mark.parametrize(("own", "rate"), [(48_000, 16_000), (8000, 16_000), (44_100, 16_000), (16_000, 16_000)])
@pytest.mark.parametrize("mono", [True, False])
def test_sound_is_resampled_to_the_rate(own: int, rate: int, mono: bool) -> None:
    data = sound(tone(own, channels=2), own, "FLAC")
    found = mdsx.Audio(rate, mono=mono).decode(data)
    expected = tone(rate, channels=2).T.mean(axis=0) if mono else tone(rate, channels=2).T
    assert found.shape == expected.shape
    middle = slice(rate // 10, -rate // 10)  # the filter rings at the ends
    assert np.abs(found - expected)[..., middle].max() < 2e-3


def test_what_the_rate_cannot_hold_is_filtered_out() -> None:
    high = sound(tone(48_000, hertz=12_000), 48_000, "WAV", "FLOAT")
    assert np.abs(mdsx.Audio(16_000).decode(high)[1000:-1000]).max() < 1e-3


def test_a_file_with_too_many_samples_is_refused() -> None:
    data = sound(tone(8000, channels=2), 8000)
    assert len(mdsx.Audio(max_samples=8000).decode(data)) == 4000
    message = r"too long \(expected at most 7999 samples in all, found 4000 samples of 2 channels\); .*max_samples="
    with pytest.raises(mdsx.CorruptError, match=message):
        mdsx.Audio(max_samples=7999).decode(data)
    with pytest.raises(mdsx.CorruptError, match="the sound is too long"):
        mdsx.Audio(16_000, max_samples=8000).decode(data)  # it grows


@pytest.mark.parametrize("data", [b"", b"RIFF", b"fLaC" + bytes(50), b"text" * 100])
def test_what_is_no_sound_is_corrupt(data: bytes) -> None:
    with pytest.raises(mdsx.CorruptError, match=r"^the sound cannot be decoded: [^<]+$"):
        mdsx.Audio().decode(data)


def test_it_is_a_value_that_says_what_it_gives() -> None:
    audio = mdsx.Audio(16_000, mono=False)
    assert pickle.loads(pickle.dumps(audio)) == audio
    assert hash(audio) == hash(mdsx.Audio(16_000, mono=False))
    assert [audio.gives("bytes"), mdsx.Audio().gives("bytes")] == ["float32[*,*]", "float32[*]"]
    with pytest.raises(mdsx.UsageError, match=r"mdsx.Audio cannot decode this column .*found jpeg"):
        audio.gives("jpeg")


@pytest.mark.parametrize("arguments", [{"rate": 0}, {"rate": 16e3}, {"mono": 1}, {"max_samples": None}])
def test_invalid_arguments_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(mdsx.UsageError, match=f"{next(iter(arguments))} of an mdsx.Audio"):
        mdsx.Audio(**arguments)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "soxr", None)
    with pytest.raises(mdsx.UsageError, match=r"needs soundfile and soxr.*pip install 'mdsx\[audio\]'"):
        mdsx.Audio()
