"""Columns become Arrow tables with the same values, whatever the bytes are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mdsx
from mdsx.errors import CorruptError, UsageError
from mdsx.foreign.arrow import arrow_columns, arrow_type, to_table
from mdsx.format import Column, ColumnType, Encoder, JoinedValues, Schema, parse_type, value_decoder
from tests.foreign.arrow.kinds import KINDS


def joined(values: list[bytes | None]) -> JoinedValues:
    null = np.array([value is None for value in values])
    sizes = [len(value or b"") for value in values]
    edges = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
    return JoinedValues(b"".join(value or b"" for value in values), edges, null if null.any() else None)


def column(kind: str, values: Any) -> Any:
    table = to_table(Schema.from_columns({"x": kind}), {"x": values})
    table.validate(full=True)
    return table["x"]


def stored(kind: str, values: list[Any]) -> Any:
    """Return the values as a column of their type is stored: as an array, or joined."""
    encoder = Encoder(Schema.from_columns({"x": kind}))
    pieces = encoder.column(0, values)
    if isinstance(pieces, np.ndarray):
        return pieces
    return joined(
        [None if value is None and kind.endswith("?") else piece for value, piece in zip(values, pieces, strict=True)]
    )


@given(st.data())
@pytest.mark.parametrize("name", sorted(KINDS))
def test_arrow_has_the_values_that_were_written(name: str, data: st.DataObject) -> None:
    kind, _, value = KINDS[name]
    if data.draw(st.booleans()):
        kind, value = f"{kind}?", value | st.none()
    values = data.draw(st.lists(value, max_size=4))
    found = column(kind, stored(kind, values))
    assert found.type == arrow_type(parse_type(kind))
    if kind.startswith("msgpack"):
        return
    if kind.startswith("json"):
        texts = [
            [json.loads(text) for text in each] if isinstance(each, list) else each and json.loads(each)
            for each in found.to_pylist()
        ]
        assert texts == values
        return
    assert found.to_pylist() == values


@given(st.data())
@pytest.mark.parametrize(
    "kind", ["str", "str[*]?", "bytes[*]", "int16[*]", "bool[*,2]", "int64[2,*]", "int8?", "bool[2]?", "bfloat16[*]"]
)
def test_any_bytes_are_read_or_refused_as_without_arrow(kind: str, data: st.DataObject) -> None:
    number = st.sampled_from([0, 1, 2, 3, 2**31, 2**32 - 1]).map(lambda value: value.to_bytes(4, "little"))
    value = st.lists(number | st.binary(max_size=3), max_size=5).map(b"".join)
    values = data.draw(st.lists(value | st.none() if kind.endswith("?") else value, max_size=3))
    decode = value_decoder(parse_type(kind), "x")
    try:
        expected = [None if value is None else decode(memoryview(value)) for value in values]
    except CorruptError:
        with pytest.raises(CorruptError):
            column(kind, joined(values))
        return
    found = column(kind, joined(values)).to_pylist()
    assert repr(found) == repr(
        [np.asarray(each).tolist() if isinstance(each, np.ndarray | np.generic) else each for each in expected]
    )


def test_arrays_of_a_fixed_size_keep_their_memory() -> None:
    array = np.arange(24, dtype=np.uint16).reshape(4, 2, 3)
    found = column("uint16[2,3]", array)
    assert found.chunk(0).buffers()[-1].address == array.ctypes.data
    assert found.to_pylist() == array.tolist()


def test_bfloat16_becomes_float32_and_bool_bits() -> None:
    assert column("bfloat16[2]", np.array([[0x3F80, 0x4000]], np.uint16)).to_pylist() == [[1.0, 2.0]]
    assert column("bool", np.array([1, 0], np.uint8)).to_pylist() == [True, False]


def test_a_column_without_an_arrow_type_is_named() -> None:
    with pytest.raises(UsageError, match="Arrow has no type for 'video'"):
        to_table(Schema.from_json(b'[{"name":"x","type":"video"}]'), {"x": joined([b""])})


@pytest.fixture(scope="module")
def table() -> Any:
    return pa.table(
        {
            "id": np.arange(1000),
            "text": [f"täxt {number}" for number in range(1000)],
            "maybe": [None if number % 3 else "yes" for number in range(1000)],
            "vector": [[number / 2] * (number % 4) for number in range(1000)],
            "tags": [["a", str(number)] for number in range(1000)],
            "box": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(4000, dtype=np.float32)), 4),
        }
    )


def test_a_table_comes_back_equal(table: Any, tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path, arrow_columns(table), shard_size=4096) as out:
        out.write_batch(table)
    dataset = mdsx.Dataset(tmp_path)
    assert dataset.take(range(1000), as_arrow=True).equals(table)
    places = np.random.default_rng(0).integers(-1000, 1000, 50)
    assert dataset.take(places, as_arrow=True).equals(table.take(places % 1000).combine_chunks())
    assert dataset.take([], as_arrow=True).equals(table[:0])
    chosen = dataset.select_columns({"t": "text"}).take([7], as_arrow=True)
    assert chosen.to_pydict() == {"t": ["täxt 7"]}


def test_types_of_other_formats_become_what_arrow_finds() -> None:
    def column(decode: Any) -> Any:
        schema = Schema((Column("x", ColumnType("other.type", None, True, foreign=decode)),))
        return to_table(schema, {"x": joined([b"7", None, b"12"])})["x"]

    assert column(lambda data: int(bytes(data))).to_pylist() == [7, None, 12]
    assert column(lambda data: np.frombuffer(data, np.uint8)).type == pa.list_(pa.uint8())
    for wrong in (lambda data: object(), lambda data: 2**70):
        with pytest.raises(UsageError, match=re.escape("Arrow has no type for 'other.type?'")):
            column(wrong)


def test_a_damaged_value_is_named(tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path, {"x": "str"}) as out:
        out._encoder = Encoder(Schema.from_columns({"x": "bytes"}))  # a writer that does not check
        out.write_batch({"x": [b"a", b"\xff"]})
    with pytest.raises(CorruptError, match="not UTF-8") as caught:
        mdsx.Dataset(tmp_path).take([0, 1], as_arrow=True)
    assert caught.value.place == "sample 1, column 'x'"
