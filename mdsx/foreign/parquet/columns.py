"""The columns of a set of Parquet files: their types, from schemas and statistics, and the sizes of their values.

A type has a question mark unless the schema, or the statistics of each row group, exclude nulls. Columns that none of
our types can hold are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import UsageError
from mdsx.foreign.arrow import column_type, pa
from mdsx.foreign.parquet.footer import Footer
from mdsx.foreign.parquet.metadata import DICTIONARY, NULLS, START, STORED, UNCOMPRESSED
from mdsx.foreign.parquet.text import MAX_HEAP, IndexedColumn, IndexedGroup
from mdsx.format import ColumnType, Schema


@dataclass(frozen=True, slots=True)
class FileColumn:
    """A column in one file."""

    type: ColumnType
    """The type without regard to nulls, except for Arrow's null type."""
    nulls: bool
    """Whether there may be nulls."""
    arrow: str
    units: tuple[str, ...]
    """The units of its dates and times, which become numbers."""
    empty: bool
    """Whether its type is Arrow's null, which is compatible with any other."""
    encoded: bool
    """Whether decoded values may exceed the uncompressed bytes, because they are in a dictionary or become JSON."""
    classes: tuple[str, ...] = ()
    """The class names for its numbers, if Hugging Face's `datasets` wrote them."""


@dataclass(frozen=True, slots=True, eq=False)
class FileColumns:
    """The columns of one file, and its footer's facts about row groups that have rows."""

    file: str
    columns: dict[str, FileColumn]
    left_out: dict[str, str]
    """Columns that no type can hold -> the reason."""
    rows: tuple[int, ...]
    extents: tuple[tuple[int, int], ...]
    """The bytes of the file that hold each row group."""
    stored: NDArray[np.int64]
    """Bytes of each column in each row group, [groups, columns]."""
    uncompressed: NDArray[np.int64]

    @classmethod
    def of(cls, footer: Footer) -> FileColumns:
        """Return the columns of a footer's file. Raise CorruptError or UnsupportedError."""
        chunks = footer.metadata.chunks[list(footer.groups)]
        starts = chunks[:, :, START]
        extents = zip(starts.min(axis=1).tolist(), (starts + chunks[:, :, STORED]).max(axis=1).tolist(), strict=True)
        columns, left_out, classes = {}, {}, class_names(footer.schema.metadata)
        sizes: list[NDArray[np.int64]] = []  # [groups, 2], of each column
        for field in footer.schema:
            name = field.name
            leaves = footer.leaves[name]
            here = chunks[:, leaves.start : leaves.stop]
            nulls = bool(field.nullable and (here[:, :, NULLS] != 0).all(axis=1).any())  # null in no leaf: never null
            found = _described(name, field.type)
            if isinstance(found, str):
                left_out[name] = found
                continue
            encoded = found.encoded or bool(here[:, :, DICTIONARY].any())
            columns[name] = replace(found, nulls=nulls, encoded=encoded, classes=classes.get(name, ()))
            sizes.append(here[:, :, [STORED, UNCOMPRESSED]].sum(axis=1))
        if not columns:
            raise UsageError("mdsx has no type for any of its columns", file=footer.file, found=_reasons(left_out))
        rows = tuple(map(footer.rows, footer.groups))
        stored, uncompressed = np.moveaxis(np.stack(sizes), (2, 0), (0, 2))
        return cls(footer.file, columns, left_out, rows, tuple(extents), stored, uncompressed)


@lru_cache(maxsize=2**14)
def _described(name: str, kind: Any) -> FileColumn | str:
    """Return the part of a column's description that depends only on its Arrow type, or why no type can hold it."""
    try:
        found = column_type(kind, nullable=False)
        Schema.from_columns({name: str(found)})
    except UsageError as error:
        return error.message
    return FileColumn(
        type=found,
        nulls=False,
        arrow=str(kind)[:1000],
        units=tuple(_units(kind)),
        empty=pa.types.is_null(kind),
        encoded=found.kind == "document",
    )


def _units(kind: Any) -> Iterator[str]:
    """Yield the types of all dates and times in an Arrow type."""
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        yield from _units(kind.storage_type)
    elif types.is_dictionary(kind):
        yield from _units(kind.value_type)
    elif types.is_nested(kind):
        for number in range(kind.num_fields):
            yield from _units(kind.field(number).type)
    elif types.is_temporal(kind):
        yield str(kind)


def _reasons(left_out: Mapping[str, str]) -> str:
    return "; ".join(f"{name[:80]!r}: {reason}" for name, reason in left_out.items())[:500]


class Columns:
    """The columns of several files, which must agree."""

    def __init__(self, first: FileColumns, declared: Mapping[str, str]) -> None:
        """`declared`: column -> type, instead of the type in the files. Raise UsageError."""
        self._first = first
        self._declared = dict[str, ColumnType]()
        for name, kind in declared.items():
            if name not in first.columns:
                there = ", ".join(first.columns)
                raise UsageError("there is no such column", file=first.file, place=f"column {name!r}", expected=there)
            self._declared[name] = Schema.from_columns({name: kind}).columns[0].type
        self._columns = dict(first.columns)
        self._files = dict.fromkeys(first.columns, first.file)  # that gave each column its type
        self._seen: dict[tuple[tuple[str, FileColumn], ...], dict[str, FileColumn]] = {}
        self.left_out = dict(first.left_out)

    def add(self, file: FileColumns) -> FileColumns:
        """Add the columns of the next file. Raise UsageError if they differ from the previous files.

        Return them, sharing objects that are equal in other files, because there may be many files.
        """
        for one, other in ((self._first, file), (file, self._first)):
            for name in one.columns:
                if name not in other.columns and name not in other.left_out:
                    raise _different(name, f"{one.file} has it, this file does not", other.file)
        for name in sorted(file.left_out.keys() - self.left_out.keys()):
            raise _different(name, f"mdsx can read it in {self._first.file}: {file.left_out[name]}", file.file)
        for name, found in file.columns.items():
            if name in self.left_out:
                raise _different(name, f"mdsx cannot read it in {self._first.file}: {self.left_out[name]}", file.file)
            known = self._columns[name]
            if found.empty or known.empty:
                if known.empty and not found.empty:
                    self._files[name] = file.file
                kept = known if found.empty else found
                self._columns[name] = replace(kept, nulls=known.nulls or found.nulls)
                continue
            alike = name in self._declared or found.type == known.type
            if not alike or found.units != known.units:
                how = f"it is {found.arrow} here, but {known.arrow} in {self._files[name]}"
                way = "declare a type that fits both (--column NAME=TYPE), or " if found.units == known.units else ""
                raise _different(name, how, file.file, way)
            classes = known.classes if found.classes == known.classes else ()  # other names in another file
            if (found.nulls and not known.nulls) or classes != known.classes:
                self._columns[name] = replace(known, nulls=known.nulls or found.nulls, classes=classes)
        return replace(file, columns=self._seen.setdefault(tuple(file.columns.items()), file.columns))

    @property
    def classes(self) -> dict[str, list[str]]:
        """Return the class names by column, for columns where all files agree."""
        return {name: list(column.classes) for name, column in self._columns.items() if column.classes}

    @property
    def schema(self) -> Schema:
        """Return the columns of all files. Raise UsageError."""
        return Schema.from_columns({name: str(self._type(name)) for name in self._columns})

    def _type(self, name: str) -> ColumnType:
        if name in self._declared:
            return self._declared[name]
        column = self._columns[name]
        return replace(column.type, nullable=column.type.nullable or column.nulls)

    def to_measure(self, file: FileColumns) -> list[str]:
        """Return the columns of a file whose decoded size is not in its footer, and the declared ones."""
        encoded = {name for name, column in file.columns.items() if column.encoded and not self._has_size(name)}
        return [name for name in file.columns if name in encoded or name in self._declared]

    def _has_size(self, name: str) -> bool:
        kind = self._type(name)
        return kind.scalar and not kind.stars

    def _heaps(self, file: FileColumns, means: Mapping[str, float]) -> NDArray[np.int64]:
        """Return the estimated heap bytes of each column in each row group, [groups, columns]."""
        found, rows = np.empty_like(file.uncompressed), np.array(file.rows, np.float64)
        for place, name in enumerate(file.columns):
            kind = self._type(name)
            if self._has_size(name):
                sizes = rows * (0 if kind.fixed_size else kind.nbytes)
            else:
                sizes = np.maximum(file.uncompressed[:, place], rows * means.get(name, 0.0))
            found[:, place] = np.minimum(sizes, MAX_HEAP)
        return found

    def indexed(
        self, files: Sequence[FileColumns], means: Mapping[str, float]
    ) -> tuple[list[IndexedColumn], list[tuple[IndexedGroup, ...]]]:
        """Return an index's entries for the columns, and for the row groups of each file.

        `means`: the average bytes of a decoded value, for the columns `to_measure`.
        """
        stored, heap = dict.fromkeys(self._columns, 0), dict.fromkeys(self._columns, 0)
        groups = []
        for file in files:
            heaps = self._heaps(file, means)
            for name, chunks, values in zip(file.columns, file.stored.T.tolist(), heaps.T.tolist(), strict=True):
                stored[name] += sum(chunks)
                heap[name] += sum(values)
            sums = file.stored.sum(axis=1).tolist(), np.minimum(heaps.sum(axis=1), MAX_HEAP).tolist()
            groups.append(
                tuple(
                    IndexedGroup(rows, start, stop, *sizes)
                    for rows, (start, stop), *sizes in zip(file.rows, file.extents, *sums, strict=True)
                )
            )
        columns = [
            IndexedColumn(name, str(self._type(name)), column.arrow, stored[name], heap[name], column.classes)
            for name, column in self._columns.items()
        ]
        return columns, groups


def class_names(metadata: Mapping[bytes, bytes] | None) -> dict[str, tuple[str, ...]]:
    """Return the class names by column, from the metadata that Hugging Face's `datasets` writes into a schema."""
    try:
        features = json.loads((metadata or {}).get(b"huggingface", b"{}"))["info"]["features"]
        found = {name: _inner(feature) for name, feature in features.items()}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):  # none, or written by something else
        return {}
    return {
        name: tuple(feature["names"])
        for name, feature in found.items()
        if isinstance(feature, dict)
        and feature.get("_type") == "ClassLabel"
        and isinstance(feature.get("names"), list)
        # JSON may have lone surrogates, which no index can hold
        and all(isinstance(each, str) and each.encode(errors="ignore").decode() == each for each in feature["names"])
    }


def _inner(feature: Any) -> Any:
    """Return a feature, or the feature inside its lists."""
    if isinstance(feature, list):
        return feature[0]
    return feature.get("feature", feature) if isinstance(feature, dict) else feature


def _different(name: str, how: str, file: str, way: str = "") -> UsageError:
    hint = f"{way}index files with the same columns together, or write this file again with the others' columns"
    message = f"the files have different columns: {how}"
    return UsageError(message, file=file, place=f"column {name[:80]!r}", hint=hint)
