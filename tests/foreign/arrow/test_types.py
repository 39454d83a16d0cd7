"""The table of types: what docs/writing.md promises."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from mdsx.errors import UsageError
from mdsx.foreign.arrow import arrow_columns, arrow_type, column_type
from mdsx.format import parse_type

FILE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])

TABLE: list[tuple[Any, str]] = [
    (pa.bool_(), "bool"),
    (pa.int8(), "int8"),
    (pa.uint64(), "uint64"),
    (pa.float16(), "float16"),
    (pa.float32(), "float32"),
    (pa.float64(), "float64"),
    (pa.string(), "str"),
    (pa.large_string(), "str"),
    (pa.string_view(), "str"),
    (pa.binary(), "bytes"),
    (pa.large_binary(), "bytes"),
    (pa.binary_view(), "bytes"),
    (pa.binary(16), "bytes"),
    (FILE, "bytes"),
    (pa.list_(FILE), "bytes[*]"),
    (pa.list_(pa.int64()), "int64[*]"),
    (pa.large_list(pa.bool_()), "bool[*]"),
    (pa.list_view(pa.float32()), "float32[*]"),
    (pa.list_(pa.uint16(), 2048), "uint16[2048]"),
    (pa.list_(pa.list_(pa.float32(), 4), 3), "float32[3,4]"),
    (pa.list_(pa.list_(pa.float32(), 3)), "float32[*,3]"),
    (pa.fixed_shape_tensor(pa.int32(), (2, 3)), "int32[2,3]"),
    (pa.fixed_shape_tensor(pa.int32(), (2, 3), permutation=[1, 0]), "int32[3,2]"),
    (pa.list_(pa.fixed_shape_tensor(pa.int32(), (2, 3))), "int32[*,2,3]"),
    (pa.list_(pa.string()), "str[*]"),
    (pa.list_(pa.large_binary(), 2), "bytes[*]"),
    (pa.list_(pa.dictionary(pa.int8(), pa.string())), "str[*]"),
    (pa.dictionary(pa.int8(), pa.string()), "str"),
    (pa.run_end_encoded(pa.int32(), pa.float32()), "float32"),
    (pa.decimal128(10, 2), "str"),
    (pa.decimal256(60, 2), "str"),
    (pa.list_(pa.decimal128(10, 2)), "str[*]"),
    (pa.date32(), "int32"),
    (pa.date64(), "int64"),
    (pa.time32("ms"), "int32"),
    (pa.time64("ns"), "int64"),
    (pa.timestamp("us", "Europe/Paris"), "int64"),
    (pa.duration("s"), "int64"),
    (pa.list_(pa.timestamp("ns")), "int64[*]"),
    (pa.null(), "json?"),
    (pa.struct([("a", pa.int8()), ("b", pa.list_(pa.string()))]), "json"),
    (pa.map_(pa.string(), pa.int32()), "json"),
    (pa.list_(pa.struct([("a", pa.int8())])), "json"),
    (pa.list_(pa.list_(pa.float32())), "json"),
    (pa.list_(pa.list_(pa.string())), "json"),
    (pa.list_(pa.null()), "json"),
    (pa.struct([("image", FILE), ("label", pa.int8())]), "msgpack"),
    (pa.list_(pa.list_(pa.binary())), "msgpack"),
    (pa.bool8(), "int8"),
    (pa.uuid(), "bytes"),
    (pa.json_(), "json"),
]


@pytest.mark.parametrize(("given", "expected"), TABLE, ids=lambda value: str(value)[:40])
def test_each_arrow_type_has_a_column_type(given: Any, expected: str) -> None:
    assert str(column_type(given, nullable=False)) == expected
    assert str(column_type(given, nullable=True)) == expected.removesuffix("?") + "?"


@pytest.mark.parametrize(
    "given",
    [
        pa.month_day_nano_interval(),
        pa.dense_union([pa.field("a", pa.int8())]),
        pa.struct([("b", pa.binary()), ("u", pa.dense_union([pa.field("a", pa.int8())]))]),
        pa.list_(pa.int64(), 2**30),
        pa.list_(pa.struct([("a", pa.int8()), ("a", pa.string())])),
    ],
    ids=str,
)
def test_a_type_without_a_column_is_named(given: Any) -> None:
    with pytest.raises(UsageError, match="there is no column type for Arrow's"):
        column_type(given, nullable=False)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("bool", pa.bool_()),
        ("uint16?", pa.uint16()),
        ("bfloat16", pa.float32()),
        ("str", pa.string()),
        ("json?", pa.string()),
        ("msgpack", pa.binary()),
        ("jpeg", pa.binary()),
        ("uint16[2048]", pa.list_(pa.uint16(), 2048)),
        ("float32[*,3]", pa.list_(pa.list_(pa.float32(), 3))),
        ("int8[2,*]", pa.list_(pa.list_(pa.int8()), 2)),
        ("str[*]", pa.list_(pa.string())),
    ],
)
def test_each_column_type_has_an_arrow_type(given: str, expected: Any) -> None:
    assert arrow_type(parse_type(given)) == expected


def test_a_type_of_a_later_version_has_no_arrow_type() -> None:
    with pytest.raises(UsageError, match="Arrow has no type for 'video'"):
        arrow_type(parse_type("video"))


def test_columns_with_nulls_get_a_question_mark() -> None:
    table = pa.table({"a": [1, 2], "b": pa.chunked_array([["x"], [None]]), "c": [[1.0], None]})
    assert arrow_columns(table) == {"a": "int64", "b": "str?", "c": "float64[*]?"}
