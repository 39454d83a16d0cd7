"""Small tars for the tests, from Python's tarfile. Some tests damage them."""

from __future__ import annotations

import io
import struct
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

Members = Iterable[tuple[str, bytes]]
JPEG = b"\xff\xd8\xff\xe0" + b"pixels" + b"\xff\xd9"


def tar_bytes(members: Members, *, format: int = tarfile.PAX_FORMAT, mtime: float = 0) -> bytes:
    """Return a closed tar of regular files. Pax has a header of its own for a `mtime` with a fraction."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=format) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(data), mtime
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def write_tar(path: Path, members: Members) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(tar_bytes(members))
    return path


def sample_members(numbers: Iterable[int], columns: Mapping[str, str] | None = None) -> Iterator[tuple[str, bytes]]:
    """Return two members per sample: `doc/00007.txt` and `doc/00007.cls`."""
    for number in numbers:
        yield f"doc/{number:05d}.txt", f"text of {number}".encode()
        yield f"doc/{number:05d}.cls", str(number % 10).encode()


def npy(array: ArrayLike, *, allow_pickle: bool = False) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(array), allow_pickle=allow_pickle)
    return buffer.getvalue()


def png() -> bytes:
    """Return a real PNG of one pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0\0")) + chunk(b"IEND", b"")


def chunked(data: bytes, size: int = 1000) -> Iterator[bytes]:
    """`data` in chunks that cut through headers and bodies."""
    for start in range(0, len(data), size):
        yield data[start : start + size]
