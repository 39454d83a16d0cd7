"""Convert blocks of Ray Data to columns, as Arrow data.

Ray keeps NumPy arrays in its own Arrow extension types. They become lists, nested as deep as the arrays have
dimensions. Everything else is as in `mdsx.foreign.arrow`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from mdsx.errors import SampleError, UsageError
from mdsx.foreign.arrow import column_type, pa
from mdsx.format import ColumnType, Schema

_TENSORS = ("ray.data.arrow_tensor", "ray.data.arrow_tensor_v2")  # of one shape
_VARIABLE = "ray.data.arrow_variable_shaped_tensor"
_OBJECTS = "ray.data.arrow_pickled_object"
_GIVE = "give the types: Datasink(url, columns={name: type, ...})"


def columns_of(schema: Any) -> dict[str, str]:
    """Return the columns in which blocks with the `pyarrow.Schema` `schema` are stored: name -> type.

    Later blocks may have nulls, so each type has a question mark, unless the schema excludes nulls or the column has
    NumPy arrays. Raise UsageError.
    """
    found = {}
    for field in schema:
        place, (kind, nullable) = f"column {field.name!r}", _type_of(field)
        if kind is None:
            raise UsageError("the first block does not show the type of this column", place=place, hint=_GIVE)
        if field.name in found:
            raise UsageError("two columns have the same name", place=place, hint="rename one: ds.rename_columns(...)")
        found[field.name] = str(ColumnType(kind.base, kind.shape, nullable or kind.nullable))
    Schema.from_columns(found)
    return found


def check_names(schema: Any, columns: Iterable[str]) -> None:
    """Raise UsageError unless blocks with this schema have exactly these columns."""
    there, wanted = sorted(schema.names), sorted(columns)
    if there != wanted:
        message, hint = "the Ray dataset has other columns than those to write", "choose with ds.select_columns(...)"
        raise UsageError(message, found=", ".join(there), expected=", ".join(wanted), hint=hint)


def _type_of(field: Any) -> tuple[ColumnType | None, bool]:
    """Return the column type of an Arrow field, or None if unknown, and whether it may have nulls."""
    type, name = field.type, getattr(field.type, "extension_name", "")
    if pa.types.is_null(type):
        return None, True
    if name == _OBJECTS:
        raise _objects(field.name)
    if name in _TENSORS:
        return ColumnType(_base(type.value_type), tuple(type.shape)), False
    if name == _VARIABLE:
        return ColumnType(_base(type.value_type), (None,) * type.ndim), False
    return column_type(type, nullable=False), bool(field.nullable)


def _base(value_type: Any) -> str:
    return column_type(value_type, nullable=False).base


def batch_of(table: Any) -> Any:
    """Return a block, a `pyarrow.Table`, as `Writer.write_batch` takes it. Raise UsageError."""
    if not any(getattr(field.type, "extension_name", "").startswith("ray.") for field in table.schema):
        return table
    return {field.name: _plain(table.column(field.name), field) for field in table.schema}


def _plain(column: Any, field: Any) -> Any:
    name = getattr(field.type, "extension_name", "")
    if name == _OBJECTS:
        raise _objects(field.name)
    if name in _TENSORS:
        return pa.chunked_array([_lists(chunk.storage, field.type.shape) for chunk in column.chunks])
    if name == _VARIABLE:
        return [array for chunk in column.chunks for array in _arrays(chunk.storage)]
    return column


def _lists(storage: Any, shape: tuple[int, ...]) -> Any:
    """Return flat lists as nested lists of fixed sizes, without a copy."""
    if not storage.null_count:
        values = storage.flatten()
        for size in reversed(shape):
            values = pa.FixedSizeListArray.from_arrays(values, size)
        return values
    inner = storage.type.value_type
    for size in reversed(shape):
        inner = pa.list_(inner, size)
    return pa.array([None if each is None else np.reshape(each, shape).tolist() for each in storage.to_pylist()], inner)


def _arrays(storage: Any) -> list[Any]:
    """Return structs of `data` and `shape` as arrays."""
    found: list[Any] = []
    for each in storage:
        valid = each.is_valid
        found.append(np.asarray(each["data"].values).reshape(each["shape"].as_py()) if valid else None)
    return found


def _objects(name: str) -> SampleError:
    hint = "make bytes, text or numbers of them with ds.map_batches, or drop the column"
    return SampleError("Arrow has no type for the values, so Ray has pickled them", place=f"column {name!r}", hint=hint)
