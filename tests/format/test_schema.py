"""Column types, the schema and the row layout."""

from __future__ import annotations

import pickle
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdsx.errors import CorruptError, FormatError, UsageError
from mdsx.format import BASES, ColumnType, Schema, parse_type

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
SCALARS = ["bool", *INTEGERS, "float16", "bfloat16", "float32", "float64"]
OBJECTS = ["bytes", "str", "json", "msgpack", "jpeg", "png"]

dimensions = st.one_of(st.none(), st.integers(0, 9))
types = st.one_of(
    st.builds(
        ColumnType, st.sampled_from(SCALARS), st.lists(dimensions, min_size=1, max_size=8).map(tuple), st.booleans()
    ),
    st.builds(ColumnType, st.sampled_from([*SCALARS, *OBJECTS]), st.none(), st.booleans()),
    st.builds(ColumnType, st.sampled_from(OBJECTS), st.just((None,)), st.booleans()),
    st.builds(
        ColumnType, st.just("later.type-2"), st.lists(dimensions, min_size=1, max_size=8).map(tuple), st.just(True)
    ),
)


@given(types)
def test_a_type_has_one_text(kind: ColumnType) -> None:
    assert parse_type(str(kind)) == kind


@pytest.mark.parametrize(
    "text",
    [
        *("", "?", "[2]", " int8", "int8 ", "int8\n", "8int", "int8??", "int8?[2]", "int8[2]x", "str[2]", "a/b", "zé"),
        *("int8[]", "int8[2,]", "int8[,2]", "int8[+2]", "int8[1 ]", "int8[00]", "int8[2]]", "int8[[2]]", "int8[**]"),
        *("int8[²]", "int8[4294967296]", "int8[" + "9" * 5000 + "]", "int8[1,1,1,1,1,1,1,1,1]"),
        *("str[*,*]", "str[*]??", "later[", "later[02]", "later[2147483648]", "later[1,1,1,1,1,1,1,1,1]"),
    ],
)
def test_invalid_types_are_refused(text: str) -> None:
    with pytest.raises(CorruptError, match="is not a column type"):
        parse_type(text)


def test_scalars_and_unstarred_arrays_are_fixed_size() -> None:
    assert all(parse_type(base).fixed_size for base in SCALARS)
    assert parse_type("float32[3,224,224]").fixed_size
    variable = ["int64?", "uint16[4]?", "uint16[*]", "float32[*,3]", *OBJECTS, "str[*]", "video", "video[2]"]
    assert not any(parse_type(text).fixed_size for text in variable)


def test_an_unknown_base_is_variable_size_and_opaque() -> None:
    for text in ("tiff", "Geo.point-2?", "int7", "float8[4]", "text_2[*,3]?", "later[2147483647]"):
        assert not parse_type(text).known
        assert not parse_type(text).fixed_size


def test_only_other_bases_than_scalars_make_lists() -> None:
    assert all(parse_type(f"{base}[*]?").is_list for base in OBJECTS)
    assert not any(parse_type(text).is_list for text in ("uint8[*]", "str", "later[*]"))


def test_a_pickled_type_keeps_the_decoder_of_another_format() -> None:
    found = pickle.loads(pickle.dumps(ColumnType("theirs", (2, None), True, bytes)))
    assert (str(found), found.foreign) == ("theirs[2,*]?", bytes)


def test_the_schema_is_json_without_spaces_and_escapes() -> None:
    schema = Schema.from_columns({"tokens": "uint16[2048]", "é/文": "str?"})
    assert schema.json.decode() == '[{"name":"tokens","type":"uint16[2048]"},{"name":"é/文","type":"str?"}]'
    assert Schema.from_json(schema.json) == schema
    assert pickle.loads(pickle.dumps(schema)) == schema


def test_a_row_is_checksum_start_lengths_and_aligned_values() -> None:
    schema = Schema.from_columns(
        {"a": "uint8", "b": "str", "c": "float64", "d": "int8?", "e": "bool[3]", "f": "uint16[0]"}
    )
    row = schema.row_dtype
    assert row.names is not None
    assert {name: row.fields[name][1] for name in row.names if row.fields} == {
        "checksum": 0,
        "start": 8,
        "lengths": 16,  # b and d have lengths
        "column0": 24,
        "column2": 32,
        "column4": 40,
        "column5": 44,  # aligned to 2, though it has no bytes
    }
    assert (schema.row_size, row.itemsize, schema.variable, schema.fixed) == (48, 48, (1, 3), (0, 2, 4, 5))
    assert schema.rows_offset == -(-(64 + len(schema.json)) // 64) * 64


def test_fixed_size_columns_need_no_start_or_lengths() -> None:
    schema = Schema.from_columns({"a": "bool", "b": "bfloat16[2]"})
    assert schema.row_dtype.names == ("checksum", "column0", "column1")
    assert schema.row_size == struct.calcsize("<QB1xHH2x")
    assert schema.row_dtype["column1"] == np.dtype(("<u2", (2,)))


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({}, "there is no column"),
        ({"": "str"}, "has 0 bytes"),
        ({"é" * 128: "str"}, "has 256 bytes"),
        ({'a"': "str"}, "holds the character"),
        ({"a\\": "str"}, "holds the character"),
        ({"a\n": "str"}, "holds the character"),
        ({"\ud800": "str"}, "surrogate"),
        ({"a": "int7"}, "unknown column type 'int7'"),
        ({"a": "int7[2]"}, r"unknown column type 'int7\[2\]'"),
        ({"a": "str[2]"}, "a list has one dimension"),
        ({"a": "list[str]"}, r"lists like str\[\*\]"),
        ({"a": "uint8[2147483640]"}, "not below 2\\^31"),
        ({1: "str"}, "name must be a str"),
        ({"a": int}, "type must be a str"),
        ([("a", "str")], "must be a mapping"),
        ({f"{number:0250}": "str" for number in range(5000)}, "more than 1 MiB"),
    ],
)
def test_invalid_columns_raise_usage_error(columns: object, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        Schema.from_columns(columns)  # type: ignore[arg-type]


def test_an_error_of_a_column_names_it_and_the_way_out() -> None:
    types = f"types: {', '.join(BASES)}; arrays like uint16[2048] or float32[*,3]; lists like str[*]; "
    types += "? after nullable ones"
    cases: list[tuple[object, str, str | None]] = [
        ("unit8", "unknown column type 'unit8'", None),
        ("ndarray:uint16", "'ndarray:uint16' is not a column type", None),
        (int, "a column's type must be a str", "<class 'int'>"),
    ]
    for (asked, message, found), meant in zip(cases, ("uint8", "uint16[*]", "int64"), strict=True):
        with pytest.raises(UsageError) as caught:
            Schema.from_columns({"a": asked})  # type: ignore[dict-item]
        error = caught.value
        assert error.message.startswith(message)
        assert (error.place, error.found) == ("column 'a'", found)
        assert error.hint == f"did you mean {meant!r}? {types}"


def test_only_a_writer_without_columns_is_told_to_give_one() -> None:
    for columns, hint in (({}, 'give at least one, like {"tokens": "uint16[*]"}'), ({"": "str"}, None)):
        with pytest.raises(UsageError) as asked:
            Schema.from_columns(columns)
        assert (asked.value.file, asked.value.place, asked.value.hint) == (None, "schema", hint)
    with pytest.raises(CorruptError) as stored:
        Schema.of([], file="x")
    assert (stored.value.file, stored.value.place, stored.value.hint) == ("x", "schema", None)


def test_a_colon_stands_for_the_dot_of_a_type_of_a_package() -> None:
    assert Schema.from_columns({"a": "some:Type[*]"}).json == b'[{"name":"a","type":"some.Type[*]"}]'


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        ('[{"name":"a","type":"int8"},{"name":"a","type":"int8"}]', "schema", "column name 'a' is a duplicate"),
        ('[{"name":"' + "a" * 81 + '","type":"?"}]', "schema, column " + repr("a" * 80), "is not a column type"),
        ('[{"name":"a","type":"int8"},{"name":"b"}]', "schema, character 28", "not canonical JSON"),
        ("", "schema, character 1", "not canonical JSON"),
    ],
)
def test_an_error_of_a_stored_schema_says_where_it_is(text: str, place: str, says: str) -> None:
    with pytest.raises(CorruptError, match=says) as caught:
        Schema.from_json(text.encode(), file="x")
    assert (caught.value.file, caught.value.place) == ("x", place)


def test_a_schema_that_is_not_canonical_is_shown_from_the_first_wrong_character() -> None:
    with pytest.raises(CorruptError, match="not canonical JSON") as caught:
        Schema.from_json(b'[{"name":"a","type":"int8"}, ' + b"x" * 50)
    assert caught.value.found == repr(" " + "x" * 39)
    assert str(caught.value.expected).startswith('[{"name":...,"type":...},...]')


def test_columns_are_chosen_under_new_names() -> None:
    schema = Schema.from_columns({"a": "int8", "b": "str", "c": "bool[2]"})
    expected = Schema.from_columns({"x": "bool[2]", "a": "int8", "y": "bool[2]"})
    assert schema.choose({"x": "c", "a": "a", "y": "c"}) == (expected, (2, 0, 2))
    with pytest.raises(UsageError, match="there is no such column") as missing:
        schema.choose({"a": "d" * 81})
    assert (missing.value.place, missing.value.expected) == ("column " + repr("d" * 80), "a, b, c")
    with pytest.raises(UsageError, match="has 0 bytes") as unnamed:
        schema.choose({"": "a"})
    assert (unnamed.value.file, unnamed.value.place) == (None, "schema")


def test_the_largest_row_and_the_longest_name_are_allowed() -> None:
    assert Schema.from_columns({"é" * 127 + "x": "uint8[2147483632]"}).row_size == 2**31 - 8


def test_the_largest_schema_is_allowed() -> None:
    columns = {f"{number:0255}": "int8" for number in range(3731)}
    left = 2**20 - len(Schema.from_columns(columns).json) - len(',{"name":"","type":"int8"}')
    assert len(Schema.from_columns({**columns, "x" * left: "int8"}).json) == 2**20
    with pytest.raises(UsageError, match="it has 1048577 bytes, more than 1 MiB"):
        Schema.from_columns({**columns, "x" * (left + 1): "int8"})


@given(st.binary(max_size=100) | st.text(alphabet='[]{}",:nametypi8*?', max_size=60).map(str.encode))
def test_any_bytes_are_read_or_raise_format_error(data: bytes) -> None:
    try:
        schema = Schema.from_json(data)
    except FormatError:
        return
    assert schema.json == data


@pytest.mark.parametrize(
    "text", ["uint8[0,2147483647]", "uint8[2147483647]?", "uint8[*,0,2147483647]", "uint64[0,2,99]"]
)
def test_dimensions_may_span_up_to_2_31(text: str) -> None:
    schema = Schema.from_columns({"a": text})
    assert schema.row_dtype.itemsize == schema.row_size


@pytest.mark.parametrize("text", ["uint8[0,2147483648]", "uint16[1073741824]?", "uint8[*,0,65536,32768]"])
def test_a_dimension_of_0_does_not_lift_the_limit(text: str) -> None:
    with pytest.raises(CorruptError, match=r"dimensions span 2\^31"):
        parse_type(text)
