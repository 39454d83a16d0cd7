"""Files of lines: the units of such a source, its lines, and their places.

A plain file is cut into units of 32 MiB. A unit has the lines that begin in its range, so the last line may end after
it. A compressed file is one unit. Empty lines have no place, and a byte order mark is left out.

lines.py cuts the lines.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from typing import NamedTuple

from mdsx.base.decompress import decompress, is_compressed
from mdsx.errors import FormatError, MdsxError, SampleError, UnsupportedError, restated
from mdsx.transfer.converting.files import File, FileKind, find_files, read_chunks
from mdsx.transfer.converting.lines import LONGEST_LINE, Lines, cut_lines
from mdsx.transfer.converting.source import Request, Unit

UNIT = 2**25  # bytes; a constant, because a conversion continues only with the same units
_TAIL = 2**18  # bytes fetched at once to complete a unit's last line
_COUNTED = 2**32  # bytes read at most to find the number of a wrong line
_MARK = b"\xef\xbb\xbf"
_SPACES = b" \t\r"


class LinePlace(NamedTuple):
    """The line at byte `offset` of its file, decompressed. `before`: how many lines of its unit precede it."""

    unit: Unit
    offset: int
    before: int


class LineFiles:
    """Files of lines that a request names, plain or compressed."""

    def __init__(self, request: Request, kind: FileKind) -> None:
        self._options, self._skip = request.options, request.skip
        self.files: Sequence[File] = find_files(request.sources, kind, request.options)
        self.units = [unit for number in range(len(self.files)) for unit in self._units(number)]

    def whole(self, number: int) -> Unit:
        """Return a unit that is a whole file."""
        return Unit(number, 0, self.files[number].size, self.files[number].size)

    def _units(self, number: int) -> list[Unit]:
        file = self.files[number]
        if file.size <= UNIT or self._is_compressed(file):
            return [self.whole(number)]
        edges = [*range(0, file.size, UNIT), file.size]
        return [Unit(number, start, stop, stop - start) for start, stop in pairwise(edges)]

    def _is_compressed(self, file: File) -> bool:
        with closing(read_chunks(file, self._options, stop=8)) as chunks:
            try:
                return is_compressed(next(chunks))
            except UnsupportedError as error:
                raise restated(error, file=file.url) from None

    def lines(
        self, unit: Unit, count: Callable[[int], object] = lambda size: None
    ) -> Generator[Lines | MdsxError, None, None]:
        """Yield the lines of a unit, and an error for a line that is too long or for damage that ends the file.

        Raise UnsupportedError for a compression that mdsx cannot read.
        """
        file, before = self.files[unit.file], 0
        with closing(self._cut(unit, count)) as found:
            try:
                for lines in found:
                    before = lines.before + (1 if lines.texts is None else len(lines.texts))
                    if lines.texts is None:
                        expected = f"at most {LONGEST_LINE:,} bytes"
                        error = SampleError("the line is too long", expected=expected)
                        yield self.located(error, LinePlace(unit, lines.offset, lines.before))
                    else:
                        yield lines
            except UnsupportedError as error:
                raise restated(error, file=file.url) from None
            except FormatError as error:  # the compression is damaged
                yield restated(error, file=file.url, place=f"after line {before}")

    def _cut(self, unit: Unit, count: Callable[[int], object]) -> Generator[Lines, None, None]:
        file, options = self.files[unit.file], self._options
        if (unit.start, unit.stop) == (0, file.size):
            with closing(read_chunks(file, options, count=count)) as chunks:
                yield from cut_lines(without_mark(decompress(chunks)))
            return
        first = max(unit.start - 1, 0)  # a newline there means that a line begins at the start
        with (
            closing(read_chunks(file, options, count=count, first=first, stop=unit.stop)) as chunks,
            closing(read_chunks(file, options, first=unit.stop, at_once=_TAIL)) as tail,
        ):
            pieces = chunks if unit.start else without_mark(chunks)
            yield from cut_lines(pieces, tail, offset=first, inside=unit.start > 0)

    # --- places

    def place_of(self, place: LinePlace) -> str:
        """Return "line 12", with its byte offset unless the unit begins at the start of the file."""
        unit, offset, before = place
        if not unit.start:
            return f"line {before + 1}"
        earlier = self._lines_before(unit)
        return f"offset {offset}" if earlier is None else f"line {earlier + before + 1}, offset {offset}"

    def _lines_before(self, unit: Unit) -> int | None:
        """Return how many lines begin before the unit; None if errors are skipped, because there may be many, or if
        there is too much to read."""
        if self._skip or unit.start > _COUNTED:
            return None
        with closing(read_chunks(self.files[unit.file], self._options, stop=unit.start - 1)) as chunks:
            return 1 + sum(chunk.count(b"\n") for chunk in chunks)

    def located(self, error: MdsxError, place: LinePlace) -> MdsxError:
        """Return the error for a line with its file and place."""
        where = ", ".join(filter(None, (self.place_of(place), error.place)))
        hint = error.hint or "--on-error skip leaves out such lines"
        return restated(error, file=self.files[place.unit.file].url, place=where, hint=hint)


def is_filled(line: bytes) -> bool:
    """Return whether a line has characters other than spaces."""
    return bool(line.strip(_SPACES))


def each_line(unit: Unit, lines: Lines) -> Iterator[tuple[LinePlace, bytes]]:
    """Yield each line that is not empty, and its place."""
    offset = lines.offset
    for number, line in enumerate(lines.texts or (), lines.before):
        if is_filled(line):
            yield LinePlace(unit, offset, number), line
        offset += len(line) + 1


def without_mark(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the bytes of a file, in chunks, without a byte order mark."""
    for number, chunk in enumerate(chunks):
        yield chunk if number else chunk.removeprefix(_MARK)
