"""The schema: the columns of a dataset, their canonical JSON text, and the row layout that follows from them.

The JSON is canonical (no spaces, `name` before `type`, no escapes), so two schemas are equal if their bytes are. A row
consists of: u64 checksum; with variable-size columns, u64 start of the sample's heap bytes, and one u32 length per
variable-size column; the fixed-size columns, each aligned to its item size; zero padding to 8. Lengths and values are
in column order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mdsx.base.cached import cached_property
from mdsx.errors import CorruptError, FormatError, UsageError, shown
from mdsx.format.bases import BASES
from mdsx.format.packaged import Codec, codecs_of, dotted
from mdsx.format.suggest import suggest
from mdsx.format.types import ColumnType, parse_type

HEADER_SIZE = 64
"""Bytes of the header that 1.0 writes."""
MAX_SCHEMA_SIZE = 2**20
MAX_NAME_SIZE = 255
MAX_ROW_SIZE = 2**31 - 1

_ENTRY = re.compile(r'\{"name":"([^"\\]*)","type":"([^"\\]*)"\}(,|\]\Z)')
_NOT_IN_NAMES = re.compile(r'[\x00-\x1f\x7f-\x9f"\\]')


def up(value: int, step: int) -> int:
    """Return `value` rounded up to a multiple of `step`."""
    return -(-value // step) * step


@dataclass(frozen=True, slots=True)
class Column:
    """A name and a type."""

    name: str
    type: ColumnType


@dataclass(frozen=True)
class Schema:
    """The columns of a dataset, in order. Make it with `from_columns`, `from_json` or `of`, which check them."""

    columns: tuple[Column, ...]

    @classmethod
    def from_columns(cls, columns: Mapping[str, str]) -> Schema:
        """Return the schema of a writer's `columns`, name -> type text. Raise UsageError."""
        if not isinstance(columns, Mapping):
            raise UsageError("columns must be a mapping of names to types", found=type(columns).__name__)
        return cls(tuple(_asked_column(name, text) for name, text in columns.items()))._checked(UsageError, None)

    @classmethod
    def from_json(cls, data: bytes, *, file: str | None = None) -> Schema:
        """Return the schema whose canonical JSON is `data`. Raise CorruptError or UnsupportedError."""
        try:
            text = bytes(data).decode("utf-8")
        except UnicodeDecodeError as error:
            raise CorruptError("not UTF-8", file=file, place="schema", found=str(error)) from None
        return cls.from_pairs(_stored_pairs(text, file), file=file)

    @classmethod
    def from_pairs(cls, pairs: Iterable[tuple[str, str]], *, file: str | None = None) -> Schema:
        """Return the schema of the stored columns `pairs`: name, type text. Raise CorruptError or UnsupportedError."""
        columns = [
            Column(name, parse_type(kind, file=file, place=f"schema, column {name[:80]!r}")) for name, kind in pairs
        ]
        return cls.of(columns, file=file)

    @classmethod
    def of(cls, columns: Iterable[Column], *, file: str | None = None) -> Schema:
        """Return the schema of stored columns, maybe with types of another format. Raise CorruptError."""
        return cls(tuple(columns))._checked(CorruptError, file)

    def choose(self, columns: Mapping[str, str]) -> tuple[Schema, tuple[int, ...]]:
        """Return the schema of only `columns`, new name -> present name, and the present number of each. Raise
        UsageError."""
        numbers = {column.name: number for number, column in enumerate(self.columns)}
        for name in columns.values():
            if name not in numbers:
                there = ", ".join(numbers)
                raise UsageError("there is no such column", place=f"column {str(name)[:80]!r}", expected=there)
        chosen = tuple(numbers[name] for name in columns.values())
        schema = Schema(tuple(Column(name, self.columns[k].type) for name, k in zip(columns, chosen, strict=True)))
        return schema._checked(UsageError, None), chosen

    def _checked(self, kind: type[UsageError] | type[CorruptError], file: str | None) -> Schema:
        problem = _problem(self)
        if problem:
            hint = (
                'give at least one, like {"tokens": "uint16[*]"}' if not self.columns and kind is UsageError else None
            )
            raise kind(problem, file=file, place="schema", hint=hint)
        return self

    @cached_property
    def json(self) -> bytes:
        """Return the canonical text of this schema."""
        entries = (f'{{"name":"{column.name}","type":"{column.type}"}}' for column in self.columns)
        return f"[{','.join(entries)}]".encode()

    @cached_property
    def variable(self) -> tuple[int, ...]:
        """Return the numbers of the variable-size columns."""
        return tuple(number for number, column in enumerate(self.columns) if not column.type.fixed_size)

    @cached_property
    def fixed(self) -> tuple[int, ...]:
        """Return the numbers of the fixed-size columns."""
        return tuple(number for number, column in enumerate(self.columns) if column.type.fixed_size)

    @cached_property
    def minor(self) -> int:
        """Return the minor version of its shards: the first one that knows all of these types."""
        return max(column.type.minor for column in self.columns)

    @property
    def codecs(self) -> tuple[Codec, ...]:
        """Return this process's codecs of its types, to pickle them with a schema that is passed as text."""
        return codecs_of(column.type.base for column in self.columns)

    @property
    def rows_offset(self) -> int:
        """Return the offset of the rows in a shard whose header has 64 bytes."""
        return up(HEADER_SIZE + len(self.json), 64)

    @cached_property
    def row_size(self) -> int:
        return self._layout[1]

    @cached_property
    def row_dtype(self) -> np.dtype[np.void]:
        """Return the structured dtype of a row: `checksum`; `start` and `lengths` [V] if V columns are variable-size;
        `column{k}` for fixed-size column number k, in its storage dtype."""
        names, offsets = ["checksum"], [0]
        dtypes: list[np.dtype[Any]] = [np.dtype("<u8")]
        if self.variable:
            names += ["start", "lengths"]
            dtypes += [self.extents_dtype[name] for name in ("start", "lengths")]
            offsets += [8, 16]
        for number, offset in zip(self.fixed, self._layout[0], strict=True):
            names.append(f"column{number}")
            dtypes.append(self.columns[number].type.field_dtype)
            offsets.append(offset)
        return np.dtype({"names": names, "formats": dtypes, "offsets": offsets, "itemsize": self.row_size})

    @cached_property
    def extents_dtype(self) -> np.dtype[np.void]:
        """Return the dtype of `start` and `lengths` [V], which begin at byte 8 of a row, if V columns are
        variable-size."""
        return np.dtype([("start", "<u8"), ("lengths", "<u4", (len(self.variable),))])

    @cached_property
    def _layout(self) -> tuple[tuple[int, ...], int]:
        """Return the offsets of the fixed-size columns in a row, and the row's size."""
        end = 16 + 4 * len(self.variable) if self.variable else 8
        offsets = []
        for number in self.fixed:
            kind = self.columns[number].type
            offsets.append(up(end, kind.item_dtype.itemsize))
            end = offsets[-1] + kind.nbytes
        return tuple(offsets), up(end, 8)


def _asked_column(name: str, text: str) -> Column:
    if not isinstance(name, str):
        raise UsageError("a column's name must be a str", found=shown(name))
    if not isinstance(text, str):
        message = "a column's type must be a str"
        raise UsageError(message, place=f"column {name!r}", found=shown(text), hint=_way_out(text))
    try:
        kind = parse_type(dotted(text) if ":" in text and not suggest(text) else text)
    except FormatError as error:
        raise UsageError(str(error), place=f"column {name!r}", hint=_way_out(text)) from None
    if not kind.known and not kind.packaged:  # stored values of a package's type can be written without the package
        raise UsageError(f"unknown column type {text!r}", place=f"column {name!r}", hint=_way_out(text))
    return Column(name, kind)


def _way_out(asked: object) -> str:
    near = suggest(asked)
    meant = f"did you mean {near!r}? " if near else ""
    forms = "arrays like uint16[2048] or float32[*,3]; lists like str[*]; ? after nullable ones"
    return f"{meant}types: {', '.join(BASES)}; {forms}"


def _stored_pairs(text: str, file: str | None) -> list[tuple[str, str]]:
    # Names and types have no quotes and no backslashes, so the canonical JSON is a regular language: matching it both
    # parses it and checks that it is canonical.
    pairs, at = [], 1
    while text.startswith("[") and (match := _ENTRY.match(text, at)):
        name, kind, end = match.groups()
        pairs.append((name, kind))
        at = match.end()
        if end == "]":
            return pairs
    raise CorruptError(
        "not canonical JSON",
        file=file,
        place=f"schema, character {at}",
        found=repr(text[at : at + 40]),
        expected='[{"name":...,"type":...},...] without spaces and escapes, one column or more',
    )


def _problem(schema: Schema) -> str | None:
    if not schema.columns:
        return "there is no column"
    seen: set[str] = set()
    for column in schema.columns:
        problem = "is a duplicate" if column.name in seen else _name_problem(column.name)
        if problem:
            return f"column name {column.name[:80]!r} {problem}"
        seen.add(column.name)
    if len(schema.json) > MAX_SCHEMA_SIZE:
        return f"it has {len(schema.json)} bytes, more than 1 MiB"
    if schema.row_size > MAX_ROW_SIZE:
        return f"a row would have {schema.row_size} bytes, which is not below 2^31"
    return None


def _name_problem(name: str) -> str | None:
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "is not Unicode text: it holds a surrogate"
    if not 1 <= size <= MAX_NAME_SIZE:
        return f"has {size} bytes, not 1 to {MAX_NAME_SIZE}"
    found = _NOT_IN_NAMES.search(name)
    return f"holds the character {found[0]!r}" if found else None
