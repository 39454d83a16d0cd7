"""Files with a JSON object per line, as a source: `mdsx convert jsonl`.

Empty lines are left out. line_files.py has the units and their lines, json_objects.py parses the lines, and
json_types.py infers the types of columns.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, ClassVar, Literal, NamedTuple

from mdsx.base.arguments import check_choice
from mdsx.errors import CorruptError, MdsxError, SampleError, UsageError, restated, shown
from mdsx.transfer.converting.files import FileKind
from mdsx.transfer.converting.json_objects import ObjectReader, parse_object, strict_parser
from mdsx.transfer.converting.json_types import inferred_type
from mdsx.transfer.converting.line_files import LineFiles, LinePlace, each_line, is_filled
from mdsx.transfer.converting.lines import Lines
from mdsx.transfer.converting.naming import Naming
from mdsx.transfer.converting.source import Block, Request, Row, SampleSource, Unit, is_about

_SAMPLES, _BYTES = 512, 2**23  # of the first samples, from which columns are inferred
_KIND = FileKind("JSONL file", "jsonl")


def open_source(request: Request, *, nan: Literal["error", "null"] = "error") -> JsonLines:
    """Return the source of `mdsx convert jsonl`. `nan`: "error", or "null" to read NaN and Infinity as null."""
    check_choice("nan", nan, "error", "null")
    return JsonLines(request, nan_null=nan == "null")


class _Read(NamedTuple):
    """A line, and its reader."""

    place: LinePlace
    line: bytes
    reader: ObjectReader


class JsonLines(SampleSource):
    """Lines of JSON objects, as samples whose columns are the keys."""

    kind: ClassVar[str] = "jsonl"

    def __init__(self, request: Request, *, nan_null: bool) -> None:
        self._naming = Naming.parse(request.rename, request.drop, request.declared, request.only)
        self._declared, self._skip, self._nan_null = request.declared, request.skip, nan_null
        self._lines = LineFiles(request, _KIND)
        self.files, self.units = self._lines.files, self._lines.units
        self.settings = {"nan": "null" if nan_null else "error", **self._naming.settings}

    # --- columns

    def columns(self) -> tuple[dict[str, str], list[str]]:
        """Return the columns, from the first lines of the first file that has lines, and warnings.

        Columns are in the order in which their keys first occur.
        """
        invalid = 0
        first: MdsxError | None = None
        for number, file in enumerate(self.files):
            objects: list[dict[str, Any]] = []
            for item in self._first_objects(self._lines.whole(number)):
                if isinstance(item, dict):
                    objects.append(item)
                elif self._skip:
                    invalid, first = invalid + 1, first or item
                else:
                    raise item
            if objects:
                return self._judge(objects, file.url)
        found = f"{invalid:,} invalid ones, the first: {first}" if first else None
        raise UsageError("there is no sample in the files", file=self.files[0].url, found=found)

    def _first_objects(self, whole: Unit) -> Iterator[dict[str, Any] | MdsxError]:
        """Yield the first samples of a file, and an error for each invalid one."""
        parser, samples = strict_parser(nan_null=self._nan_null), 0
        for lines in self._lines.lines(whole):
            if isinstance(lines, MdsxError):
                yield lines
                continue
            for place, line in each_line(whole, lines):
                if samples == _SAMPLES or (samples and place.offset > _BYTES):
                    return
                try:
                    yield parse_object(line, parser)
                    samples += 1
                except CorruptError as error:
                    yield self._lines.located(error, place)

    def _judge(self, objects: Sequence[Mapping[str, Any]], file: str) -> tuple[dict[str, str], list[str]]:
        keys = dict.fromkeys(key for given in objects for key in given)
        options = {"rename": [*self._naming.new], "drop": sorted(self._naming.drop)}
        declared = [name for name in self._declared if self._naming.only and name in self._naming.only]
        there = dict.fromkeys([*keys, *options["rename"], *options["drop"], *declared])
        names = self._naming.names(there, file=file)
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
        """Yield the samples of a unit, in blocks as long as all lines are valid."""
        others = self._naming.only is not None
        reader = ObjectReader(columns, self._naming.new, self._naming.drop, nan_null=self._nan_null, others=others)
        for lines in self._lines.lines(unit, count):
            if isinstance(lines, MdsxError):
                yield lines
                continue
            filled = [line for line in lines.texts or () if is_filled(line)]
            if (values := reader.block(filled)) is None:
                yield from self._rows(unit, lines, reader)
            elif filled:
                yield Block(values, len(filled), functools.partial(_nth, unit, lines, reader))

    def _rows(self, unit: Unit, lines: Lines, reader: ObjectReader) -> Iterator[Row | MdsxError]:
        """Yield the samples of lines one by one, with an error for each invalid one."""
        for place, line in each_line(unit, lines):
            try:
                values = reader.values(line)
            except (CorruptError, SampleError) as error:
                yield self._lines.located(error, place)
            else:
                yield Row(values, _Read(place, line, reader))

    # --- errors

    def place_of(self, place: _Read) -> str:
        return self._lines.place_of(place.place)

    def refused(self, unit: Unit, place: Any, error: SampleError) -> SampleError:
        """Return the writer's error for the values of a line, with the option that would accept them."""
        refused = super().refused(unit, place, error)
        values = place.reader.values(place.line)
        hint = next((place.reader.hint(name, value) for name, value in values.items() if is_about(refused, name)), None)
        return restated(refused, hint=hint or refused.hint)


def _nth(unit: Unit, lines: Lines, reader: ObjectReader, number: int) -> _Read:
    """Return the line of a block's sample."""
    place, line = next(islice(each_line(unit, lines), number, None))
    return _Read(place, line, reader)
