"""Damaged and hostile files: a CorruptError, never another error, and no more memory than the limits allow."""

from __future__ import annotations

import struct
import zlib
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mdsx
from mdsx.decoding.jpeg_header import read_header
from tests.decoding.files import encoded, jpeg, photo, sound, tone

Backend = Literal["turbo", "pillow"]
BACKENDS = pytest.mark.parametrize("backend", ["turbo", "pillow"])
FILES = {
    "jpeg": jpeg(photo(40, 60), orientation=6),
    "progressive": jpeg(photo(40, 60), progressive=True),
    "png": encoded(photo(40, 60)),
    "webp": encoded(photo(40, 60), "WEBP"),
    "gif": encoded(photo(40, 60), "GIF"),
    "tiff": encoded(photo(40, 60), "TIFF", compression="tiff_lzw"),
}
SOUNDS = {
    "wav": sound(tone(8000, 0.1), 8000),
    "flac": sound(tone(8000, 0.1), 8000, "FLAC"),
    "ogg": sound(tone(8000, 0.1), 8000, "OGG"),
    "mp3": sound(tone(8000, 0.1), 8000, "MP3"),
}
IMAGES = [mdsx.Image(backend="turbo"), mdsx.Image(size=16, resize="random_crop", backend="turbo")]
IMAGES += [mdsx.Image(size=16, mode="L", backend="pillow")]


def png(width: int, height: int, data: bytes = b"") -> bytes:
    """Return a PNG that says it has this size."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")


def with_size(data: bytes, width: int, height: int) -> bytes:
    """Return a JPEG whose header says another size."""
    at = data.index(b"\xff\xc0") + 5
    return data[:at] + struct.pack(">HH", height, width) + data[at + 4 :]


@BACKENDS
@pytest.mark.parametrize("name", FILES)
def test_a_truncated_picture_is_corrupt(name: str, backend: Backend) -> None:
    data = FILES[name]
    for size in (0, 1, 3, 20, len(data) // 2, len(data) * 3 // 4):
        with pytest.raises(mdsx.CorruptError):
            mdsx.Image(backend=backend).decode(data[:size])


@BACKENDS
@pytest.mark.parametrize(
    "data", [b"", b"\xff\xd8\xff", b"\xff\xd8\xff\xd9", b"%!PS-Adobe-3.0 EPSF-3.0\n", b"text" * 99]
)
def test_what_is_no_picture_is_corrupt(data: bytes, backend: Backend) -> None:
    with pytest.raises(mdsx.CorruptError, match=r"not a picture \(expected JPEG, PNG|no valid frame header"):
        mdsx.Image(backend=backend).decode(data)


@BACKENDS
@pytest.mark.parametrize("size", [None, 32])
def test_a_bomb_is_refused_by_its_header(size: int | None, backend: Backend) -> None:
    image = mdsx.Image(size=size, backend=backend)
    large = photo(40, 60)
    for data in (
        png(60_000, 60_000),
        png(10_000, 10_000),
        png(2**31 - 1, 2**31 - 1),
        with_size(jpeg(large), 65_000, 65_000),
        with_size(jpeg(large), 9_000, 9_000),
    ):
        with pytest.raises(mdsx.CorruptError, match=r"too large|pixels"):
            image.decode(data)


@BACKENDS
def test_max_pixels_is_the_most_that_a_picture_may_have(backend: Backend) -> None:
    for data in (jpeg(photo(40, 60)), encoded(photo(40, 60))):
        assert mdsx.Image(max_pixels=2400, backend=backend).decode(data).shape == (40, 60, 3)
        message = r"too large \(expected at most 2399 pixels, found 60 x 40\); give the mdsx.Image a larger max_pixels="
        with pytest.raises(mdsx.CorruptError, match=message):
            mdsx.Image(max_pixels=2399, backend=backend).decode(data)


def test_what_is_missing_in_a_jpeg_is_judged_as_pillow_does() -> None:
    """libjpeg warns of pixels that lack, and of stray bytes, and continues; Pillow takes what it gives."""
    data = jpeg(photo(40, 60))
    at = data.index(b"\xff\xdb")
    for odd in (data[:at] + b"\0\0\0" + data[at:], with_size(data, 64, 80)):
        assert (mdsx.Image(backend="turbo").decode(odd) == mdsx.Image(backend="pillow").decode(odd)).all()


@given(st.sampled_from(sorted(FILES)), st.integers(0, 10**6), st.binary(min_size=1, max_size=4), st.integers(0, 2))
def test_damaged_bytes_give_a_picture_or_a_corrupt_error(name: str, at: int, put: bytes, number: int) -> None:
    data = bytearray(FILES[name])
    at %= len(data)
    data[at : at + len(put)] = put
    try:
        found = IMAGES[number].decode(bytes(data), at)
    except mdsx.CorruptError:
        return
    assert found.ndim == 3


@given(st.binary(max_size=300))
def test_any_bytes_after_a_jpegs_marker_have_a_header_or_are_corrupt(data: bytes) -> None:
    try:
        header = read_header(memoryview(b"\xff\xd8\xff" + data))
    except mdsx.CorruptError:
        return
    assert header.width > 0
    assert header.height > 0
    assert 1 <= header.orientation <= 8


@given(st.sampled_from(sorted(SOUNDS)), st.integers(0, 10**6), st.binary(min_size=1, max_size=4))
def test_damaged_bytes_give_a_sound_or_a_corrupt_error(name: str, at: int, put: bytes) -> None:
    data = bytearray(SOUNDS[name])
    at %= len(data)
    data[at : at + len(put)] = put
    try:
        found = mdsx.Audio(16000, max_samples=10**6).decode(bytes(data))
    except mdsx.CorruptError:
        return
    assert found.ndim == 1
