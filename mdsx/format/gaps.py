"""Recover the raw bytes of a damaged shard, with gaps where a frame cannot be decompressed.

Only its own checksum proves a frame, so the caller must check the samples in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import zstandard
from numpy.typing import NDArray

from mdsx.errors import CorruptError
from mdsx.format.frames import (
    FRAME_SIZE,
    MAX_FRAME_HEADER,
    MAX_FRAME_SIZE,
    TABLE_HEAD,
    check_frame_header,
    decompress_frame,
    frame_count,
    parse_seek_table,
    seek_table_size,
    walk_frame,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

_LEAST_FRAME = 14
"""Bytes of the smallest frame, which has one raw byte."""
_LEAST_WHOLE_FRAME = 17
"""Bytes of the smallest frame of 1 MiB."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Raw bytes [start, stop) that cannot be recovered, and the error."""

    start: int
    stop: int
    error: CorruptError


def plain_bytes(stored: memoryview, raw_size: int, file: str | None) -> tuple[memoryview, list[Gap]]:
    """Return the bytes of a damaged shard that is not compressed, and its gaps."""
    if len(stored) >= raw_size:
        return stored[:raw_size], []
    expected = f"{raw_size} bytes"
    error = CorruptError("the shard is truncated", file=file, place=f"byte {len(stored)}", expected=expected)
    return stored, [Gap(len(stored), raw_size, error)]


def framed_bytes(stored: memoryview, raw_size: int, file: str | None) -> tuple[memoryview, list[Gap]]:
    """Return the raw bytes of a damaged shard up to its last undamaged frame, with zeros in the gaps; and the gaps."""
    raw, gaps = bytearray(), []
    for number, frame in enumerate(_salvage_frames(stored, raw_size=raw_size, file=file)):
        start = number * FRAME_SIZE
        if isinstance(frame, CorruptError):
            gaps.append(Gap(start, min(start + FRAME_SIZE, raw_size), frame))
        else:
            raw += bytes(start - len(raw))
            raw += frame
    if gaps and gaps[-1].start >= len(raw):  # no bytes after it were recovered
        gaps[-1] = replace(gaps[-1], stop=raw_size)
    return memoryview(raw), gaps


def check_table(stored: memoryview, raw_size: int, size: int, file: str | None) -> list[CorruptError]:
    """Return the problems of the seek table."""
    try:
        if len(stored) < size:
            expected = f"{size} bytes"
            raise CorruptError("the shard is truncated", file=file, place=f"byte {len(stored)}", expected=expected)
        parse_seek_table(stored[-seek_table_size(raw_size) :], raw_size=raw_size, size=size, file=file)
    except CorruptError as error:
        return [error]
    return []


def _salvage_frames(stored: Buffer, *, raw_size: int, file: str | None = None) -> Iterator[bytes | CorruptError]:
    """Yield the raw bytes of each frame of a damaged shard, or its error. Stop after the last frame that can be found.

    A frame may start where the previous one ends, or at an offset from the seek table, counted from either end of the
    file. So damage to one frame, or to one entry of the table, hides no other frame. `stored`: the file, maybe
    truncated. No frame is sought beyond as many as a file of this size could have: a wrong `raw_size` takes no memory.
    """
    view, frames = memoryview(stored).cast("B"), frame_count(raw_size)
    count = min(frames, len(view) // _LEAST_WHOLE_FRAME + 1)
    claimed = _claimed_offsets(view, raw_size)
    following: int | None = 0  # where this frame starts, if the previous one is undamaged
    least = 0  # the end of the last frame that was found: a later one cannot start before it
    for number in range(count):
        place, size = f"frame {number}", min(FRAME_SIZE, raw_size - number * FRAME_SIZE)
        found, problem = None, None
        for start in _places(view, following, claimed, number, least):
            try:
                stop = _end(view, start, size, file, place)
                found = decompress_frame(view[start:stop], expected_size=size, file=file, place=place)
            except CorruptError as error:
                problem = problem or error
                continue
            following = least = stop
            break
        if found is not None:
            yield found
            continue
        following = None
        yield problem or CorruptError("the frame cannot be found", file=file, place=place)
        if claimed is None:
            return
    if count < frames:
        yield CorruptError("the frame cannot be found", file=file, place=f"frame {count}")


def first_frame(stored: Buffer, *, file: str | None = None) -> bytes:
    """Return the raw bytes of the first frame of a shard of unknown size. Raise CorruptError."""
    view = memoryview(stored).cast("B")
    try:
        size = zstandard.get_frame_parameters(view[:MAX_FRAME_HEADER]).content_size
    except zstandard.ZstdError as error:
        raise CorruptError(f"the frame's header is damaged: {error}", file=file, place="frame 0") from None
    size = min(size, FRAME_SIZE)  # a larger one is damage
    stop = _end(view, 0, size, file, "frame 0")
    return decompress_frame(view[:stop], expected_size=size, file=file, place="frame 0")


def _claimed_offsets(view: memoryview, raw_size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Return the offsets of frames (and the end of the last one) by the unverified sizes in the seek table, once
    counted from the file's start, and once from its end. Return None if the file is too small for a table."""
    count, table = frame_count(raw_size), len(view) - seek_table_size(raw_size)
    if table < 0:
        return None
    sizes = np.frombuffer(view, "<u4", 2 * count, table + TABLE_HEAD.size).reshape(count, 2)[:, 0]
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)))
    return offsets, offsets + (table - offsets[-1])


def _places(
    view: memoryview,
    following: int | None,
    claimed: tuple[NDArray[np.int64], NDArray[np.int64]] | None,
    number: int,
    least: int,
) -> Iterator[int]:
    """Yield the offsets from `least` on at which frame `number` may start, the best guess first."""
    if following is not None:
        yield following
    for offsets in claimed or ():
        if least <= offsets[number] < len(view):
            yield int(offsets[number])


def _end(view: memoryview, start: int, size: int, file: str | None, place: str) -> int:
    """Return the end of the frame of `size` raw bytes that starts at `start`, by its blocks. Raise CorruptError."""
    frame = view[start : start + MAX_FRAME_SIZE]
    if len(frame) < _LEAST_FRAME:
        raise CorruptError("the shard ends before the frame does", file=file, place=place)
    walked = check_frame_header(frame[:MAX_FRAME_HEADER], size, file, place)
    _, end = walk_frame(frame, walked, file, place)
    if not end:
        raise CorruptError("the shard ends before the frame does", file=file, place=place)
    return start + end
