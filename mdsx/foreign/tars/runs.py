"""Find runs of ordinary members in the bytes of a tar, with a few NumPy calls for thousands of headers.

An ordinary member is a regular file with a ustar or GNU header in the usual form, possibly after a one-block pax header
with nothing that matters here, such as fractions of a second. A run ends before any other member, which is left to the
strict reader (members.py): long names, links, directories, damage. A block inside a member's data that looks like a
header is never reached, because each header determines where the next one is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsx.foreign.tars.blocks import BLOCK, VALUE_LIMIT, parse_records

_MAGIC = int.from_bytes(b"ustar"[:4], "little")
_ENDS = (b"r\x0000", b"r  \0")  # the rest of the magic and the version, of ustar and of GNU
_REGULAR, _PAX = ord("0"), ord("x")
_BYTES, _ONES = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0001000100010001)
_TIMES = [int.from_bytes(key, "little") for key in (b" mtime", b" atime", b" ctime")]
_TIME_KEY = len("29 mtime=")
_MEANT = re.compile(r"path|linkpath|size|GNU\.sparse\..*|hdrcharset")


@dataclass(frozen=True, slots=True, eq=False)
class HeaderRun:
    """Consecutive ordinary members, all of whose bytes are in `data`, which begins at `base` in the tar.

    `names`: one per member. `headers`, `starts` and `sizes`, int64 [n]: where its first header and its bytes begin in
    the tar, and how many bytes it has.
    """

    data: bytes
    base: int
    names: list[bytes]
    headers: NDArray[np.int64]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]

    def bytes_of(self, member: int) -> bytes:
        at = int(self.starts[member]) - self.base
        return self.data[at : at + int(self.sizes[member])]


class TarScan:
    """The headers in a chunk of a tar. The chunk begins at byte `base` of the tar. The search begins at byte `start` of
    the chunk, in steps of 512 bytes."""

    def __init__(self, data: bytes, start: int, base: int) -> None:
        self.data, self._first, self._base = data, start, base
        count = max(len(data) - start, 0) // BLOCK
        magics: NDArray[Any] = np.ndarray(count, "<u4", data, start + 257, (BLOCK,)) if count else np.empty(0, "<u4")
        self._found = np.flatnonzero(magics == _MAGIC)
        blocks = np.frombuffer(data, np.uint8, count * BLOCK, start).reshape(count, BLOCK)
        self._headers = blocks[self._found]
        self._sizes, ordinary = _parsed(self._headers)
        self._after = self._found + 1 + -(-self._sizes // BLOCK)  # the block after its data
        ordinary &= self._after <= count
        extended = self._headers[:, 156] == _PAX
        places = np.flatnonzero(extended & ordinary)
        ordinary[places] = self._plain_records(blocks, places)
        self._regular = ordinary & ~extended
        linked = self._after[:-1] == self._found[1:]
        follows = np.append(linked & ~(extended[:-1] & ~self._regular[1:]), False)  # whether the next is in its run
        self._ends = np.flatnonzero(~(ordinary & follows))

    def run(self, at: int) -> tuple[HeaderRun, int] | None:
        """Return the run that begins at byte `at` of the chunk, and the byte after its last member; None if no ordinary
        member begins there."""
        block = (at - self._first) // BLOCK
        start = int(np.searchsorted(self._found, block))
        if start == len(self._found) or self._found[start] != block:
            return None
        end = int(self._ends[np.searchsorted(self._ends, start)])
        chosen = start + np.flatnonzero(self._regular[start : end + 1])
        if not len(chosen):
            return None
        offset = self._base + self._first
        firsts = np.where(self._regular[np.maximum(chosen - 1, 0)] | (chosen == start), chosen, chosen - 1)
        names: list[bytes] = np.ascontiguousarray(self._headers[:, :100][chosen]).view("S100")[:, 0].tolist()
        if b"\0" in b"".join(names):
            names = [name.partition(b"\0")[0] for name in names]
        headers, starts = self._found[firsts] * BLOCK + offset, (self._found[chosen] + 1) * BLOCK + offset
        run = HeaderRun(self.data, self._base, names, headers, starts, self._sizes[chosen])
        return run, self._first + int(self._after[chosen[-1]]) * BLOCK

    def _plain_records(self, blocks: NDArray[np.uint8], places: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of these pax headers can be ignored. Most have a single record, a time:
        `29 mtime=1700000000.1234567\\n`."""
        records, sizes = self._found[places] + 1, self._sizes[places]
        begins = np.ascontiguousarray(blocks[:, :16][records]).view("<u8")
        digits = begins[:, 0] ^ np.uint64(0x3030)
        tens, ones = digits & np.uint64(255), digits >> np.uint64(8) & np.uint64(255)
        keys = begins[:, 0] >> np.uint64(16)
        good: NDArray[np.bool_] = (tens < 10) & (ones < 10) & (tens * np.uint64(10) + ones == sizes.astype(np.uint64))
        good &= (keys == _TIMES[0]) | (keys == _TIMES[1]) | (keys == _TIMES[2])
        good &= (begins[:, 1] & np.uint64(255) == ord("=")) & (sizes > _TIME_KEY)
        good &= blocks[records, np.maximum(sizes, 1) - 1] == ord("\n")
        for place in np.flatnonzero(~good).tolist():
            parsed = parse_records(blocks[records[place], : sizes[place]].tobytes())
            good[place] = parsed is not None and not any(_MEANT.fullmatch(key) for key, _ in parsed)
        return good


def _parsed(headers: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the sizes in headers, uint8 [n, 512], and whether each header belongs to an ordinary member, or is a small
    pax header, with a correct checksum."""

    def word(offset: int) -> NDArray[np.uint64]:
        return np.ndarray(len(headers), "<u8", headers.data, offset, (BLOCK,)) if len(headers) else np.empty(0, "<u8")

    ends = word(261) & np.uint64(0xFFFFFFFF)
    ustar, gnu = (ends == int.from_bytes(end, "little") for end in _ENDS)
    first, good = _octal(word(124))
    last, good_last = _octal(word(127))  # the last eight of eleven digits
    sizes = (first >> np.uint64(15) << np.uint64(24) | last).astype(np.int64)
    good = good & good_last & ((headers[:, 135] == 0) | (headers[:, 135] == 32)) & (ustar | gnu)
    stored = word(148)  # six digits, a zero and a space
    expected, good_sum = _octal(stored << np.uint64(16) | np.uint64(0x3030))
    good &= good_sum & (stored >> np.uint64(48) == 0x2000)
    pairs = (stored & _BYTES) + (stored >> np.uint64(8) & _BYTES)
    of_field = pairs * _ONES >> np.uint64(48)
    summed = headers.sum(axis=1, dtype=np.uint32)
    good &= summed + np.uint64(8 * ord(" ")) == expected + of_field
    kinds = headers[:, 156]
    good &= ((kinds == _REGULAR) & (sizes < VALUE_LIMIT)) | ((kinds == _PAX) & (sizes <= BLOCK) & (sizes > 0))
    good &= (headers[:, 0] != 0) & ~(
        ustar & (headers[:, 345] != 0)
    )  # names with a prefix are left to the strict reader
    return sizes, good


def _octal(words: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """Return the numbers of eight octal digits, the first in the low byte, and whether they are digits. Adjacent digits
    are joined to numbers of two digits, then four, then eight."""
    good = words & np.uint64(0xF8F8F8F8F8F8F8F8) == np.uint64(0x3030303030303030)
    found = words & np.uint64(0x0707070707070707)
    for bits, step, mask in ((3, 8, 0x003F003F003F003F), (6, 16, 0x00000FFF00000FFF), (12, 32, 0xFFFFFF)):
        found = (found << np.uint64(bits)) + (found >> np.uint64(step)) & np.uint64(mask)
    return found, good
