"""Convert Arrow arrays of columns back to the Arrow types that the values had originally.

This is the inverse of `plain`, given a kept schema: integers become dates and times, text decimals, JSON and
MessagePack structs and maps, values a dictionary. What was not stored is lost: the `path` that Hugging Face stores with
the bytes of images and audio becomes null.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np

from mdsx.errors import UsageError
from mdsx.foreign.arrow.library import pa
from mdsx.foreign.arrow.plain import nulls, numpy_items
from mdsx.foreign.arrow.types import (
    column_type,
    is_binary,
    is_file,
    is_json,
    is_list,
    is_string,
    is_tensor,
    tensor_shape,
)
from mdsx.format import ColumnType, value_decoder

KEPT_SCHEMA = "arrow_schema"
"""The key of a dataset's metadata under which converters keep the original Arrow schema."""


def schema_text(schema: Any) -> str:
    """Return a `pyarrow.Schema` as text: base64 of `Schema.serialize()`."""
    return base64.b64encode(schema.serialize()).decode()


def parse_schema(text: str) -> Any:
    """Return a kept `pyarrow.Schema`. Raise ValueError."""
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))
    except (pa.ArrowException, OSError) as error:
        raise ValueError(str(error)) from None


def without_null_types(schema: Any, other: Any) -> Any:
    """Return a `pyarrow.Schema` whose fields of Arrow's null type are those of a second file's schema, by name."""
    fields = list(schema)
    for place, field in enumerate(fields):
        if pa.types.is_null(field.type) and (number := other.get_field_index(field.name)) >= 0:
            fields[place] = other.field(number)
    return pa.schema(fields, schema.metadata)


def can_restore(kind: ColumnType, type: Any) -> bool:
    """Return whether values of a column of type `kind` may have had the Arrow type `type`."""
    try:
        known = column_type(type, nullable=False)
    except UsageError:
        return False
    if kind.scalar:
        return known.scalar and len(kind.shape or ()) == len(known.shape or ())
    if kind.foreign is not None or kind.kind is None or kind.is_list != known.is_list:
        return False
    json_text = kind.kind == "document" and kind.object.textual and known.kind == "text"
    return kind.base == known.base or kind.kind == known.kind == "bytes" or json_text


def restore(array: Any, kind: ColumnType, type: Any) -> Any:
    """Convert an array that `to_table` made from a column of type `kind` to the Arrow type `type`.

    Raise UsageError for values that do not fit.
    """
    try:
        return _restored(array, kind, type)
    except (pa.ArrowException, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise UsageError(f"values of type '{kind}' do not fit Arrow's {type}", found=str(error)) from None


def _restored(array: Any, kind: ColumnType, type: Any) -> Any:
    if array.type == type:
        return array
    if is_tensor(type):
        return _tensors(array, type)
    if isinstance(type, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(type, _restored(array, kind, type.storage_type))
    if pa.types.is_dictionary(type):
        return _restored(array, kind, type.value_type).dictionary_encode().cast(type)
    if is_file(type):
        path = pa.nulls(len(array), type.field("path").type)
        parts = {"bytes": array.cast(type.field("bytes").type), "path": path}
        return pa.StructArray.from_arrays([parts[f.name] for f in type], fields=list(type), mask=array.is_null())
    if kind.kind == "document" and not kind.is_list and not is_string(type) and not is_binary(type):
        decode = value_decoder(kind, "")
        texts = array.cast(pa.large_binary())
        return _from_python([None if each is None else decode(memoryview(each)) for each in texts.to_pylist()], type)
    try:
        return array.cast(type)
    except pa.ArrowNotImplementedError:
        return _from_python(array.to_pylist(), type)


def _tensors(array: Any, type: Any) -> Any:
    """Return nested lists of fixed sizes as tensors, in the order in which the type stores their items."""
    shape, null, values = tensor_shape(type), nulls(array), array
    for _ in shape:
        values = values.flatten()
    if type.permutation is not None:
        items = numpy_items(values).reshape(-1, *shape)
        items = items.transpose(0, *[axis + 1 for axis in np.argsort(type.permutation).tolist()])
        values = pa.array(items.reshape(-1))
    size = type.storage_type.list_size
    storage = pa.FixedSizeListArray.from_arrays(values.cast(type.value_type), size)
    if null is not None:
        storage = storage.take(pa.array(np.cumsum(~null) - 1, mask=null))
    return pa.ExtensionArray.from_storage(type, storage.cast(type.storage_type))


def _from_python(values: list[Any], type: Any) -> Any:
    convert = _converter(type)
    return pa.array(values if convert is None else [_or_none(convert, value) for value in values], type)


_Convert = Callable[[Any], Any]


def _converter(type: Any) -> _Convert | None:
    """Return a function that converts a value to what `pa.array` accepts for `type`; None if it accepts the value."""
    is_ = pa.types
    if is_json(type):
        return lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if isinstance(type, pa.BaseExtensionType):
        return _converter(type.storage_type)
    if is_.is_dictionary(type):
        return _converter(type.value_type)
    if is_.is_decimal(type):
        return Decimal
    if is_file(type):
        return lambda value: {"bytes": value, "path": None}
    if is_.is_struct(type):
        fields = {field.name: _converter(field.type) for field in type}
        if not any(fields.values()):
            return None
        return lambda value: {name: _or_none(convert, value[name]) for name, convert in fields.items()}
    if is_.is_map(type):
        key, item = _converter(type.key_type), _converter(type.item_type)
        return lambda value: [
            (_or_none(key, k), _or_none(item, v)) for k, v in (value.items() if isinstance(value, dict) else value)
        ]
    if is_list(type) and (each := _converter(type.value_type)) is not None:
        return lambda value: [_or_none(each, item) for item in value]
    return None


def _or_none(convert: _Convert | None, value: Any) -> Any:
    return value if value is None or convert is None else convert(value)
