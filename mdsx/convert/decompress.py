"""Decompress the chunks of a tar: plain, gzip or zstd, detected by the first bytes.

The suffix of the file's name is ignored, because it is often wrong. A truncated stream, or one that fails its own
checksum, raises CorruptError; so does anything but zeros after a gzip stream. The tar's reader adds file and place.
Chunks have a bounded size with any compression. A stream that decompresses to more than 64 MiB and 1,100 times its size
is refused; gzip cannot exceed that ratio, and zstd does so only for long runs of one byte.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator

from mdsx.errors import CorruptError, UnsupportedError

_PIECE = 2**20
_SLICE = 2**16  # bytes passed to gzip at once, because it copies those that it does not consume
_ROOM, _RATIO = 2**26, 1100
_FEED = 1024  # bytes passed to zstd at once, because it returns all their output at once, up to 32 KiB for a byte
_FOREIGN = {b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"PK\x03\x04": "zip", b"\x1f\x9d": "compress"}


def decompress(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield `chunks`, decompressed if necessary. Raise CorruptError or UnsupportedError."""
    head = b""
    for chunk in chunks:
        head += chunk
        if len(head) >= 8:
            break
    yield from _decoder(head)(_chain(head, chunks))


def _decoder(head: bytes) -> Callable[[Iterator[bytes]], Iterator[bytes]]:
    if head.startswith(b"\x1f\x8b"):
        return _gzip
    if head.startswith(b"\x28\xb5\x2f\xfd") or (head[1:4] == b"\x2a\x4d\x18" and 0x50 <= head[0] <= 0x5F):
        return _zstd
    for magic, name in _FOREIGN.items():
        if head.startswith(magic):
            raise UnsupportedError(f"is {name}: tars may be plain, gzip or zstd", hint="decompress it first")
    return lambda chunks: chunks


def _chain(head: bytes, chunks: Iterator[bytes]) -> Iterator[bytes]:
    if head:
        yield head
    yield from chunks


def _sliced(chunks: Iterator[bytes], size: int) -> Iterator[bytes]:
    for chunk in chunks:
        for start in range(0, len(chunk), size):
            yield chunk[start : start + size]


def _gzip(chunks: Iterator[bytes]) -> Iterator[bytes]:
    stream, streams = None, 0
    for data in _sliced(chunks, _SLICE):
        while data:
            if stream is None:
                data = data.lstrip(b"\0") if streams else data  # gzip files may be padded with zeros
                if not data:
                    break
                stream, streams = zlib.decompressobj(wbits=31), streams + 1
            full = True
            while full and not stream.eof:
                try:
                    piece = stream.decompress(data, _PIECE)
                except zlib.error as error:
                    raise CorruptError(f"gzip stream is damaged: {error}") from None
                data, full = stream.unconsumed_tail, len(piece) == _PIECE
                if piece:
                    yield piece
            data = stream.unused_data
            stream = None if stream.eof else stream
    if stream is not None:
        raise CorruptError("gzip stream is truncated")


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
                raise CorruptError(f"zstd stream is damaged: {error}") from None
            given += len(piece)
            if given > _ROOM + _RATIO * taken:
                message = f"zstd stream decompresses to more than {_RATIO:,} times its size"
                raise CorruptError(message, found=f"{given:,} bytes of {taken:,}", hint="decompress it first")
            if piece:
                yield piece
            data = frame.unused_data if frame.eof else b""
            frame = None if frame.eof else frame
    if frame is not None:
        raise CorruptError("zstd stream is truncated")
