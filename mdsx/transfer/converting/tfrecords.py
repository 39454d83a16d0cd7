"""The source of TFRecord files of tf.train.Example messages, read without TensorFlow: a unit is a file.

Features become columns in alphabetical order, because a message has them in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from typing import Any, ClassVar

from mdsx.errors import CorruptError, MdsxError, SampleError, UnsupportedError, UsageError, restated, shown
from mdsx.format import Schema, parse_type
from mdsx.transfer.converting.files import FileKind, find_files, read_chunks
from mdsx.transfer.converting.naming import Naming
from mdsx.transfer.converting.source import Block, Request, Row, SampleSource, Unit, is_about
from mdsx.transfer.converting.tf_columns import Reader, Seen, describe, readers, unfit
from mdsx.transfer.converting.tf_example import BadMessage, Feature, SequenceExample, message_class, parse_example
from mdsx.transfer.converting.tf_framing import TFRecord, checksum, read_records, record_place

_TFRECORDS = FileKind("TFRecord file", "tfrecord")
_FIRST_SAMPLES, _FIRST_BYTES = 1000, 2**26  # samples and bytes from which columns are inferred


def open_source(request: Request) -> TFRecords:
    """Return the source of TFRecord files. Raise UsageError, or MissingError if a file is missing."""
    checksum()  # raise an error now if a package is missing
    message_class()
    return TFRecords(request, Naming.parse(request.rename, request.drop, request.declared))


class TFRecords(SampleSource):
    """TFRecord files, plain or compressed."""

    kind: ClassVar[str] = "tfrecord"

    def __init__(self, request: Request, naming: Naming) -> None:
        self.files = find_files(request.sources, _TFRECORDS, request.options)
        self.units = [Unit(number, 0, file.size, file.size) for number, file in enumerate(self.files)]
        self.settings = naming.settings
        self._naming, self._declared = naming, Schema.from_columns(request.declared) if request.declared else None
        self._skip, self._options = request.skip, request.options

    def columns(self) -> tuple[dict[str, str], list[str]]:
        seen: dict[str, Seen] = {}
        samples, size, whole, invalid = 0, 0, True, 0
        first: MdsxError | None = None
        for unit in self.units:
            with closing(self._examples(unit, lambda size: None)) as examples:
                for item in examples:
                    if isinstance(item, MdsxError):
                        if not self._skip:
                            raise item
                        invalid, first = invalid + 1, first or item
                        continue
                    record, features = item
                    for name, feature in features.items():
                        if name not in seen:
                            seen[name] = Seen()
                        seen[name].add(feature, f"{self.files[unit.file].url}: {record.place}")
                    samples, size = samples + 1, size + len(record.data)
                    if samples == _FIRST_SAMPLES or size > _FIRST_BYTES:
                        whole = False
                        break
            if not whole:
                break
        if not samples:
            found = f"{invalid:,} invalid ones, the first: {first}" if first else None
            raise UsageError("there is no sample in the TFRecord files", file=self.files[0].url, found=found)
        return self._inferred(seen, samples, whole)

    def _inferred(self, seen: Mapping[str, Seen], samples: int, whole: bool) -> tuple[dict[str, str], list[str]]:
        """Return the columns and warnings. `whole`: these are all samples."""
        file, named = self.files[0].url, {*self._naming.new, *self._naming.drop}
        warnings = [
            f"{file}: the first {samples:,} samples have no feature {shown(name)}, which --rename or --drop names"
            for name in sorted(named - seen.keys())
            if not whole
        ]
        names = self._naming.names(sorted(seen if whole else seen.keys() | named), file=file)
        declared = {column.name: str(column.type) for column in self._declared.columns} if self._declared else {}
        columns = {}
        for name, column in names.items():
            if column in declared:
                columns[column] = declared[column]
            elif name in seen:
                kinds = seen[name].kinds
                if len(kinds) > 1:
                    places = "; ".join(f"{kind} at {place}" for kind, place in kinds.items())
                    hint = f"declare its type, as --column '{column}=float64', or leave it out: --drop '{name}'"
                    raise SampleError("a feature has values of two kinds", place=name, found=places, hint=hint)
                columns[column] = seen[name].column(samples)
        columns |= {column: kind for column, kind in declared.items() if column not in columns}
        if not columns:
            raise UsageError("no feature is left in the samples", file=file, found=", ".join(sorted(seen))[:300])
        return columns, warnings

    def read(
        self, unit: Unit, columns: Mapping[str, str], count: Callable[[int], object]
    ) -> Generator[Row | Block | MdsxError, None, None]:
        old = {new: name for name, new in self._naming.new.items()}
        table = _Table({old.get(column, column): column for column in columns}, columns, self._naming.drop)
        file = self.files[unit.file].url
        with closing(self._examples(unit, count)) as examples:
            for item in examples:
                if isinstance(item, MdsxError):
                    yield item
                    continue
                record, features = item
                try:
                    values = table.values(features)
                except _Unfit as problem:
                    yield SampleError(
                        problem.message, file=file, place=f"{record.place}{problem.feature}", hint=problem.hint
                    )
                else:
                    yield Row(values, (record.number, record.offset))

    def place_of(self, place: Any) -> str:
        return record_place(*place)

    def refused(self, unit: Unit, place: Any, error: SampleError) -> SampleError:
        for name, column in self._naming.new.items():
            if is_about(error, column):
                error = restated(error, place=f"feature {shown(name)}, {error.place}")
        return super().refused(unit, place, error)

    def _examples(
        self, unit: Unit, count: Callable[[int], object]
    ) -> Generator[tuple[TFRecord, dict[str, Feature]] | MdsxError, None, None]:
        """Yield the records of a file, and the features of each."""
        file = self.files[unit.file]
        with closing(read_chunks(file, self._options, count=count)) as chunks:
            for record in read_records(chunks, file=file.url, stored=file.size):
                yield _parsed(record, file.url) if isinstance(record, TFRecord) else record


def _parsed(record: TFRecord, file: str) -> tuple[TFRecord, dict[str, Feature]] | MdsxError:
    try:
        return record, parse_example(record.data)
    except SequenceExample as error:
        hint = "parse it with your own code, and write samples with mdsx.build"
        return UnsupportedError(f"is not a tf.train.Example: {error}", file=file, place=record.place, hint=hint)
    except BadMessage as error:
        hint = "if the records are not tf.train.Example messages, parse them with your own code and mdsx.build"
        return SampleError(f"is not a tf.train.Example: {error}", file=file, place=record.place, hint=hint)


class _Unfit(Exception):
    """A sample does not fit the columns."""

    def __init__(self, message: str, feature: str | None, hint: str) -> None:
        super().__init__(message)
        self.message, self.hint = message, hint
        self.feature = "" if feature is None else f", feature {shown(feature)}"


class _Table:
    """Turns features into the values of columns. `names`: feature -> column."""

    def __init__(self, names: Mapping[str, str], columns: Mapping[str, str], drop: frozenset[str]) -> None:
        self._readers: list[tuple[str, str, dict[str, Reader], bool]] = []
        for name, column in names.items():
            kind = parse_type(columns[column])
            self._readers.append((name, column, readers(kind), kind.nullable))
        self._columns, self._known = columns, {*names, *drop}

    def values(self, features: Mapping[str, Feature]) -> dict[str, Any]:
        """Return column -> value. Raise _Unfit."""
        if not features.keys() <= self._known:
            raise self._extra(features)
        values: dict[str, Any] = {}
        for name, column, read, nullable in self._readers:
            feature = features.get(name)
            if feature is None:
                if not nullable:
                    hint = f"--column '{column}={self._columns[column]}?' makes absent ones null"
                    raise _Unfit("the sample lacks a feature", name, hint)
                values[column] = None
                continue
            kind, found = feature
            try:
                values[column] = read[kind](found)
            except (KeyError, ValueError, CorruptError) as error:
                raise self._unfit(name, column, feature, error) from None
        return values

    def _extra(self, features: Mapping[str, Feature]) -> _Unfit:
        name = min(features.keys() - self._known)
        one = Seen()
        one.add(features[name], "")
        hint = f"--column '{name}={one.column(2)}' accepts it, and is null elsewhere; --drop '{name}' leaves it out"
        return _Unfit("the sample has a feature that the first samples lack", name, hint)

    def _unfit(self, name: str, column: str, feature: Feature, error: Exception) -> _Unfit:
        why = describe(feature) if isinstance(error, KeyError) else unfit(error)  # type: ignore[arg-type]
        one = Seen()
        one.add(feature, "")
        hint = f"declare a type that accepts all samples with --column; this sample would be {one.column(1)}"
        return _Unfit(f"does not fit column {column!r} of type {self._columns[column]}: {why}", name, hint)
