"""Decompress shards. The output never exceeds the size in the index, whatever a file claims.

gz, bz2 and zstd files may have several streams, one after the other, as tools write that compress in parallel.

zstd, gz and bz2 are decompressed in pieces while they arrive. br and snappy are collected first, because their library
can limit only whole files.
"""

from __future__ import annotations

import bz2
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import zstandard

from mdsx.base.decompress import inflate
from mdsx.errors import CorruptError, UsageError

NAMES = ("br", "bz2", "gz", "snappy", "zstd")

_PIECE = 2**20  # bytes made at once
_SLICE = 2**16  # bytes passed to zlib and bz2 at once, because they copy unconsumed bytes
_FEED = 2048  # bytes passed to zstd at once, because it returns all of their output at once, up to 32 KiB per byte
_MAX_WINDOW = 2**27  # of the highest level
_MOST_BY_SNAPPY = 32  # its instructions of 3 bytes copy up to 64


class Decompressor(Protocol):
    """Decompresses one file. All errors are CorruptErrors without file and place."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the output of the next bytes, in pieces of bounded size."""

    def finish(self) -> Iterator[bytes]:
        """Yield the remaining output at the end of the file."""


def decompressor(name: str, raw_size: int) -> Decompressor:
    """Return a new decompressor of `name`, one of NAMES. Raise UsageError if its package is not installed."""
    if name in ("br", "snappy"):
        return _Whole(name, raw_size)
    return _STREAMS[name]()


class _Gzip:
    def __init__(self) -> None:
        self._stream = zlib.decompressobj(wbits=31)

    def feed(self, data: bytes) -> Iterator[bytes]:
        for start in range(0, len(data), _SLICE):
            rest = data[start : start + _SLICE]
            while rest:
                if self._stream.eof:
                    self._stream = zlib.decompressobj(wbits=31)
                try:
                    yield from inflate(self._stream, rest)
                except zlib.error as error:
                    raise CorruptError(f"the compressed bytes are damaged: {error}") from None
                rest = self._stream.unused_data

    def finish(self) -> Iterator[bytes]:
        return _ended(self._stream.eof)


class _Bzip2:
    def __init__(self) -> None:
        self._stream = bz2.BZ2Decompressor()

    def feed(self, data: bytes) -> Iterator[bytes]:
        for start in range(0, len(data), _SLICE):
            rest = data[start : start + _SLICE]
            while rest:
                if self._stream.eof:
                    self._stream = bz2.BZ2Decompressor()
                yield from self._pieces(rest)
                rest = self._stream.unused_data

    def _pieces(self, data: bytes) -> Iterator[bytes]:
        """Yield the output of `data`, up to the end of the stream."""
        stream = self._stream
        while True:
            try:
                yield stream.decompress(data, _PIECE)
            except (OSError, ValueError) as error:
                raise CorruptError(f"the compressed bytes are damaged: {error}") from None
            if stream.eof or stream.needs_input:
                return
            data = b""

    def finish(self) -> Iterator[bytes]:
        return _ended(self._stream.eof)


class _Zstd:
    def __init__(self) -> None:
        self._frames = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW)
        self._stream = self._frames.decompressobj()

    def feed(self, data: bytes) -> Iterator[bytes]:
        for start in range(0, len(data), _FEED):
            rest = data[start : start + _FEED]
            while rest:
                if self._stream.eof:
                    self._stream = self._frames.decompressobj()
                try:
                    yield self._stream.decompress(rest)
                except zstandard.ZstdError as error:
                    raise CorruptError(f"the compressed bytes are damaged: {error}") from None
                rest = self._stream.unused_data

    def finish(self) -> Iterator[bytes]:
        return _ended(self._stream.eof)


class _Whole:
    def __init__(self, name: str, raw_size: int) -> None:
        try:
            import cramjam
        except ModuleNotFoundError:
            message = f"shards compressed with {name} need the package cramjam"
            raise UsageError(message, hint="pip install 'mdsx[mds]'") from None
        self._name, self._raw_size, self._stored = name, raw_size, bytearray()
        self._into: Callable[[Any, Any], int] = (
            cramjam.brotli.decompress_into if name == "br" else cramjam.snappy.decompress_raw_into
        )
        self._error: type[Exception] = cramjam.DecompressionError

    def feed(self, data: bytes) -> Iterator[bytes]:
        self._stored += data
        return iter(())

    def finish(self) -> Iterator[bytes]:
        size = self._raw_size
        if self._name == "snappy" and size > _MOST_BY_SNAPPY * len(self._stored):
            message, found = "the compressed bytes are too few to hold the shard", len(self._stored)
            raise CorruptError(message, found=found, expected=f"{size} bytes after decompression")
        try:
            raw = bytearray(size)
            made = self._into(self._stored, raw)
        except MemoryError:
            raise CorruptError("there is not enough memory for the shard", expected=f"{size} bytes") from None
        except self._error as error:
            raise CorruptError(f"the compressed bytes are damaged: {error}") from None
        yield memoryview(raw)[:made]  # type: ignore[misc]  # a buffer


_STREAMS: dict[str, Callable[[], Decompressor]] = {"zstd": _Zstd, "gz": _Gzip, "bz2": _Bzip2}


def _ended(eof: bool) -> Iterator[bytes]:
    if not eof:
        raise CorruptError("the compressed bytes end early")
    return iter(())
