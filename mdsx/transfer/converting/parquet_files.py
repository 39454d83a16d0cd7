"""The source of Parquet files: a unit is a row group, which is decoded in batches, so it may have any size."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from mdsx.base.process import REQUESTS, Share
from mdsx.errors import FormatError, MdsxError, UsageError
from mdsx.foreign.arrow import KEPT_SCHEMA, pa, schema_text, without_null_types
from mdsx.foreign.parquet import Columns, FileColumns, Footer, read_batches, read_footer
from mdsx.format import Range
from mdsx.storage import StorageOptions
from mdsx.transfer.converting.files import File, FileKind, find_files_below, read_ranges
from mdsx.transfer.converting.naming import Naming
from mdsx.transfer.converting.source import Block, Lost, Request, Row, SampleSource, Unit

_PARQUET = FileKind("Parquet file", "parquet")
_GAP = 2**20  # column chunks with at most this many bytes between them are fetched together


def open_source(request: Request) -> ParquetFiles:
    """Return the source of Parquet files, including those below folders. Raise UsageError, MissingError or
    FormatError."""
    return ParquetFiles(request)


class ParquetFiles(SampleSource):
    """Parquet files with the same columns, except those that are not kept."""

    kind: ClassVar[str] = "parquet"

    def __init__(self, request: Request) -> None:
        self._options = request.options
        self.files = find_files_below(request.sources, _PARQUET, request.options)
        naming = Naming.parse(request.rename, request.drop, request.declared, request.only)
        old = {new: name for name, new in naming.new.items()}
        declared = {old.get(name, name): kind for name, kind in request.declared.items()}
        columns: Columns | None = None
        self.units, found = [], dict[str, None]()
        for number, (footer, of_file) in enumerate(Share(REQUESTS).map(self._described, self.files)):
            found |= dict.fromkeys([*of_file.columns, *of_file.left_out])
            kept = _kept(of_file, naming)
            if columns is None:
                columns, first = Columns(kept, declared), footer
                self._schema = footer.schema
            self._schema = without_null_types(self._schema, footer.schema)
            columns.add(kept)
            sizes = kept.stored.sum(axis=1).tolist()
            self.units += [
                Unit(number, group, group + 1, size) for group, size in zip(footer.groups, sizes, strict=True)
            ]
        assert columns is not None
        self._names = naming.names(found, file=first.file)
        self._left_out = {name: why for name, why in columns.left_out.items() if name in self._names}
        self._names = {name: new for name, new in self._names.items() if name not in self._left_out}
        if not self._names:
            raise UsageError("no column is left", file=first.file)
        self._classes = columns.classes
        self._types = {column.name: str(column.type) for column in columns.schema.columns}
        self.settings = naming.settings

    def _described(self, file: File) -> tuple[Footer, FileColumns]:
        footer = _read_footer(file, self._options)
        return footer, FileColumns.of(footer)

    def columns(self) -> tuple[dict[str, str], list[str]]:
        warnings = [f"column {name!r} is left out: {why}" for name, why in self._left_out.items()]
        return {new: self._types[name] for name, new in self._names.items()}, warnings

    def metadata(self, columns: Mapping[str, str]) -> dict[str, Any]:
        fields = [self._schema.field(old).with_name(new) for old, new in self._names.items()]
        same = [*self._names.items()] == [(name, name) for name in self._schema.names]
        kept = pa.schema(fields, metadata=self._schema.metadata if same else None)  # it may describe all columns
        classes = {new: self._classes[old] for old, new in self._names.items() if old in self._classes}
        return {KEPT_SCHEMA: schema_text(kept), **({"class_names": classes} if classes else {})}

    def read(
        self, unit: Unit, columns: Mapping[str, str], count: Callable[[int], object]
    ) -> Generator[Row | Block | Lost | MdsxError, None, None]:
        group, file = unit.start, self.files[unit.file]
        footer = _read_footer(file, self._options)
        leaves = sorted(leaf for name in self._names for leaf in footer.leaves[name])
        ranges = list(_joined(footer.chunks(group, leaves)))
        parts = [memoryview(data) for data in read_ranges(file, ranges, self._options)]
        count(unit.size // 2)
        rows = 0
        try:
            for batch in read_batches(footer, group, leaves, ranges, parts):
                chosen = batch.select([*self._names]).rename_columns([*self._names.values()])
                yield Block(chosen, chosen.num_rows, partial(_row, group, rows))
                rows += chosen.num_rows
            footer.check_rows(group, rows)  # pages that a damaged header hides are no error of Arrow's
        except FormatError as error:
            whole = footer.rows(group)
            yield Lost.of(error, rows, whole) if rows < whole else error

    def place_of(self, place: Any) -> str:
        group, row = place
        return f"row group {group}, row {row}"


def _kept(columns: FileColumns, naming: Naming) -> FileColumns:
    """Return the columns of a file that are kept. The others may differ between files."""
    places = [place for place, name in enumerate(columns.columns) if naming.keeps(name)]
    return replace(
        columns,
        columns={name: column for name, column in columns.columns.items() if naming.keeps(name)},
        left_out={name: why for name, why in columns.left_out.items() if naming.keeps(name)},
        stored=columns.stored[:, places],
        uncompressed=columns.uncompressed[:, places],
    )


def _row(group: int, first: int, row: int) -> tuple[int, int]:
    return group, first + row


def _joined(chunks: list[Range]) -> Iterator[Range]:
    """Yield the ranges to fetch, each with chunks that are close together."""
    start, stop = min(chunks)
    for low, high in sorted(chunks)[1:]:
        if low > stop + _GAP:
            yield start, stop
            start = low
        stop = max(stop, high)
    yield start, stop


def _read_footer(file: File, options: StorageOptions | None) -> Footer:
    def get(start: int, stop: int) -> bytes:
        (data,) = read_ranges(file, [(start, stop)], options)
        return data

    footer, _ = read_footer(get, size=file.size, file=file.url)
    return footer
