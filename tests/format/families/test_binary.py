"""Errors for bytes that are not of the column's format."""

from __future__ import annotations

import pytest

from mdsx.errors import SampleError
from mdsx.format import Encoder, Schema


@pytest.mark.parametrize(
    ("base", "data", "beginning", "found"),
    [
        ("jpeg", b"GIF89a0123", r"b'\xff\xd8\xff'", "b'GIF89a01'"),
        ("webp", b"RIFF....WAVEfmt ", "b'RIFF', b'WEBP' at byte 8", "b'RIFF....WAVE'"),
        ("avif", b"....ftypheic....", "b'ftypavif' at byte 4, or b'ftypavis' at byte 4", "b'....ftypheic'"),
    ],
)
def test_bytes_of_another_format_raise_with_the_right_beginnings(
    base: str, data: bytes, beginning: str, found: str
) -> None:
    with pytest.raises(SampleError) as caught:
        Encoder(Schema.from_columns({"x": base})).sample({"x": data})
    assert caught.value.expected == f"{base} data, which begins with {beginning}"
    assert caught.value.found == found
    assert caught.value.hint == f"pass the bytes of the encoded {base} file"
