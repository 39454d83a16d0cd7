"""Values come back in the Arrow types that they had before they were stored."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import mdsx
from mdsx import UsageError
from mdsx.foreign.arrow import can_restore, restore
from mdsx.format import parse_type

FILE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
NESTED = pa.struct(
    [
        ("a", pa.float64()),
        ("b", pa.list_(pa.struct([("c", pa.decimal128(5, 1)), ("t", pa.timestamp("us"))]))),
        ("m", pa.map_(pa.string(), pa.int32())),
    ]
)
NESTED_VALUES: Any = [
    {"a": 1, "b": [{"c": Decimal("1.0"), "t": dt.datetime(2020, 1, 1)}], "m": [("x", 1)]},
    None,
    {"a": None, "b": [], "m": None},
]
TENSORS = pa.array([[1, 2, 3, 4, 5, 6], None, [7] * 6], pa.list_(pa.int32(), 6))
NUMBERS = [
    pa.timestamp("us", "Europe/Paris"), pa.timestamp("ns"), pa.date32(), pa.time32("ms"), pa.time64("ns"),
    pa.duration("s"), pa.float16(), pa.uint8(),
]  # fmt: skip
ARRAYS = {
    **{str(type): pa.array([1, None, 3], type) for type in NUMBERS},
    "date64": pa.array([86400000, None, 0], pa.date64()),
    "decimal": pa.array([Decimal("1.10"), None, Decimal(-7)], pa.decimal128(10, 2)),
    "decimal256": pa.array([Decimal("1.10"), None, Decimal(-7)], pa.decimal256(50, 4)),
    "dictionary": pa.array(["a", None, "b"]).cast(pa.dictionary(pa.int8(), pa.string(), ordered=True)),
    "dictionary of timestamps": pa.array([1, None, 3], pa.timestamp("us")).dictionary_encode(),
    "large string": pa.array(["a", None, "b"], pa.large_string()),
    "fixed binary": pa.array([b"ab", None, b"cd"], pa.binary(2)),
    "list of timestamps": pa.array([[1, 2], None, []], pa.list_(pa.timestamp("ms"))),
    "list of decimals": pa.array([[Decimal("1.5")], None, []], pa.list_(pa.decimal128(5, 1))),
    "list of dictionary": pa.array([["a"], None, []], pa.list_(pa.dictionary(pa.int32(), pa.string()))),
    "list of fixed binary": pa.array([[b"a" * 16], None, []], pa.list_(pa.binary(16))),
    "large list": pa.array([[1, 2], None, []], pa.large_list(pa.float32())),
    "list with a name": pa.array([[1, 2], None, []], pa.list_(pa.field("element", pa.int8()))),
    "fixed-size list": pa.array([[1.0, 2.0], None, [3.0, 4.0]], pa.list_(pa.float32(), 2)),
    "list of lists": pa.array([[[1], [2, 3]], None, []]),
    "struct": pa.array(NESTED_VALUES, NESTED),
    "struct with bytes": pa.array([{"x": b"\xff", "u": 2**63}, None, {"x": None, "u": 1}],
                                  pa.struct([("x", pa.binary()), ("u", pa.uint64())])),
    "map": pa.array([[(1, dt.date(2020, 1, 1))], None, []], pa.map_(pa.int32(), pa.date32())),
    "null": pa.nulls(3),
    "uuid": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"a" * 16, None, b"b" * 16], pa.binary(16))),
    "json": pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a":1}', None, "[]"])),
    "tensor": pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.int32(), [2, 3]), TENSORS),
    "permuted tensor": pa.ExtensionArray.from_storage(
        pa.fixed_shape_tensor(pa.int32(), [2, 3], permutation=[1, 0]), TENSORS.drop_null()
    ),
    "file": pa.array([{"bytes": b"x", "path": None}, None, {"bytes": b"", "path": None}], FILE),
    "list of files": pa.array([[{"bytes": b"x", "path": None}], None, []], pa.list_(FILE)),
}  # fmt: skip


@pytest.mark.parametrize("name", ARRAYS)
def test_values_get_their_arrow_type_back(tmp_path: Path, name: str) -> None:
    given = ARRAYS[name]
    table = pa.table({"x": given})
    columns = mdsx.arrow_columns(table)
    with mdsx.Writer(tmp_path / "out", columns) as out:
        out.write_batch(table)
    (stored,) = mdsx.Dataset(tmp_path / "out").take(range(len(given)), as_arrow=True)["x"].chunks
    kind = parse_type(columns["x"])
    assert can_restore(kind, given.type)
    found = restore(stored, kind, given.type)
    found.validate(full=True)
    assert found.type == given.type
    assert found.equals(given)


def test_only_types_that_can_have_held_the_values_are_restored() -> None:
    fits = {
        ("str", pa.list_(pa.int32())): False,
        ("float32", pa.string()): False,
        ("int64", pa.null()): False,
        ("int64[*]", pa.int64()): False,
        ("str", pa.month_day_nano_interval()): False,
        ("jpeg", pa.binary()): True,
        ("json", pa.string()): True,
        ("uint16[*]", pa.list_(pa.int64())): True,
    }
    assert {key: can_restore(parse_type(key[0]), key[1]) for key in fits} == fits


def test_a_value_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(UsageError, match="do not fit Arrow's decimal"):
        restore(pa.array(["x"]), parse_type("str"), pa.decimal128(5, 1))
    with pytest.raises(UsageError, match="do not fit Arrow's struct"):
        restore(pa.array(['{"b":1}']), parse_type("json"), pa.struct([("a", pa.decimal128(5, 1))]))
