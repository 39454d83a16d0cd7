"""Files with a JSON object per line, as a source: `mdsx convert jsonl`.

A plain file is cut into units of 32 MiB. A unit has the lines that begin in its range, so the last one may end after
it. A compressed file is one unit. Empty lines are left out, and so is a byte order mark.

lines.py cuts the lines, json_objects.py reads them, json_types.py says which types their columns have.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice, pairwise
from typing import Any, ClassVar, Literal, NamedTuple

from mdsx.base.decompress import decompress, is_compressed
from mdsx.errors import CorruptError, FormatError, MdsxError, SampleError, UnsupportedError, UsageError, restated, shown
from mdsx.transfer.converting.files import File, FileKind, find_files, read_chunks
from mdsx.transfer.converting.json_objects import ObjectReader, parse_object, strict_parser
from mdsx.transfer.converting.json_types import inferred_type
from mdsx.transfer.converting.lines import LONGEST_LINE, Lines, cut_lines
from mdsx.transfer.converting.naming import Naming
from mdsx.transfer.converting.source import Block, Request, Row, SampleSource, Unit

UNIT = 2**25  # bytes; a constant, because a conversion continues only with the same units
_TAIL = 2**18  # bytes fetched at once to complete a unit's last line
_SAMPLES, _BYTES = 512, 2**23  # from which columns are inferred
_COUNTED = 2**32  # bytes that are read, at most, to say which line is wrong
_MARK = b"\xef\xbb\xbf"
_SPACES = b" \t\r"
_KIND = FileKind("JSONL file", "jsonl")


def open_source(request: Request, *, nan: Literal["error", "null"] = "error") -> JsonLines:
    """Return the source of `mdsx convert jsonl`. `nan`: "error", or "null" to read NaN and Infinity as null."""
    if nan not in ("error", "null"):
        raise UsageError("nan is unknown", found=shown(nan), expected="error or null")
    return JsonLines(request, nan_null=nan == "null")


class _Place(NamedTuple):
    """The line at byte `offset` of its file, decompressed. `before`: how many lines of its unit precede it."""

    unit: Unit
    offset: int
    before: int


class _Read(NamedTuple):
    """A line that was read, and what read it."""

    place: _Place
    line: bytes
    reader: ObjectReader


class JsonLines(SampleSource):
    """Lines of JSON objects, as samples whose columns are the keys."""

    kind: ClassVar[str] = "jsonl"

    def __init__(self, request: Request, *, nan_null: bool) -> None:
        self._naming = Naming.parse(request.rename, request.drop, request.declared)
        self._declared, self._skip, self._options, self._nan_null = (
            request.declared,
            request.skip,
            request.options,
            nan_null,
        )
        self.files = find_files(request.sources, _KIND, request.options)
        self.units = [unit for number in range(len(self.files)) for unit in self._units(number)]
        self.settings = {"nan": "null" if nan_null else "error", **self._naming.settings}

    def _units(self, number: int) -> list[Unit]:
        file = self.files[number]
        if file.size <= UNIT or self._is_compressed(file):
            return [Unit(number, 0, file.size, file.size)]
        edges = [*range(0, file.size, UNIT), file.size]
        return [Unit(number, start, stop, stop - start) for start, stop in pairwise(edges)]

    def _is_compressed(self, file: File) -> bool:
        with closing(read_chunks(file, self._options, stop=8)) as chunks:
            try:
                return is_compressed(next(chunks))
            except UnsupportedError as error:
                raise UnsupportedError(error.message, file=file.url, hint=error.hint) from None

    # --- columns

    def columns(self) -> tuple[dict[str, str], list[str]]:
        """Return the columns, from the first lines of the first file that has any, and warnings.

        Columns are in the order in which their keys first occur.
        """
        errors: list[MdsxError] = []
        for number, file in enumerate(self.files):
            objects: list[dict[str, Any]] = []
            for item in self._first_objects(Unit(number, 0, file.size, file.size)):
                if isinstance(item, dict):
                    objects.append(item)
                elif self._skip:
                    errors.append(item)
                else:
                    raise item
            if objects:
                return self._judge(objects, file.url)
        found = f"{len(errors):,} invalid ones, the first: {errors[0]}" if errors else None
        raise UsageError("there is no sample in the files", file=self.files[0].url, found=found)

    def _first_objects(self, whole: Unit) -> Iterator[dict[str, Any] | MdsxError]:
        """Yield the first samples of a file, and an error for each invalid one."""
        parser, samples = strict_parser(nan_null=self._nan_null), 0
        for lines in self._lines(whole, lambda size: None):
            if isinstance(lines, MdsxError):
                yield lines
                continue
            for place, line in _each(whole, lines):
                if samples == _SAMPLES or (samples and place.offset > _BYTES):
                    return
                try:
                    yield parse_object(line, parser)
                    samples += 1
                except CorruptError as error:
                    yield self._located(error, place)

    def _judge(self, objects: Sequence[Mapping[str, Any]], file: str) -> tuple[dict[str, str], list[str]]:
        keys = dict.fromkeys(key for given in objects for key in given)
        options = {"rename": [*self._naming.new], "drop": sorted(self._naming.drop)}
        names = self._naming.names(dict.fromkeys([*keys, *options["rename"], *options["drop"]]), file=file)
        columns = {
            name: self._declared.get(name) or inferred_type([given.get(key) for given in objects])
            for key, name in names.items()
            if key in keys or name in self._declared
        }
        for name, kind in self._declared.items():
            columns.setdefault(name, kind)
        if not columns:
            raise UsageError(
                "no column is left" if keys else "the objects have no keys, so there are no columns", file=file
            )
        warnings = [
            f"{file}: --{option} {shown(key)}: none of the first samples has this key"
            for option, asked in options.items()
            for key in asked
            if key not in keys
        ]
        return columns, warnings

    # --- samples

    def read(
        self, unit: Unit, columns: Mapping[str, str], count: Callable[[int], object]
    ) -> Generator[Row | Block | MdsxError, None, None]:
        """Yield the samples of a unit, in blocks where all lines are valid."""
        reader = ObjectReader(columns, self._naming.new, self._naming.drop, nan_null=self._nan_null)
        for lines in self._lines(unit, count):
            if isinstance(lines, MdsxError):
                yield lines
                continue
            filled = [line for line in lines.texts or () if line.strip(_SPACES)]
            if (values := reader.block(filled)) is None:
                yield from self._rows(unit, lines, reader)
            elif filled:
                yield Block(values, len(filled), functools.partial(_nth, unit, lines, reader))

    def _rows(self, unit: Unit, lines: Lines, reader: ObjectReader) -> Iterator[Row | MdsxError]:
        """Yield the samples of lines one by one, with an error for each invalid one."""
        for place, line in _each(unit, lines):
            try:
                values = reader.values(line)
            except (CorruptError, SampleError) as error:
                yield self._located(error, place)
            else:
                yield Row(values, _Read(place, line, reader))

    def _lines(self, unit: Unit, count: Callable[[int], object]) -> Generator[Lines | MdsxError, None, None]:
        """Yield the lines of a unit; an error for one that is too long, and for damage that ends the file."""
        file, before = self.files[unit.file], 0
        with closing(self._cut(unit, count)) as found:
            try:
                for lines in found:
                    before = lines.before + (1 if lines.texts is None else len(lines.texts))
                    if lines.texts is None:
                        expected = f"at most {LONGEST_LINE:,} bytes"
                        error = SampleError("the line is too long", expected=expected)
                        yield self._located(error, _Place(unit, lines.offset, lines.before))
                    else:
                        yield lines
            except FormatError as error:  # of the compression
                place = f"after line {before}"
                yield type(error)(error.message, file=file.url, place=place, found=error.found, hint=error.hint)

    def _cut(self, unit: Unit, count: Callable[[int], object]) -> Generator[Lines, None, None]:
        file, options = self.files[unit.file], self._options
        if (unit.start, unit.stop) == (0, file.size):
            with closing(read_chunks(file, options, count=count)) as chunks:
                yield from cut_lines(_without_mark(decompress(chunks)))
            return
        first = max(unit.start - 1, 0)  # a newline there means that a line begins at the start
        with (
            closing(read_chunks(file, options, count=count, first=first, stop=unit.stop)) as chunks,
            closing(read_chunks(file, options, first=unit.stop, at_once=_TAIL)) as tail,
        ):
            pieces = chunks if unit.start else _without_mark(chunks)
            yield from cut_lines(pieces, tail, offset=first, inside=unit.start > 0)

    # --- errors

    def place_of(self, place: Any) -> str:
        """Return "line 12", and the byte where it begins if the lines before are not those of the unit alone."""
        unit, offset, before = place.place if isinstance(place, _Read) else place
        if not unit.start:
            return f"line {before + 1}"
        earlier = self._lines_before(unit)
        return f"offset {offset}" if earlier is None else f"line {earlier + before + 1}, offset {offset}"

    def _lines_before(self, unit: Unit) -> int | None:
        """Return how many lines begin before the unit; None if errors are skipped, because there may be many of them,
        or if that is too much to read."""
        if self._skip or unit.start > _COUNTED:
            return None
        with closing(read_chunks(self.files[unit.file], self._options, stop=unit.start - 1)) as chunks:
            return 1 + sum(chunk.count(b"\n") for chunk in chunks)

    def _located(self, error: MdsxError, place: _Place) -> MdsxError:
        """Return the error for a line with its file and place."""
        where = ", ".join(filter(None, (self.place_of(place), error.place)))
        hint = error.hint or "--on-error skip leaves out such lines"
        return restated(error, file=self.files[place.unit.file].url, place=where, hint=hint)

    def refused(self, unit: Unit, place: Any, error: SampleError) -> SampleError:
        """Return the writer's error for the values of a line, with the option that would take them."""
        refused = super().refused(unit, place, error)
        column = (refused.place or "").rpartition("column ")[2]
        values = place.reader.values(place.line)
        hint = next((place.reader.hint(name, value) for name, value in values.items() if repr(name) == column), None)
        return restated(refused, hint=hint or refused.hint)


def _each(unit: Unit, lines: Lines) -> Iterator[tuple[_Place, bytes]]:
    """Yield each line that is not empty, and its place."""
    offset = lines.offset
    for number, line in enumerate(lines.texts or (), lines.before):
        if line.strip(_SPACES):
            yield _Place(unit, offset, number), line
        offset += len(line) + 1


def _nth(unit: Unit, lines: Lines, reader: ObjectReader, number: int) -> _Read:
    """Return the line of a block's sample."""
    place, line = next(islice(_each(unit, lines), number, None))
    return _Read(place, line, reader)


def _without_mark(chunks: Iterator[bytes]) -> Iterator[bytes]:
    for number, chunk in enumerate(chunks):
        yield chunk if number else chunk.removeprefix(_MARK)
