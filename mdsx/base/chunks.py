"""Bytes that come in chunks of any size, read in pieces of any size."""

from __future__ import annotations

from collections.abc import Iterator


class Chunks:
    """The bytes of `chunks`, read in order. `offset` counts the bytes read so far."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self.offset = 0
        self._chunks = chunks
        self._chunk, self._at = b"", 0  # the current chunk, and the offset of its next unread byte

    def read(self, size: int) -> bytes:
        """Return the next `size` bytes, fewer at the end. Errors of the chunks' iterator propagate."""
        end = self._at + size
        if end <= len(self._chunk):
            data, self._at = self._chunk[self._at : end], end
        else:
            pieces = [self._chunk[self._at :]]
            missing = size - len(pieces[0])
            self._chunk, self._at = b"", 0
            while missing and (chunk := self._next_chunk()):
                pieces.append(chunk[:missing])
                if len(chunk) > missing:
                    self._chunk, self._at = chunk, missing
                missing -= len(pieces[-1])
            data = b"".join(pieces)
        self.offset += len(data)
        return data

    def _next_chunk(self) -> bytes:
        """Return the next chunk that is not empty, or b"" at the end."""
        return next((chunk for chunk in self._chunks if chunk), b"")
