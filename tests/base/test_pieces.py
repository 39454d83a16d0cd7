"""Bytes in several buffers are one sequence."""

from __future__ import annotations

import xxhash
from hypothesis import given
from hypothesis import strategies as st

from mdsx.base.pieces import Pieces

BUFFERS = st.lists(st.binary(max_size=9), max_size=6)


@given(BUFFERS, st.integers(0, 60), st.integers(0, 60))
def test_pieces_are_sliced_like_their_bytes(buffers: list[bytes], start: int, stop: int) -> None:
    """Buffers may be empty, and a slice may begin or end anywhere, also beyond the end."""
    whole, pieces = b"".join(buffers), Pieces(*buffers)
    assert len(pieces) == len(whole)
    part = pieces[start:stop]
    assert part.joined() == b"".join(part) == whole[start:stop]
    assert len(part) == len(whole[start:stop])


@given(BUFFERS, st.integers(1, 20))
def test_parts_have_the_size_asked_for(buffers: list[bytes], size: int) -> None:
    """Only the last part may be smaller, and none is empty."""
    whole = b"".join(buffers)
    parts = [bytes(part.joined()) for part in Pieces(*buffers).cut(size)]
    assert parts == [whole[at : at + size] for at in range(0, len(whole), size)]


@given(BUFFERS)
def test_the_digest_is_that_of_all_bytes(buffers: list[bytes]) -> None:
    assert Pieces(*buffers).digest() == xxhash.xxh3_128_digest(b"".join(buffers))


def test_slices_share_their_memory() -> None:
    """What changes in the buffer changes in the slice: nothing was copied."""
    buffer = bytearray(b"abcdef")
    part = Pieces(buffer, b"ghi")[1:4]
    buffer[2] = ord("x")
    assert bytes(part.joined()) == b"bxd"
