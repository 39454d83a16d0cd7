"""Compressed shards that break one rule each. Their raw bytes are not shards: decompression must fail first."""

from __future__ import annotations

import struct

from tests.format.reference import compressed, frame, patch, pieces, seek_table
from tests.vectors.vector import Bad

_RAW = b"a" * 2**20 + b"b" * 2**20 + b"c" * 1000
RAW_SIZE = len(_RAW)
_FRAMES = [frame(piece) for piece in pieces(_RAW)]
_SIZES = [(len(made), len(piece)) for made, piece in zip(_FRAMES, pieces(_RAW), strict=True)]
_BODY = b"".join(_FRAMES)
_GOOD = _BODY + seek_table(_SIZES)


def _with(number: int, made: bytes) -> bytes:
    """Return it with another frame instead of frame `number` and a right seek table."""
    frames, sizes = list(_FRAMES), list(_SIZES)
    frames[number] = made
    sizes[number] = (len(made), sizes[number][1])
    return b"".join(frames) + seek_table(sizes)


def _cut(first: int) -> bytes:
    """Return it with `first` bytes in the first frame and a right seek table."""
    frames = [frame(_RAW[:first]), frame(_RAW[first : 2**21]), _FRAMES[2]]
    return b"".join(frames) + seek_table([(len(made), size) for made, (_, size) in zip(frames, _SIZES, strict=True)])


def vectors() -> list[Bad]:
    def bad(name: str, about: str, data: bytes, says: str) -> Bad:
        return Bad(f"bad/frames-{name}.mdsx.zst", about, data, says, raw_size=RAW_SIZE)

    second, last = _RAW[2**20 : 2**21], _RAW[2**21 :]
    skippable = struct.pack("<II", 0x184D2A50, 4) + b"skip"
    swapped = [(_SIZES[0][0] + 1, 2**20), (_SIZES[1][0] - 1, 2**20), _SIZES[2]]
    broken = bytearray(_FRAMES[1])
    broken[-1] ^= 1
    table = "seek table"
    return [
        bad("nothing", "An empty file.", b"", "too small for its seek table"),
        bad("cut", "The file lacks its last byte.", _GOOD[:-1], f"{table}: wrong size"),
        bad(
            "cut-in-frame",
            "The file ends within the second frame.",
            _GOOD[: _SIZES[0][0] + 30],
            "frame 1: the shard ends within",
        ),
        bad("longer", "A byte follows the seek table.", _GOOD + b"\0", f"{table}: wrong size"),
        bad("no-table", "No seek table.", _BODY, f"{table}: wrong size"),
        bad("frame-more", "A frame too many.", _BODY + frame(b"d") + seek_table(_SIZES), f"{table}: wrong size"),
        bad(
            "one-frame",
            "The first frame has some of the second one's bytes.",
            _cut(2**20 + 100),
            "wrong content size",
        ),
        bad(
            "half-frames",
            "The second frame has half of the first one's bytes.",
            _cut(2**19),
            "frame 0: wrong content size",
        ),
        bad(
            "skippable",
            "A skippable frame between the frames.",
            _with(1, skippable + _FRAMES[1]),
            "frame 1: no zstd frame",
        ),
        bad("magic", "Another magic of a frame.", patch(_GOOD, 0, b"\x27"), "frame 0: no zstd frame"),
        bad(
            "no-content-size",
            "A frame without its content size.",
            _with(2, frame(last, content_size=None)),
            "wrong content size",
        ),
        bad(
            "content-size",
            "A frame that claims 2^40 bytes.",
            _with(1, frame(second, content_size=2**40, window=0x50)),
            "wrong content size",
        ),
        bad(
            "more-content",
            "A frame with more content than it claims.",
            _with(2, frame(last + b"c", content_size=1000)),
            "frame 2",
        ),
        bad(
            "less-content",
            "A frame with less content than it claims.",
            _with(2, frame(last[1:], content_size=1000)),
            "frame 2",
        ),
        bad(
            "no-checksum",
            "A frame without a checksum.",
            _with(1, frame(second, checksum=None)),
            "frame 1: the frame has no checksum",
        ),
        bad("checksum", "A frame with another checksum.", _with(1, bytes(broken)), "frame 1: the frame is damaged"),
        bad("window", "A window of 9 MiB.", _with(1, frame(second, window=0x69)), "frame 1: the window is too large"),
        bad(
            "dictionary",
            "A frame that needs a dictionary.",
            _with(1, frame(second, dictionary=7)),
            "frame 1: the frame needs a dictionary",
        ),
        bad(
            "large",
            "A frame of more than 2^20 + 2^16 bytes: it begins with empty blocks.",
            _with(1, frame(second, blocks_before=3 * 2**17)),
            "frame 1: the frame is too large",
        ),
        bad(
            "large-by-3",
            "A frame of 2^20 + 2^16 + 3 bytes.",
            _with(1, _largest(second, 1)),
            "frame 1: the frame is too large",
        ),
        bad(
            "reserved-bit",
            "The reserved bit of a frame's header is set.",
            _with(1, patch(_FRAMES[1], 4, bytes([_FRAMES[1][4] | 8]))),
            "frame 1: the frame's header is damaged",
        ),
        bad(
            "block",
            "A block of the reserved kind.",
            _with(1, frame(second, block_kind=3)),
            "frame 1: a block of a reserved kind",
        ),
        bad(
            "table-magic",
            "Another magic of the seek table.",
            _BODY + seek_table(_SIZES, magic=0x184D2A5F),
            f"{table}: wrong magic",
        ),
        bad(
            "table-size", "Another size of the seek table.", _BODY + seek_table(_SIZES, size=34), f"{table}: wrong size"
        ),
        bad(
            "table-count",
            "Another number of frames.",
            _BODY + seek_table(_SIZES, count=4),
            f"{table}: wrong number of frames",
        ),
        bad(
            "table-descriptor",
            "Checksums announced.",
            _BODY + seek_table(_SIZES, descriptor=0x80),
            f"{table}: wrong descriptor",
        ),
        bad(
            "table-footer",
            "Another magic at the end.",
            _BODY + seek_table(_SIZES, footer=0x8F92EAB2),
            f"{table}: wrong magic at its end",
        ),
        bad(
            "table-raw",
            "Another raw size.",
            _BODY + seek_table([*_SIZES[:2], (_SIZES[2][0], 999)]),
            f"{table}: wrong sizes of frame 2",
        ),
        bad(
            "table-sum",
            "Compressed sizes with another sum.",
            _BODY + seek_table([(9, 2**20), *_SIZES[1:]]),
            f"{table}: the frames do not fill",
        ),
        bad(
            "table-sizes",
            "Compressed sizes with the right sum.",
            _BODY + seek_table(swapped),
            f"{table}, frame 0: wrong compressed size",
        ),
    ]


def good() -> bytes:
    """Return the shard without a fault."""
    assert compressed(_RAW) == _GOOD
    return _GOOD


def _largest(raw: bytes, more: int = 0) -> bytes:
    """Return a frame of 2^20 + 2^16 bytes, and of three more for each of `more`."""
    empty = 2**20 + 2**16 - len(frame(raw, window=0x50))
    assert empty % 3 == 0
    return frame(raw, window=0x50, blocks_before=empty // 3 + more)


def largest() -> bytes:
    """Return it with a first frame of 2^20 + 2^16 bytes: it begins with empty blocks."""
    first, second, third = pieces(_RAW)
    frames = [_largest(first), frame(second), frame(third)]
    return b"".join(frames) + seek_table([(len(made), size) for made, (_, size) in zip(frames, _SIZES, strict=True)])


def other() -> bytes:
    """Return it with a window of 8 MiB, a single segment, and dictionary fields of 0."""
    first, second, third = pieces(_RAW)
    frames = [frame(first, window=0x68, dictionary=0), frame(second, dictionary=0), frame(third)]
    return b"".join(frames) + seek_table([(len(made), size) for made, (_, size) in zip(frames, _SIZES, strict=True)])
