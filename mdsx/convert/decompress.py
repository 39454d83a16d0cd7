"""Chunks of a file as it is stored -> chunks of the tar inside it: plain, gzip or zstd, told by their first bytes.

The name's ending is not asked: it is as often wrong as right. A stream that is cut, or fails its own checksum, is a
CorruptError; so is anything but zeros behind a gzip stream. File and place are added by who reads the tar. Chunks are
bounded whatever the compression; a stream that unpacks to more than 64 MiB and 1,100 times its size is refused: gzip
never does, zstd does for nothing but long runs of one byte.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator

from mdsx.errors import CorruptError, UnsupportedError

_PIECE = 2**20
_SLICE = 2**16  # of a chunk given to gzip at once: what is left over is copied
_ROOM, _RATIO = 2**26, 1100
_FEED = 1024  # zstd hands out at once all that its input stands for, up to 32 KiB a byte: small input bounds it
_FOREIGN = {b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"PK\x03\x04": "zip", b"\x1f\x9d": "compress"}


def decompress(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The chunks of what `chunks` hold: themselves, or decompressed. Raises CorruptError, UnsupportedError."""
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
            raise UnsupportedError(f"is {name}: tars are read plain or by gzip or zstd", hint="decompress it first")
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
        raise CorruptError("gzip stream is cut")


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
                message = f"zstd stream unpacks to more than {_RATIO:,} times its size"
                raise CorruptError(message, found=f"{given:,} bytes of {taken:,}", hint="decompress it first")
            if piece:
                yield piece
            data = frame.unused_data if frame.eof else b""
            frame = None if frame.eof else frame
    if frame is not None:
        raise CorruptError("zstd stream is cut")
