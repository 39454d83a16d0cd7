"""Compressed shards: independent zstd frames of 1 MiB of raw bytes each, then a seek table.

    shard.zst  = frame * count, seek table            count = ceil(raw size / 1 MiB)
    seek table = u32 0x184D2A5E, u32 size of what follows, (u32 compressed size, u32 raw size) * count,
                 u32 count, u8 descriptor 0, u32 0x8F92EAB1

Any zstd decompressor reads the file as a whole. A byte range can be read without the rest. The index has the raw size,
so a reader knows the size of each frame's content, and allocates no more.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import zstandard
from numpy.typing import NDArray

from mdsx.base.pieces import Pieces
from mdsx.errors import CorruptError

if TYPE_CHECKING:
    from typing_extensions import Buffer

FRAME_SIZE = 2**20
"""Raw bytes of each frame but the last, which has the rest."""
MAX_FRAME_SIZE = FRAME_SIZE + 2**16
"""The most bytes of a compressed frame: incompressible data grows a little."""
MAX_FRAME_HEADER = 18
MAX_FRAMES = 2**27
MAX_WINDOW = 2**23
DEFAULT_LEVEL = 3
"""Of zstd, where the user gives none."""

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
TABLE_HEAD = struct.Struct("<II")
_TABLE_FOOT = struct.Struct("<IBI")
_TABLE_END = struct.Struct("<IIIBI")  # the last frame's sizes, and the foot
_SKIPPABLE = 0x184D2A5E
_SEEKABLE = 0x8F92EAB1


TABLE_END = _TABLE_END.size
"""Bytes at the end of a stored object that `claimed_raw_size` needs."""


HEAD_SIZE = 2**17 + 64
"""Bytes at the start of a stored object that `first_bytes` needs: a zstd block, and headers."""
_FIRST_BYTES = 64  # a shard's header


_Size = TypeVar("_Size", int, NDArray[np.int64])


def frame_count(raw_size: _Size) -> _Size:
    return -(-raw_size // FRAME_SIZE)


def seek_table_size(raw_size: _Size) -> _Size:
    """Return the size of the seek table, at the end of the stored object, of a shard of `raw_size` bytes."""
    return TABLE_HEAD.size + 8 * frame_count(raw_size) + _TABLE_FOOT.size


def compress(raw: Buffer | Pieces, level: int = DEFAULT_LEVEL) -> bytes:
    """Return the compressed shard. The same libzstd and level give the same bytes."""
    pieces = raw if isinstance(raw, Pieces) else Pieces(raw)
    compressor = zstandard.ZstdCompressor(level=level, write_checksum=True, write_content_size=True)
    frames = [compressor.compress(part.joined()) for part in pieces.cut(FRAME_SIZE)]
    return b"".join((*frames, _seek_table([len(frame) for frame in frames], len(pieces))))


def decompress_frame(frame: Buffer, *, expected_size: int, file: str | None = None, place: str | None = None) -> bytes:
    """Return the `expected_size` raw bytes of `frame`, which must be exactly one frame. Raise CorruptError."""
    view = memoryview(frame).cast("B")
    check_frame_header(view, expected_size, file, place)
    try:
        decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW)
        return decompressor.decompress(view, max_output_size=expected_size, allow_extra_data=False)
    except zstandard.ZstdError as error:  # also if the content does not have the size in the header
        raise CorruptError(f"the frame is damaged: {error}", file=file, place=place) from None


def first_bytes(head: Buffer) -> bytes:
    """Return the first 64 raw bytes of a compressed shard, unverified. Raise CorruptError."""
    try:
        decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW)
        return decompressor.stream_reader(memoryview(head)).read(_FIRST_BYTES)
    except zstandard.ZstdError as error:
        raise CorruptError(f"the frame is damaged: {error}", place="frame 0") from None


def parse_seek_table(tail: Buffer, *, raw_size: int, size: int, file: str | None = None) -> NDArray[np.int64]:
    """Return the offset of each frame in the object of `size` bytes, and the end of the last: int64 [frames + 1].

    `tail` is the object's last `seek_table_size(raw_size)` bytes. Raise CorruptError.
    """
    view, frames = memoryview(tail).cast("B"), frame_count(raw_size)
    _check_sizes(raw_size, size, file)

    def expect(condition: bool, message: str, found: object, expected: object) -> None:
        if not condition:
            raise CorruptError(message, file=file, place="seek table", found=found, expected=expected)

    table_size = seek_table_size(raw_size)
    expect(len(view) == table_size, "wrong size", len(view), table_size)
    magic, content = TABLE_HEAD.unpack_from(view)
    expect(magic == _SKIPPABLE, "wrong magic", f"{magic:#x}", f"{_SKIPPABLE:#x}")
    expect(content == table_size - TABLE_HEAD.size, "wrong size", content, table_size - TABLE_HEAD.size)
    count, descriptor, magic = _TABLE_FOOT.unpack_from(view, table_size - _TABLE_FOOT.size)
    expect(magic == _SEEKABLE, "wrong magic at its end", f"{magic:#x}", f"{_SEEKABLE:#x}")
    expect(descriptor == 0, "wrong descriptor", descriptor, 0)
    expect(count == frames, "wrong number of frames", count, frames)
    sizes = np.frombuffer(view, "<u4", 2 * frames, TABLE_HEAD.size).reshape(frames, 2).astype(np.int64)
    whole = np.minimum(raw_size - np.arange(frames, dtype=np.int64) * FRAME_SIZE, FRAME_SIZE)
    wrong = (sizes[:, 1] != whole) | (sizes[:, 0] > MAX_FRAME_SIZE)
    if wrong.any():
        first = int(wrong.argmax())
        expect(
            False, f"wrong sizes of frame {first}", sizes[first].tolist(), [f"<= {MAX_FRAME_SIZE}", int(whole[first])]
        )
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes[:, 0])))
    expect(
        int(offsets[-1]) + table_size == size, "the frames do not fill the file", int(offsets[-1]), size - table_size
    )
    return offsets


def claimed_raw_size(tail: Buffer, *, file: str | None = None) -> int:
    """Return the raw size that the seek table at the end of `tail` claims, for a shard that no index names.

    The claim is unverified; FrameReader checks it. Raise CorruptError if there is no seek table.
    """
    view = memoryview(tail).cast("B")
    if len(view) < _TABLE_END.size:
        raise CorruptError("the file is too small for a seek table", file=file, found=f"{len(view)} bytes")
    _, last, count, _, magic = _TABLE_END.unpack(view[-_TABLE_END.size :])
    if magic != _SEEKABLE or not 1 <= count <= MAX_FRAMES or not 1 <= last <= FRAME_SIZE:
        raise CorruptError("no seek table at its end", file=file)
    raw_size: int = (count - 1) * FRAME_SIZE + last
    return raw_size


class FrameReader:
    """Decompresses a shard that arrives in chunks of any size: `feed` each chunk, then `finish`.

    It holds one frame at a time, and checks every rule: the frames, their content, the seek table, and that no bytes
    are missing or left over. Both methods raise CorruptError.
    """

    def __init__(self, raw_size: int, size: int, file: str | None = None) -> None:
        _check_sizes(raw_size, size, file)
        self._raw_size = raw_size
        self._file = file
        self._frames = frame_count(raw_size)
        self._sizes: list[int] = []  # of the frames read so far
        self._pending = bytearray()  # the beginning of the next frame, or of the seek table
        self._walked = 0  # bytes of `pending` that are known to belong to its frame
        self._left = size  # bytes that may still come

    def feed(self, chunk: Buffer) -> Iterator[bytes]:
        """Yield the raw bytes that are complete with `chunk`. The caller must exhaust the iterator."""
        view = memoryview(chunk).cast("B")
        self._left -= len(view)
        if self._left < 0:
            raise CorruptError("bytes follow the shard", file=self._file, found=-self._left, expected=0)
        for at in range(0, len(view), FRAME_SIZE):  # so that `pending` stays small, however large the chunk
            self._pending += view[at : at + FRAME_SIZE]
            while len(self._sizes) < self._frames and (end := self._frame_end()):
                yield self._decompress(end)

    def finish(self) -> None:
        """Check the seek table, and that no bytes are missing."""
        if self._left:
            place = f"frame {len(self._sizes)}" if len(self._sizes) < self._frames else "seek table"
            raise CorruptError(
                "the shard is truncated", file=self._file, place=place, found=f"{self._left} bytes missing"
            )
        if len(self._sizes) < self._frames:
            raise CorruptError("the shard ends within a frame", file=self._file, place=f"frame {len(self._sizes)}")
        size = sum(self._sizes) + len(self._pending)
        offsets = parse_seek_table(self._pending, raw_size=self._raw_size, size=size, file=self._file)
        wrong = np.flatnonzero(np.diff(offsets) != np.array(self._sizes, np.int64))
        if len(wrong):
            place = f"seek table, frame {wrong[0]}"
            found, expected = int(np.diff(offsets)[wrong[0]]), self._sizes[int(wrong[0])]
            raise CorruptError("wrong compressed size", file=self._file, place=place, found=found, expected=expected)

    def _expected(self) -> int:
        return min(FRAME_SIZE, self._raw_size - len(self._sizes) * FRAME_SIZE)

    def _frame_end(self) -> int:
        """Return where the pending frame ends; 0 if more bytes are needed."""
        data, place = self._pending, f"frame {len(self._sizes)}"
        if not self._walked:
            if len(data) < MAX_FRAME_HEADER:
                return 0
            head = memoryview(bytes(data[:MAX_FRAME_HEADER]))
            self._walked = check_frame_header(head, self._expected(), self._file, place)
        self._walked, end = walk_frame(data, self._walked, self._file, place)
        return end

    def _decompress(self, end: int) -> bytes:
        frame = bytes(self._pending[:end])
        place = f"frame {len(self._sizes)}"
        raw = decompress_frame(frame, expected_size=self._expected(), file=self._file, place=place)
        del self._pending[:end]
        self._sizes.append(end)
        self._walked = 0
        return raw


def walk_frame(data: bytearray | memoryview, walked: int, file: str | None, place: str) -> tuple[int, int]:
    """Follow the headers of a frame's blocks (RFC 8878, 3.1.1.2), from the one at `walked` on.

    Return how many bytes are known to belong to the frame, and where it ends (0 if more bytes are needed).
    """
    while len(data) >= walked + 3:
        block = int.from_bytes(data[walked : walked + 3], "little")
        kind, size = block >> 1 & 3, block >> 3
        if kind == 3:
            raise CorruptError("a block of a reserved kind", file=file, place=place)
        end = walked + 3 + (1 if kind == 1 else size)
        last = block & 1
        if end + 4 > MAX_FRAME_SIZE:
            expected = f"<= {MAX_FRAME_SIZE} bytes"
            raise CorruptError("the frame is too large", file=file, place=place, expected=expected)
        if last and len(data) >= end + 4:  # its checksum has 4 bytes
            return walked, end + 4
        if last or len(data) < end:
            break
        walked = end
    return walked, 0


def _seek_table(sizes: list[int], raw_size: int) -> bytes:
    entries = np.full((len(sizes), 2), FRAME_SIZE, "<u4")
    entries[:, 0] = sizes
    if sizes:
        entries[-1, 1] = raw_size - (len(sizes) - 1) * FRAME_SIZE
    size = seek_table_size(raw_size) - TABLE_HEAD.size
    head, foot = TABLE_HEAD.pack(_SKIPPABLE, size), _TABLE_FOOT.pack(len(sizes), 0, _SEEKABLE)
    return head + entries.tobytes() + foot


def _check_sizes(raw_size: int, size: int, file: str | None) -> None:
    if frame_count(raw_size) > MAX_FRAMES:
        raise CorruptError("too many frames", file=file, found=frame_count(raw_size), expected=f"at most {MAX_FRAMES}")
    if seek_table_size(raw_size) > size:
        message = "the file is too small for its seek table"
        raise CorruptError(message, file=file, found=f"{size} bytes", expected=f"{seek_table_size(raw_size)} or more")


def check_frame_header(data: memoryview, expected_size: int, file: str | None, place: str | None) -> int:
    """Check a frame's header, which must have `expected_size` as content size, and a checksum. Return its size."""
    if data[:4] != _ZSTD_MAGIC:
        raise CorruptError(
            "no zstd frame", file=file, place=place, found=bytes(data[:4]).hex(" "), expected=_ZSTD_MAGIC.hex(" ")
        )
    try:
        header = zstandard.get_frame_parameters(data)
        size = zstandard.frame_header_size(data)
    except zstandard.ZstdError as error:
        raise CorruptError(f"the frame's header is damaged: {error}", file=file, place=place) from None
    if header.content_size != expected_size:
        absent = header.content_size == zstandard.CONTENTSIZE_UNKNOWN
        found = "none" if absent else header.content_size
        raise CorruptError("wrong content size", file=file, place=place, found=found, expected=expected_size)
    if header.window_size > MAX_WINDOW:
        raise CorruptError(
            "the window is too large", file=file, place=place, found=header.window_size, expected="at most 8 MiB"
        )
    if header.dict_id:
        raise CorruptError("the frame needs a dictionary", file=file, place=place, found=header.dict_id)
    if not header.has_checksum:
        raise CorruptError("the frame has no checksum", file=file, place=place)
    return size
