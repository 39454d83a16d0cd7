"""The bytes of a tar in order, out of chunks; and where in them damage is, for errors."""

from __future__ import annotations

from collections.abc import Iterator

from mdsx.convert.budget import Budget
from mdsx.convert.headers import BLOCK, parse_header
from mdsx.errors import CorruptError, FormatError

ZEROS = bytes(BLOCK)
_SHOWN = 1000  # characters of a name in an error


class Tape:
    """The tar's bytes, in order; `offset` counts those taken, `budget` what they claim."""

    def __init__(self, chunks: Iterator[bytes], file: str, budget: Budget) -> None:
        self.offset = 0
        self.budget = budget
        self.last = ""  # the last member read, to say where damage is
        self._chunks, self._file = chunks, file
        self._chunk, self._at = b"", 0
        self._broken: FormatError | None = None

    def read(self, size: int) -> bytes:
        """The next `size` bytes; fewer where the tar ends."""
        end = self._at + size
        if end <= len(self._chunk):
            data, self._at = self._chunk[self._at : end], end
        else:
            parts = [self._chunk[self._at :]]
            missing = size - len(parts[0])
            self._chunk, self._at = b"", 0
            while missing and (chunk := self._next_chunk()):
                parts.append(chunk[:missing])
                if len(chunk) > missing:
                    self._chunk, self._at = chunk, missing
                missing -= len(parts[-1])
            data = b"".join(parts)
        self.offset += len(data)
        return data

    def skip(self, size: int) -> None:
        while size and (data := self.read(min(size, 2**20))):
            size -= len(data)

    def block(self) -> bytes | None:
        """The next header's block; None at the archive's end."""
        start = self.offset
        block = self.read(BLOCK)
        if len(block) == BLOCK:
            return block if block != ZEROS else None
        if self._broken:
            raise self.error(str(self._broken), start)
        if not start:
            raise self.error("is not a tar" if block else "is empty, not even a tar's end", start)
        if block:
            raise self.error("tar is cut in the middle of a header", start)
        raise self.error("tar is not closed by zeros: it may be cut, and members may be missing", start)

    def check_end(self) -> None:
        """Read what follows the end of the archive, which must be zeros."""
        while data := self.read(BLOCK):
            if data.strip(b"\0"):
                self._unread(data)
                hint = "tars concatenated? convert them one by one"
                raise self.error("there are bytes behind the tar's end", self.offset, hint=hint)
        if self._broken:
            raise self.error(str(self._broken), self.offset)

    def seek_header(self) -> bool:
        """Go to the next block that is a sound header; False if there is none."""
        while len(block := self.read(BLOCK)) == BLOCK:
            if block[257:262] == b"ustar" and parse_header(block):
                self._unread(block)
                return True
        return False

    def cut(self, start: int, expected: int, found: int, name: bytes) -> CorruptError:
        """The error for a member, begun at `start`, of which only `found` bytes are there."""
        if self._broken:
            return self.error(str(self._broken), start, name)
        return self.error("tar is cut in the middle of this member", start, name, found=found, expected=expected)

    def error(self, message: str, start: int, name: bytes = b"", **fields: object) -> CorruptError:
        place = f"offset {start}"
        if name:
            place = member_place(as_text(name), start)
        elif self.last:
            place += f", behind member {printable(self.last)}"
        hint = fields.pop("hint", None)
        return CorruptError(message, file=self._file, place=place, hint=str(hint) if hint else None, **fields)

    def _next_chunk(self) -> bytes:
        try:
            return next((chunk for chunk in self._chunks if chunk), b"")
        except FormatError as error:  # by the decompression: nothing follows
            self._broken = error
            return b""

    def _unread(self, data: bytes) -> None:
        self.offset -= len(data)
        if self._at >= len(data):  # it came out of this chunk, which may be large
            self._at -= len(data)
        else:
            self._chunk, self._at = data + self._chunk[self._at :], 0


def member_place(name: str, offset: int) -> str:
    """How errors name a member's place in its tar."""
    return f"member {printable(name)}, offset {offset}"


def printable(name: str) -> str:
    """`name` quoted, on one line, also where it is not UTF-8; the middle of a very long one is left out."""
    if len(name) > _SHOWN:
        name = f"{name[: _SHOWN // 2]}...{name[-_SHOWN // 4 :]}"
    return repr(name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace"))


def as_text(name: bytes) -> str:
    """A member's name; what is not UTF-8 in it survives, and is found by who needs it to be."""
    return name.decode("utf-8", "surrogateescape")
