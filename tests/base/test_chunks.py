"""Bytes in chunks are read in pieces of any size."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mdsx.base.chunks import Chunks


@given(st.lists(st.binary(max_size=9)), st.lists(st.integers(0, 20)))
def test_pieces_are_the_bytes_in_order(chunks: list[bytes], sizes: list[int]) -> None:
    """Chunks may be empty. After the end, pieces are empty."""
    whole, stream, at = b"".join(chunks), Chunks(iter(chunks)), 0
    for size in sizes:
        assert stream.read(size) == whole[at : at + size]
        at = min(at + size, len(whole))
        assert stream.offset == at
