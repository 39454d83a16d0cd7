"""Column types for the columns of a Spark DataFrame, checked before a job starts.

Spark passes rows to Python as Arrow data, so the table of `mdsx.foreign.arrow` applies. A type has a question mark if
Spark says that there may be nulls, as it does for most columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from mdsx.errors import UsageError
from mdsx.foreign.arrow import column_type, pa
from mdsx.format import ColumnType, Refused, Schema, to_items

_LEAVES: dict[str, Callable[[Any], Any]] = {
    "boolean": lambda kind: pa.bool_(),
    "byte": lambda kind: pa.int8(),
    "short": lambda kind: pa.int16(),
    "integer": lambda kind: pa.int32(),
    "long": lambda kind: pa.int64(),
    "float": lambda kind: pa.float32(),
    "double": lambda kind: pa.float64(),
    "decimal": lambda kind: pa.decimal128(kind.precision, kind.scale),
    "string": lambda kind: pa.string(),
    "char": lambda kind: pa.string(),
    "varchar": lambda kind: pa.string(),
    "binary": lambda kind: pa.binary(),
    "date": lambda kind: pa.date32(),
    "timestamp": lambda kind: pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": lambda kind: pa.timestamp("us"),
    "daytimeinterval": lambda kind: pa.duration("us"),
    "void": lambda kind: pa.null(),
}
"""Spark's name of a type -> the Arrow type in which its values arrive in Python."""
_CASTS = {
    "vectorudt": "make an array of it with pyspark.ml.functions.vector_to_array",
    "matrixudt": "make an array of it",
    "variant": "make a string of it with pyspark.sql.functions.to_json, or cast it to the type of its values",
}
_OTHERWISE = "cast it, or leave it out"


def columns_of(df: Any) -> dict[str, str]:
    """Return the columns in which `write` stores a DataFrame: name -> type.

    Raises:
        UsageError: No column type can hold a type of the DataFrame, or two columns have the same name.
    """
    return {name: str(column_type(kind, nullable=nullable)) for name, kind, nullable in _fields(df)}


def check_columns(df: Any, columns: Mapping[str, str]) -> None:
    """Raise UsageError unless `columns` has the columns of `df`, with types that can hold their values."""
    schema = Schema.from_columns(columns)
    there = {name: kind for name, kind, _ in _fields(df)}
    if there.keys() != set(columns):
        message = "the DataFrame has other columns than those to write"
        hint = "choose with df.select(...), and give the type of each column"
        raise UsageError(message, found=", ".join(sorted(there)), expected=", ".join(sorted(columns)), hint=hint)
    for column in schema.columns:
        try:
            _check_type(column.type, there[column.name])
        except Refused as refused:
            message = "the column's type cannot hold the values of the DataFrame"
            place, hint = f"column {column.name!r}", "cast the column in Spark, or give another type"
            raise UsageError(message, place=place, found=refused.found, expected=refused.expected, hint=hint) from None


def _fields(df: Any) -> Iterator[tuple[str, Any, bool]]:
    """Yield the name and Arrow type of each column, and whether it may have nulls."""
    fields = df.schema.fields
    if twice := [name for name, count in Counter(field.name for field in fields).items() if count > 1]:
        hint = "rename one of them: df.toDF(...)"
        raise UsageError("two columns have the same name", place=f"column {twice[0]!r}", hint=hint)
    for field in fields:
        yield field.name, _arrow_type(field.dataType, field.name), field.nullable


def _arrow_type(kind: Any, column: str) -> Any:
    name = kind.typeName()
    if name == "array":
        return pa.list_(_arrow_type(kind.elementType, column))
    if name == "map":
        return pa.map_(_arrow_type(kind.keyType, column), _arrow_type(kind.valueType, column))
    if name == "struct":
        return pa.struct([(field.name, _arrow_type(field.dataType, column)) for field in kind.fields])
    if name in _LEAVES:
        return _LEAVES[name](kind)
    hint = _CASTS.get(name, _OTHERWISE)
    message = f"there is no column type for Spark's {kind.simpleString()}"
    raise UsageError(message, place=f"column {column!r}", found=type(kind).__name__, hint=hint)


def _check_type(wanted: ColumnType, given: Any) -> None:
    """Raise Refused if a column of type `wanted` can hold no value of the Arrow type `given`."""
    found = column_type(given, nullable=False)
    if wanted.kind == "document" and not wanted.is_list:
        return
    text = f"{found}, of Arrow's {given}"
    if wanted.scalar:
        item, depth = given, 0
        while pa.types.is_list(item):
            item, depth = item.value_type, depth + 1
        number = column_type(item, nullable=False)
        if depth != len(wanted.shape or ()) or not number.scalar:
            raise Refused(str(wanted), text)
        to_items(wanted.number, np.empty(0, number.item_dtype))
    elif found.scalar or wanted.is_list != found.is_list or (wanted.kind == "text") != (found.kind == "text"):
        raise Refused(str(wanted), text)
