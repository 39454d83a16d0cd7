"""Decompress a file in chunks: plain, gzip, zstd or, if the caller allows it, zlib.

The first bytes decide, not the file's suffix, which is often wrong. A truncated stream, a failed checksum, or anything
but zeros after a gzip stream raises CorruptError. The caller adds file and place. The size of the chunks is bounded
for any compression. A stream that decompresses to more than 64 MiB and 1,100 times its size is refused: gzip cannot
exceed that ratio, and zstd does so only for long runs of one byte. A zstd stream with a window of more than 128 MiB is
refused, too, because decompressing it could take as much memory; it is not damaged, so the error is UnsupportedError.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from mdsx.errors import CorruptError, UnsupportedError

MOST_UNPACKED = "64 MiB and 1,100 times the stored bytes"
"""The limit of `most_unpacked`, for messages."""

_PIECE = 2**20
_SLICE = 2**16  # bytes passed to gzip at once: it copies what it does not consume
_ROOM, _RATIO = 2**26, 1100
_FEED = 1024  # bytes passed to zstd at once: it returns all their output at once, up to 32 KiB for a byte
_TOO_LONG = "Frame requires too much memory"  # zstd's message for a window above its default limit
_SHORTEN = "decompress it (zstd -d --long=31), and compress it without --long"
_FOREIGN = {rb"BZh[1-9](1AY&|\x17rE8)": "bzip2", rb"\xfd7zXZ": "xz", rb"PK\x03\x04": "zip", rb"\x1f\x9d": "compress"}
"""The first bytes of compressions that mdsx cannot read, as patterns: ordinary text may begin with BZh."""


def most_unpacked(stored: int) -> int:
    """Return the most bytes that `stored` bytes of a file may expand to by decompression or by holes."""
    return _ROOM + _RATIO * stored


def decompress(chunks: Iterator[bytes], *, zlib_too: bool = False) -> Iterator[bytes]:
    """Yield `chunks`, decompressed if necessary. Raise CorruptError or UnsupportedError.

    `zlib_too`: also detect zlib streams, whose first two bytes could be text.
    """
    head = _head(chunks)
    is_zlib = zlib_too and head[:1] == b"\x78" and int.from_bytes(head[:2]) % 31 == 0
    yield from (_zlib if is_zlib else _decoder(head))(_chain(head, chunks))


def refuse_compressed(chunks: Iterator[bytes], *, file: str) -> Iterator[bytes]:
    """Return `chunks` unchanged. Raise UnsupportedError at once if they are compressed."""
    head = _head(chunks)
    try:
        decoder = _decoder(head)
    except UnsupportedError as error:
        raise UnsupportedError(error.message, file=file, hint=error.hint) from None
    if decoder is not _plain:
        name = "gzip" if decoder is gunzip else "zstd"
        hint = "convert it with `mdsx convert tar`, or decompress it"
        raise UnsupportedError(f"a {name} tar cannot be read in place", file=file, hint=hint)
    return _chain(head, chunks)


def _head(chunks: Iterator[bytes]) -> bytes:
    head = b""
    for chunk in chunks:
        head += chunk
        if len(head) >= 8:
            break
    return head


def _plain(chunks: Iterator[bytes]) -> Iterator[bytes]:
    return chunks


def is_compressed(head: bytes) -> bool:
    """Return whether a file that begins with these bytes, 8 or more, is gzip or zstd. Raise UnsupportedError."""
    return _decoder(head) is not _plain


def _decoder(head: bytes) -> Callable[[Iterator[bytes]], Iterator[bytes]]:
    if head.startswith(b"\x1f\x8b"):
        return gunzip
    if head.startswith(b"\x28\xb5\x2f\xfd") or (head[1:4] == b"\x2a\x4d\x18" and 0x50 <= head[0] <= 0x5F):
        return _zstd
    for magic, name in _FOREIGN.items():
        if re.match(magic, head):
            raise UnsupportedError(f"is {name}: files may be plain, gzip or zstd", hint="decompress it first")
    return _plain


def _chain(head: bytes, chunks: Iterator[bytes]) -> Iterator[bytes]:
    if head:
        yield head
    yield from chunks


def _sliced(chunks: Iterator[bytes], size: int) -> Iterator[bytes]:
    for chunk in chunks:
        for start in range(0, len(chunk), size):
            yield chunk[start : start + size]


def gunzip(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the bytes of gzip `chunks`. Raise CorruptError."""
    return _inflated(chunks, "gzip", 31)


def _zlib(chunks: Iterator[bytes]) -> Iterator[bytes]:
    return _inflated(chunks, "zlib", 15)


def _inflated(chunks: Iterator[bytes], name: str, wbits: int) -> Iterator[bytes]:
    stream, streams = None, 0
    for data in _sliced(chunks, _SLICE):
        while data:
            if stream is None:
                data = data.lstrip(b"\0") if streams else data  # gzip files may be padded with zeros
                if not data:
                    break
                stream, streams = zlib.decompressobj(wbits=wbits), streams + 1
            try:
                yield from inflate(stream, data)
            except zlib.error as error:
                raise CorruptError(f"{name} stream is damaged: {error}") from None
            data = stream.unused_data
            stream = None if stream.eof else stream
    if stream is not None:
        raise CorruptError(f"{name} stream is truncated")


def inflate(stream: Any, data: bytes) -> Iterator[bytes]:
    """Decompress `data` with a `zlib.decompressobj`, and yield pieces of at most 1 MiB up to the stream's end. Raise
    zlib.error."""
    full = True
    while full and not stream.eof:
        piece = stream.decompress(data, _PIECE)
        data, full = stream.unconsumed_tail, len(piece) == _PIECE
        if piece:
            yield piece


def _zstd(chunks: Iterator[bytes]) -> Iterator[bytes]:
    import zstandard

    decoder, frame = zstandard.ZstdDecompressor(), None
    taken, given = 0, 0
    for data in _sliced(chunks, _FEED):
        taken += len(data)
        while data:
            frame = frame or decoder.decompressobj()
            try:
                piece = frame.decompress(data)
            except zstandard.ZstdError as error:
                if _TOO_LONG in str(error):
                    raise UnsupportedError("zstd stream has a window of more than 128 MiB", hint=_SHORTEN) from None
                raise CorruptError(f"zstd stream is damaged: {error}") from None
            given += len(piece)
            if given > most_unpacked(taken):
                message = f"zstd stream decompresses to more than {_RATIO:,} times its size"
                raise CorruptError(message, found=f"{given:,} bytes from {taken:,}", hint="decompress it first")
            if piece:
                yield piece
            data = frame.unused_data if frame.eof else b""
            frame = None if frame.eof else frame
    if frame is not None:
        raise CorruptError("zstd stream is truncated")
