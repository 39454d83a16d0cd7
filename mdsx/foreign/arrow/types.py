"""The table of types: the column type for values of an Arrow type, and the Arrow type of a column.

docs/writing.md shows the table. Writing, Parquet, converters and engines share it.

A type is *plain* after its outermost wrappers are removed (`plain_type`): a dictionary becomes its values, an extension
type its storage, and so on. The table has only plain types. `plain.py` does the same with arrays.
"""

from __future__ import annotations

from typing import Any

from mdsx.errors import FormatError, UsageError
from mdsx.foreign.arrow.library import pa
from mdsx.format import BASES, BYTES, JSON, MSGPACK, NUMBERS, STR, ColumnType, parse_type

_SAME = {base.arrow: base.name for base in reversed(NUMBERS.values())}
"""Arrow's names of numbers -> ours."""

_TENSOR = "arrow.fixed_shape_tensor"
_JSON = "arrow.json"


def column_type(type: Any, *, nullable: bool) -> ColumnType:
    """Return the column type for values of the Arrow type `type`, a `pyarrow.DataType`.

    `nullable`: whether the values may include nulls. Columns without nulls can be fixed-size, so give True only if
    there are nulls. A column of Arrow's null type is always nullable. Raise UsageError for a type that no column can
    hold: unions, month intervals, and structs with two fields of the same name.
    """
    base, shape = _column_type(type)
    kind = ColumnType(base, shape, nullable or pa.types.is_null(plain_type(type)))
    try:
        return parse_type(str(kind))
    except FormatError as error:
        raise UsageError(f"there is no column type for Arrow's {type}", found=str(kind), hint=str(error)) from None


def arrow_type(kind: ColumnType) -> Any:
    """Return the Arrow type in which a column of type `kind` is returned.

    Arrays become lists, and dimensions without a star fixed-size lists. Number types that Arrow lacks become float32,
    which holds them exactly. `json` becomes a string with its text. All other objects become binary, including the
    stored bytes of another package's type. Raise UsageError for types of later versions and of other formats.
    """
    kind = kind.stored
    if kind.base not in BASES:
        raise UsageError(f"Arrow has no type for '{kind}'", hint="leave out the column, or read it without Arrow")
    found = pa.type_for_alias(BASES[kind.base].arrow)
    for size in reversed(kind.shape or ()):
        found = pa.list_(found) if size is None else pa.list_(found, size)
    return found


def plain_type(type: Any) -> Any:
    """Return `type` without its outermost wrappers; see `plain.py`, which does the same with arrays."""
    is_ = pa.types
    if isinstance(type, pa.BaseExtensionType):
        return plain_type(type.storage_type)
    if is_.is_dictionary(type):
        return large_type(plain_type(type.value_type))
    if is_run_end_encoded(type):
        return plain_type(type.value_type)
    if is_file(type):
        return plain_type(type.field("bytes").type)
    if is_.is_decimal(type):
        return pa.string()
    if is_.is_temporal(type) and not is_.is_interval(type):
        return pa.int32() if type.bit_width == 32 else pa.int64()
    if is_string(type):
        return type if is_.is_string(type) else pa.large_string()
    if is_binary(type):
        return type if is_.is_binary(type) else pa.large_binary()
    return type


def large_type(type: Any) -> Any:
    """Return the type of strings or bytes whose offsets have 64 bits: views and dictionaries may stand for more than 2
    GiB. Return any other type as it is."""
    return pa.large_string() if is_string(type) else pa.large_binary() if is_binary(type) else type


def is_file(type: Any) -> bool:
    """Return whether this is Hugging Face's type for images and audio: a struct of `bytes` and `path`."""
    if not pa.types.is_struct(type) or {field.name for field in type} != {"bytes", "path"} or type.num_fields != 2:
        return False
    return is_binary(type.field("bytes").type) and is_string(type.field("path").type)


def is_string(type: Any) -> bool:
    return pa.types.is_string(type) or pa.types.is_large_string(type) or str(type) == "string_view"


def is_binary(type: Any) -> bool:
    """Return whether the type's values are bytes: of any size, of one size, or views."""
    is_ = pa.types
    plain = is_.is_binary(type) or is_.is_large_binary(type) or is_.is_fixed_size_binary(type)
    return (plain and not is_.is_decimal(type)) or str(type) == "binary_view"


def is_list(type: Any) -> bool:
    """Return whether the type's values are lists of any kind; maps are not."""
    is_ = pa.types
    return is_.is_list(type) or is_.is_large_list(type) or is_.is_fixed_size_list(type) or is_list_view(type)


def has_empty_lists(type: Any) -> bool:
    """Return whether lists of the fixed size 0 are anywhere in a type."""
    if isinstance(type, pa.BaseExtensionType):
        return has_empty_lists(type.storage_type)
    if pa.types.is_map(type):
        return has_empty_lists(type.key_type) or has_empty_lists(type.item_type)
    if is_list(type):
        empty = pa.types.is_fixed_size_list(type) and not type.list_size
        return empty or has_empty_lists(type.value_type)
    return pa.types.is_struct(type) and any(has_empty_lists(field.type) for field in type)


def is_list_view(type: Any) -> bool:
    return str(type).startswith(("list_view<", "large_list_view<"))


def is_run_end_encoded(type: Any) -> bool:
    return str(type).startswith("run_end_encoded<")


def is_tensor(type: Any) -> bool:
    """Return whether this is Arrow's extension type of tensors of one shape."""
    return getattr(type, "extension_name", None) == _TENSOR


def tensor_shape(type: Any) -> tuple[int, ...]:
    """Return the logical shape of the values of a tensor type."""
    shape = tuple(type.shape)
    return shape if type.permutation is None else tuple(shape[axis] for axis in type.permutation)


def is_json(type: Any) -> bool:
    """Return whether this is Arrow's extension type of JSON text."""
    return getattr(type, "extension_name", None) == _JSON


def _column_type(type: Any) -> tuple[str, tuple[int | None, ...] | None]:
    """Return the base and shape for values of `type`."""
    if is_tensor(type):
        return _number(plain_type(type.value_type), type), tensor_shape(type)
    if is_json(type):
        return JSON.name, None
    type, given = plain_type(type), type
    if is_string(type):
        return STR.name, None
    if is_binary(type):
        return BYTES.name, None
    if is_list(type):
        base, shape = _column_type(type.value_type)
        if base in (STR.name, BYTES.name) and shape is None:
            return base, (None,)
        if base in _SAME.values() and (shape is None or None not in shape):
            return base, (type.list_size if pa.types.is_fixed_size_list(type) else None, *(shape or ()))
    if pa.types.is_nested(type) or pa.types.is_null(type):
        return MSGPACK.name if _has_bytes(type) else JSON.name, None
    return _number(type, given), None


def _number(type: Any, given: Any) -> str:
    try:
        return _SAME[str(type)]
    except KeyError:
        raise _no_type(given) from None


def _has_bytes(type: Any) -> bool:
    """Return whether a nested type contains bytes anywhere.

    Raise UsageError for a union, and for a struct with two fields of the same name.
    """
    type = plain_type(type)
    if pa.types.is_union(type) or pa.types.is_interval(type):
        raise _no_type(type)
    if pa.types.is_map(type):
        return _has_bytes(type.key_type) or _has_bytes(type.item_type)
    if is_list(type):
        return _has_bytes(type.value_type)
    if pa.types.is_struct(type):
        if len({field.name for field in type}) < type.num_fields:
            raise _no_type(type, "two of its fields have one name")
        return sum(_has_bytes(field.type) for field in type) > 0  # checks all of them, because one may be a union
    return is_binary(type)


def _no_type(type: Any, reason: str | None = None) -> UsageError:
    message, hint = f"there is no column type for Arrow's {type}", "cast the column, or leave it out"
    return UsageError(message, found=reason, hint=hint)
