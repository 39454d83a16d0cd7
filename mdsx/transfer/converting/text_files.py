"""Text files as a source, whose only column is `text`: a document is a file, or a line.

Files are UTF-8, plain, gzip or zstd; a byte order mark is left out. A file that is a document may have up to 64 MiB.
line_files.py reads lines, without the characters that end them; empty lines are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from typing import Any, ClassVar, Literal

from mdsx.base.arguments import check_choice
from mdsx.base.decompress import decompress
from mdsx.errors import CorruptError, MdsxError, SampleError, UnsupportedError, UsageError, restated, shown
from mdsx.storage import StorageOptions
from mdsx.transfer.converting.files import FileKind, find_files, read_chunks
from mdsx.transfer.converting.line_files import LineFiles, LinePlace, each_line, without_mark
from mdsx.transfer.converting.source import Block, Request, Row, SampleSource, Unit

TEXT = "text"
LARGEST = 2**26  # bytes of a file that is a document
_KIND = FileKind("text file", "txt")


def open_source(request: Request, *, per: Literal["file", "line"] = "file") -> SampleSource:
    """Return the source of text files. Raise UsageError, or MissingError if one is missing."""
    check_choice("per", per, "file", "line")
    if other := [name for name in request.only or () if name != TEXT]:
        raise UsageError("text files have no such column", found=shown(other[0]), expected=TEXT)
    return TextLines(request) if per == "line" else TextFiles(request)


class TextFiles(SampleSource):
    """Each file is a sample, and a unit."""

    kind: ClassVar[str] = "text"

    def __init__(self, request: Request) -> None:
        self._options: StorageOptions | None = request.options
        self.files = find_files(request.sources, _KIND, request.options)
        self.units = [Unit(number, 0, file.size, file.size) for number, file in enumerate(self.files)]
        self.settings = {"per": "file"}

    def columns(self) -> tuple[dict[str, str], list[str]]:
        return {TEXT: "str"}, []

    def read(
        self, unit: Unit, columns: Mapping[str, str], count: Callable[[int], object]
    ) -> Generator[Row | Block | MdsxError, None, None]:
        file, content = self.files[unit.file], bytearray()
        try:
            with closing(read_chunks(file, self._options, count=count)) as chunks:
                for chunk in without_mark(decompress(chunks)):
                    content += chunk
                    if len(content) > LARGEST:
                        hint = "--per line reads each line as a document"
                        raise SampleError("the file is too long", expected=f"at most {LARGEST:,} bytes", hint=hint)
            yield Row({TEXT: _decoded(content, "file")}, None)
        except UnsupportedError as error:
            raise restated(error, file=file.url) from None
        except (CorruptError, SampleError) as error:
            yield restated(error, file=file.url, hint=error.hint or "--on-error skip leaves out such files")

    def place_of(self, place: Any) -> str:
        return ""


class TextLines(SampleSource):
    """Files of lines. Each line is a sample."""

    kind: ClassVar[str] = "text"

    def __init__(self, request: Request) -> None:
        self._lines = LineFiles(request, _KIND)
        self.files, self.units = self._lines.files, self._lines.units
        self.settings = {"per": "line"}

    def columns(self) -> tuple[dict[str, str], list[str]]:
        return {TEXT: "str"}, []

    def read(
        self, unit: Unit, columns: Mapping[str, str], count: Callable[[int], object]
    ) -> Generator[Row | Block | MdsxError, None, None]:
        for lines in self._lines.lines(unit, count):
            if isinstance(lines, MdsxError):
                yield lines
                continue
            for place, line in each_line(unit, lines):
                try:
                    yield Row({TEXT: _decoded(line.removesuffix(b"\r"), "line")}, place)
                except CorruptError as error:
                    yield self._lines.located(error, place)

    def place_of(self, place: LinePlace) -> str:
        return self._lines.place_of(place)


def _decoded(content: bytes | bytearray, what: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        found = f"byte {content[error.start]:#04x} at byte {error.start} of the {what}"
        raise CorruptError(f"the {what} is not UTF-8", found=found) from None
