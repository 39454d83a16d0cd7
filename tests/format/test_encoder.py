"""Values that the writer accepts, and their bytes."""

from __future__ import annotations

import io
import math
import re
import resource
import struct
from array import array
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from enum import IntEnum
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mdsx.errors import SampleError
from mdsx.format.encode import Encoder
from mdsx.format.schema import Schema

torch = pytest.importorskip("torch")

RANGES = {f"int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)}
RANGES |= {f"uint{bits}": (0, 2**bits - 1) for bits in (8, 16, 32, 64)}
FLOATS = {"float16": (11, 15), "bfloat16": (8, 127), "float32": (24, 127), "float64": (53, 1023)}
"""Bits of the significand, largest exponent."""


class Series:
    """Numbers of another library, such as pandas."""

    def __array__(self, *_: object) -> Any:
        return np.array([1, 2])


class Colour(IntEnum):
    RED = 3


def encode(kind: str, value: object) -> bytes:
    """Return the bytes of one value of a column of type `kind`."""
    values, size = Encoder(Schema.from_columns({"x": kind})).sample({"x": value})
    assert size == len(values[0])
    return values[0]


def refusal(kind: str, value: object) -> SampleError:
    with pytest.raises(SampleError) as caught:
        encode(kind, value)
    return caught.value


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("int16", -2, b"\xfe\xff"),
        ("int16", True, b"\1\0"),
        ("int16", Colour.RED, b"\3\0"),
        ("int16", np.int64(5), b"\5\0"),
        ("int16", np.array(5, ">i8"), b"\5\0"),
        ("int16", torch.tensor(5), b"\5\0"),
        ("int16", np.bool_(True), b"\1\0"),
        ("uint64", 2**64 - 1, b"\xff" * 8),
        ("bool", True, b"\1"),
        ("bool", 0, b"\0"),
        ("bool", np.bool_(False), b"\0"),
        ("bool", np.uint8(1), b"\1"),
        ("float32", 0.1, struct.pack("<f", 0.1)),
        ("float32", np.float64(0.1), struct.pack("<f", 0.1)),  # a subclass of Python's float
        ("float32", np.float16(0.5), struct.pack("<f", 0.5)),
        ("float32", 3, struct.pack("<f", 3)),
        ("float32", True, struct.pack("<f", 1)),
        ("float32", 2**100, struct.pack("<f", 2.0**100)),
        ("float32", -math.inf, struct.pack("<f", -math.inf)),
        ("float64", np.float32(0.1), struct.pack("<d", float(np.float32(0.1)))),
        ("bfloat16", 1.0, b"\x80\x3f"),
        ("bfloat16", -0.0, b"\x00\x80"),
        ("bfloat16", math.nan, b"\xc0\x7f"),
        ("bfloat16", torch.tensor(1.0, dtype=torch.bfloat16), b"\x80\x3f"),
        ("bfloat16", 3 * 2.0**-134, b"\2\0"),  # between two numbers, of which the second is even
        ("uint16[2,2]", [[1, 2], [3, 4]], struct.pack("<4H", 1, 2, 3, 4)),
        ("uint16[3]", (1, 2, True), struct.pack("<3H", 1, 2, 1)),
        ("uint16[2]", array("q", [1, 2]), struct.pack("<2H", 1, 2)),
        ("uint16[2]", memoryview(array("H", [1, 2])), struct.pack("<2H", 1, 2)),
        ("uint16[2]", np.array([1, 2], object), struct.pack("<2H", 1, 2)),
        ("uint16[2]", Series(), struct.pack("<2H", 1, 2)),
        ("uint8[1,1,1,1,1,1,1,1]", [[[[[[[[np.uint8(1)]]]]]]]], b"\1"),
        ("uint16[2]", [np.int8(1), torch.tensor(2)], struct.pack("<2H", 1, 2)),
        ("uint16[2,2]", [np.array([1, 2]), [3, 4]], struct.pack("<4H", 1, 2, 3, 4)),
        ("uint16[0]", [], b""),
        ("uint16[2,2]", np.array([[1, 2], [3, 4]], np.int64, order="F"), struct.pack("<4H", 1, 2, 3, 4)),
        ("uint16[2]", np.array([1, 9, 2, 9], ">u2")[::2], struct.pack("<2H", 1, 2)),
        ("bool[3]", np.array([True, False, True]), b"\1\0\1"),
        ("bool[3]", [1, 0, True], b"\1\0\1"),
        ("bool[2]", np.array([0, 7], np.uint8).view(np.bool_), b"\0\1"),
        ("float32[2]", [0.1, 3], struct.pack("<2f", 0.1, 3)),
        ("float32[2]", [np.float64(0.1), 3], struct.pack("<2f", 0.1, 3)),
        ("float32[2]", np.array([1, 2**24]), struct.pack("<2f", 1, 2**24)),
        ("float32[2]", np.array([1, 2**62]), struct.pack("<2f", 1, 2**62)),
        ("float32[2]", torch.ones(2, requires_grad=True), struct.pack("<2f", 1, 1)),
        ("float32[2]", torch.ones(2, dtype=torch.bfloat16), struct.pack("<2f", 1, 1)),
        ("bfloat16[2]", torch.ones(2, dtype=torch.bfloat16), b"\x80\x3f" * 2),
        ("bfloat16[2]", [1.0, 256], b"\x80\x3f\x80\x43"),
        ("bfloat16[1]", np.array([-3]), b"\x40\xc0"),
        ("float8_e4m3fn[2]", np.array([-128, 3], np.int8), b"\xf0\x44"),  # int8 has no 128
        ("uint8[*]", [1, 2, 3], b"\3\0\0\0\1\2\3"),
        ("uint8[*]", [], b"\0\0\0\0"),
        ("uint8[*,2,*]", np.zeros((3, 2, 1), np.uint8), b"\3\0\0\0\1\0\0\0" + bytes(6)),
        ("uint8[*,2]", [], b"\0\0\0\0"),  # no rows of two
        ("uint8[0,2]", [], b""),
        ("uint8[*,*]", np.zeros((0, 2**31 - 1), np.uint8), b"\0\0\0\0\xff\xff\xff\x7f"),
        ("int8?", 5, b"\5"),
        ("uint8[2]?", [1, 2], b"\1\2"),
        ("str[*]", ["a", "éf"], b"\2\0\0\0\1\0\0\0\3\0\0\0a\xc3\xa9f"),
        ("str[*]", (), b"\0\0\0\0"),
        ("str[*]", np.array(["a", "b"]), b"\2\0\0\0\1\0\0\0\1\0\0\0ab"),
        ("str[*]?", np.array(["a"], object), b"\1\0\0\0\1\0\0\0a"),
        ("bytes[*]", [b"", bytearray(b"x")], b"\2\0\0\0\0\0\0\0\1\0\0\0x"),
        ("bytes[*]", np.array([[1, 2], [3, 4]], np.uint8), b"\2\0\0\0\2\0\0\0\2\0\0\0\1\2\3\4"),
        ("jpeg[*]", [b"\xff\xd8\xff"], b"\1\0\0\0\3\0\0\0\xff\xd8\xff"),
        ("json[*]", [None, [1]], b"\2\0\0\0\4\0\0\0\3\0\0\0null[1]"),
        ("msgpack[*]", [None, 1], b"\2\0\0\0\1\0\0\0\1\0\0\0\xc0\1"),
        ("bytes", b"ab", b"ab"),
        ("bytes", bytearray(b"ab"), b"ab"),
        ("bytes", memoryview(b"axbx")[::2], b"ab"),
        ("bytes", memoryview(b"ab").cast("c"), b"ab"),
        ("bytes", np.frombuffer(b"ab", np.uint8), b"ab"),
        ("bytes", torch.tensor([97, 98], dtype=torch.uint8), b"ab"),
        ("bytes", b"", b""),
        ("str", "aé\0", b"a\xc3\xa9\0"),
        ("str", np.str_("a"), b"a"),
        ("jpeg", b"\xff\xd8\xff\xe0...", b"\xff\xd8\xff\xe0..."),
        ("png", b"\x89PNG\r\n\x1a\n...", b"\x89PNG\r\n\x1a\n..."),
        ("json", {"b": [1, 2.5, None, True], "a": "é\n"}, '{"b":[1,2.5,null,true],"a":"é\\n"}'.encode()),
        ("json", (1, 2**70), b"[1,1180591620717411303424]"),
        ("json", None, b"null"),
        ("msgpack", {"b": b"x", "a": "x", 3: -1}, b"\x83\xa1b\xc4\x01x\xa1a\xa1x\x03\xff"),
        ("msgpack", 1.5, b"\xcb" + struct.pack(">d", 1.5)),
        ("msgpack", None, b"\xc0"),
        ("msgpack", msgpack.Timestamp(5, 0), b"\xd6\xff\0\0\0\5"),
        ("msgpack", datetime.fromtimestamp(5, UTC), b"\xd6\xff\0\0\0\5"),
        ("msgpack", {"t": msgpack.Timestamp(5, 0)}, b"\x81\xa1t\xd6\xff\0\0\0\5"),
        ("msgpack", b"\xd4\xc7", b"\xc4\2\xd4\xc7"),  # looks like an extension type, but is not one
    ],
)
def test_values_become_the_specified_bytes(kind: str, value: object, expected: bytes) -> None:
    assert encode(kind, value) == expected


@pytest.mark.parametrize(
    ("kind", "value", "expected", "found"),
    [
        ("str[*]", "abc", "a list or another sequence", "str 'abc'"),
        ("str[*]", b"abc", "a list or another sequence", "bytes b'abc'"),
        ("str[*]", {"a": 1}, "a list or another sequence", "dict"),
        ("str[*]", {"a"}, "a list or another sequence", "set"),
        ("str[*]", iter(["a"]), "a list or another sequence", "list_iterator"),
        ("str[*]", np.array("a"), "a list or another sequence", "of shape []"),
        ("str[*]", 3, "a list or another sequence", "int 3"),
        ("str[*]", None, "a list or another sequence", "None"),
        ("str[*]?", ["a", None], "str", "None at [1]"),
        ("str[*]", ["a", ["b"]], "str", "list at [1]"),
        ("png[*]", [b"\x89PNG\r\n\x1a\n", b"no"], "png data", "b'no' at [1]"),
        ("json[*]", [1, math.nan], "a JSON value", "at [1]"),
        ("int8", 128, "-128 to 127", "128"),
        ("uint8", -1, "0 to 255", "-1"),
        ("uint64", 2**64, "0 to 18446744073709551615", str(2**64)),
        ("int64", 10**400, "-9223372036854775808 to", "an integer of 1329 bits"),
        ("int64", 1.0, "one int64", "float 1.0"),
        ("int64", np.float32(1), "int64 or other integers", "float32"),
        ("int64", "1", "one int64", "str '1'"),
        ("int64", np.array([1]), "one int64", "int64 of shape [1]"),
        ("int64", torch.tensor([1]), "one int64", "torch.int64 of shape [1]"),
        ("int64", 1 + 0j, "one int64", "complex"),
        ("int64", io.BytesIO(b"1"), "one int64", "BytesIO"),
        ("int64", np.datetime64(5, "s"), "int64 or other integers", "datetime64"),
        ("bool", 2, "0 to 1", "2"),
        ("bool", 1.0, "one bool", "float 1.0"),
        ("float32", 2**24 + 1, "an integer that float32 holds exactly", "16777217"),
        ("float16", 65536, "an integer that float16 holds exactly", "65536"),
        ("float64", 10**400, "an integer that float64 holds exactly", "an integer of 1329 bits"),
        ("float32", 1e39, "finite as float32", "1e+39"),
        ("float16", 65520.0, "finite as float16", "65520.0"),
        ("bfloat16", 3.4e38, "finite as bfloat16", "3.4e+38"),
        ("float32", np.array(1.0), "float32, a narrower float", "float64"),  # an array, so its dtype counts
        ("float16", np.float32(1), "float16, a narrower float", "float32"),
        ("bfloat16", np.float16(1), "bfloat16, a narrower float", "float16"),
        ("float16", torch.tensor(1.0, dtype=torch.bfloat16), "float16, a narrower float", "bfloat16"),
        ("float64", np.longdouble(1), "float64, a narrower float", np.dtype(np.longdouble).name),
        ("uint16[4]", [1, 2, 3, 70000], "0 to 65535", "70000 at [3]"),
        ("uint16[2,2]", [[1, 2], [-3, 4]], "0 to 65535", "-3 at [1, 0]"),
        ("uint16[2,2]", np.array([[1, 2], [3, 70000]]), "0 to 65535", "70000 at [1, 1]"),
        ("uint16[2,2]", [[1, 2], [3]], "items of one shape", "list of shapes [[1], [2]]"),
        ("uint16[2]", [1, 2.0], "one uint16", "float 2.0 at [1]"),
        ("uint16[2]", np.zeros(2), "uint16 or other integers", "float64 of shape [2]"),
        ("uint16[2]", [1, 2, 3], "shape [2]", "shape [3]"),
        ("uint16[1]", 1, "shape [1]", "shape []"),
        ("uint16[2]", [[1, 2]], "shape [2]", "shape [1, 2]"),
        ("uint16[*,2]", np.zeros((2, 3), int), "shape [*,2]", "shape [2, 3]"),
        ("uint16[*,*]", [], "shape [*,*]", "shape [0]"),  # of unknown width
        ("uint16[2,3]", [], "shape [2,3]", "shape [0]"),
        ("uint8[*,*]", np.zeros((0, 2**31), np.uint8), "span less than 2^31 bytes", "shape [0, 2147483648]"),
        ("uint16[*]", np.zeros((2, 2), int), "shape [*]", "shape [2, 2]"),
        ("uint16[*]", "ab", "one uint16", "str 'ab'"),
        ("uint16[*]", {1, 2}, "one uint16", "set"),
        ("float32[2]", np.array([1, 2**24 + 1]), "float32 holds exactly", "16777217 at [1]"),
        ("float32[2]", [1.5, 2**24 + 1], "float32 holds exactly", "16777217 at [1]"),
        ("float32[2]", [1.5, 1e39], "finite as float32", "1e+39 at [1]"),
        ("float32[2]", np.zeros(2), "float32, a narrower float", "float64"),
        ("bool[2]", np.array([0, 2]), "0 to 1", "2 at [1]"),
        ("bytes", "text", "bytes", "str 'text'"),
        ("bytes", 5, "bytes", "int 5"),
        ("bytes", np.zeros(2, np.int16), "uint8", "int16 of shape [2]"),
        ("bytes", np.zeros((2, 2), np.uint8), "uint8", "uint8 of shape [2, 2]"),
        ("str", b"text", "str", "bytes b'text'"),
        ("str", "\ud800", "without surrogates", r"'\ud800'"),
        ("jpeg", b"\x89PNG\r\n\x1a\n", "jpeg data", r"\x89PNG"),
        ("png", b"", "png data", "b''"),
        ("json", math.nan, "a JSON value", "Out of range float"),
        ("json", {"a": [-math.inf]}, "a JSON value", "Out of range float"),
        ("json", {"a": {1: 2}}, "keys that are str", "int 1"),
        ("json", b"x", "a JSON value", "bytes is not JSON serializable"),
        ("json", ["\udc00"], "a JSON value", "surrogates not allowed"),
        ("msgpack", (1, 2), "a msgpack value", "can not serialize 'tuple'"),
        ("msgpack", 2**64, "a msgpack value", "out of range"),
        ("msgpack", [msgpack.ExtType(5, b"x")], "no extension types", "extension type 5"),
        ("msgpack", datetime(2026, 1, 1), "a msgpack value", "tzinfo"),  # ambiguous
        ("msgpack", {float("nan"): 1, math.nan * 2: 2}, "maps whose keys differ", "NaN as two keys"),
        ("msgpack", np.int64(1), "a msgpack value", "numpy.int64"),
        ("msgpack", "\ud800", "a msgpack value", "surrogates not allowed"),
    ],
)
def test_other_values_raise_naming_column_and_type(kind: str, value: object, expected: str, found: str) -> None:
    error = refusal(kind, value)
    assert error.place == "column 'x'"
    assert expected in str(error.expected)
    assert found in str(error.found)


def test_an_unprintable_integer_raises() -> None:
    assert refusal("int64", 10**5000).found == "an integer of 16610 bits"
    assert "4300 digits" in str(refusal("json", 10**5000))


@pytest.mark.parametrize("value", [np.float32(1), {"a": [np.float64("nan")]}, float("inf"), {"a": np.float16(1)}])
def test_the_hint_about_nan_is_only_given_for_nan_and_infinities(value: object) -> None:
    not_finite = "nan" in repr(value) or "inf" in repr(value)
    with pytest.raises(SampleError, match="a JSON value") as raised:
        Encoder(Schema.from_columns({"x": "json"})).sample({"x": value})
    assert ("no NaN" in (raised.value.hint or "")) == not_finite


def test_a_circular_or_bottomless_json_value_is_refused() -> None:
    circle: list[object] = []
    circle.append(circle)
    assert "Circular" in str(refusal("json", circle))
    deep: object = 1
    for _ in range(100_000):
        deep = [deep]
    assert refusal("json", deep).expected == "a JSON value"
    assert refusal("msgpack", deep).expected == "a msgpack value"


@pytest.mark.parametrize("kind", ["int64", "uint16[2]", "float32[*]", "str", "bytes", "jpeg"])
def test_null_needs_a_nullable_column(kind: str) -> None:
    error = refusal(kind, None)
    assert error.found == "None"
    assert f"declare it as '{kind}?'" in str(error)


@given(st.sampled_from(sorted(RANGES)), st.integers(-(2**65), 2**65))
def test_integers_in_range_are_stored_exactly(base: str, value: int) -> None:
    low, high = RANGES[base]
    size = int(base.removeprefix("u").removeprefix("int")) // 8
    if low <= value <= high:
        expected = value.to_bytes(size, "little", signed=low < 0)
        assert encode(base, value) == encode(f"{base}[1]", [value]) == expected
        for given_dtype in ("i8", "u8", ">i8"):
            limits = np.iinfo(given_dtype)
            if limits.min <= value <= limits.max:
                assert encode(f"{base}[2]", np.array([value, 0], given_dtype)) == expected + bytes(size)
    else:
        refusal(base, value)
        refusal(f"{base}[1]", [value])
        if -(2**63) <= value < 2**63:
            refusal(f"{base}[2]", np.array([0, value]))


def decode_float(base: str, data: bytes) -> float:
    if base == "bfloat16":
        return float(struct.unpack("<f", b"\0\0" + data)[0])
    return float(struct.unpack({"float16": "<e", "float32": "<f", "float64": "<d"}[base], data)[0])


def nearest(base: str, value: Fraction) -> Fraction:
    """`value` rounded to the nearest of a float format without bounds, ties to even: by exact arithmetic."""
    bits, largest = FLOATS[base]
    if value == 0:
        return value
    exponent = math.floor(math.log2(abs(value.numerator)) - math.log2(value.denominator))
    while abs(value) >= Fraction(2) ** (exponent + 1):
        exponent += 1
    while abs(value) < Fraction(2) ** exponent:
        exponent -= 1
    step = Fraction(2) ** (max(exponent, 1 - largest) - bits + 1)
    return round(value / step) * step


@given(st.sampled_from(sorted(FLOATS)), st.floats(allow_nan=False, allow_infinity=False))
@example("bfloat16", 1.00390625000001)  # through float32 it would be rounded twice
@example("bfloat16", float.fromhex("0x1.feffffffffffp127"))
@example("bfloat16", 1e-40)
@example("float16", 65519.99)
@example("float32", 3.4028235677973362e38)
def test_python_floats_round_to_nearest_never_to_infinity(base: str, value: float) -> None:
    largest = FLOATS[base][1]
    expected = nearest(base, Fraction(value))
    if abs(expected) >= Fraction(2) ** (largest + 1):
        refusal(base, value)
        refusal(f"{base}[1]", [value])
    else:
        data = encode(base, value)
        assert Fraction(decode_float(base, data)) == expected
        assert math.copysign(1, decode_float(base, data)) == math.copysign(1, value)
        assert encode(f"{base}[1]", [value]) == data


@given(
    st.sampled_from(sorted(FLOATS)), st.integers(-70, 70).flatmap(lambda e: st.integers(-(2 ** abs(e)), 2 ** abs(e)))
)
@example("float16", 2047)
@example("float16", 65504)
@example("bfloat16", 2**64)
def test_a_float_column_takes_only_exact_integers(base: str, value: int) -> None:
    exact = nearest(base, Fraction(value)) == value and abs(value) < 2 ** (FLOATS[base][1] + 1)
    fits = -(2**63) <= value < 2**63
    if exact:
        data = encode(base, value)
        assert Fraction(decode_float(base, data)) == value
        assert encode(f"{base}[1]", [value]) == data
        if fits:
            assert encode(f"{base}[1]", np.array([value])) == data
    else:
        refusal(base, value)
        refusal(f"{base}[1]", [value])
        if fits:
            refusal(f"{base}[1]", np.array([value]))


def test_a_sample_has_exactly_the_columns_of_the_dataset() -> None:
    encoder = Encoder(Schema.from_columns({"a": "int8", "b": "str?"}))
    cases: list[tuple[dict[str, object], str]] = [
        ({"a": 1}, "'b': the sample lacks columns"),  # nullable ones too: give None for null
        ({"a": 1, "b": "x", "c": 2}, "'c': the sample has unknown columns"),
        ({"a": 1, "c": 2}, "'b': the sample lacks columns (found 'a', 'c'); 'c' is not a column: check the name"),
        ({}, "'a', 'b': the sample lacks columns"),
    ]
    for sample, message in cases:
        with pytest.raises(SampleError) as caught:
            encoder.sample(sample)
        assert str(caught.value).startswith(message)
    for other in ([1, "x"], None, "ab"):
        with pytest.raises(SampleError, match="must be a mapping of column names to values"):
            encoder.sample(other)  # type: ignore[arg-type]


def test_an_error_about_columns_shows_16_names_of_at_most_80_characters() -> None:
    encoder = Encoder(Schema.from_columns({"a": "int8"}))
    for count, rest in ((16, ""), (17, ", ...")):
        with pytest.raises(SampleError, match="unknown columns") as caught:
            encoder.sample({"a": 1, **{f"b{number}": 1 for number in range(count)}})
        assert caught.value.place == ", ".join(f"'b{number}'" for number in range(16)) + rest
        assert caught.value.expected == "'a'"
    with pytest.raises(SampleError, match="lacks columns") as caught:
        encoder.sample({"x" * 100: 1})
    assert caught.value.found == "'" + "x" * 79
    with pytest.raises(SampleError, match="lacks columns") as caught:
        encoder.batch({})
    assert (caught.value.found, caught.value.hint) == ("none", None)


@pytest.fixture
def no_room_for_text() -> Iterator[None]:
    """Of a failed test, pytest would show 4 GiB of bytes as 16 GiB of text."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + 13 * 2**30, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.mark.usefixtures("no_room_for_text")
def test_a_value_as_long_as_the_null_mark_raises() -> None:
    huge = bytes(2**32 - 1)  # untouched memory is not allocated
    assert refusal("bytes", huge).found == 2**32 - 1
    encoder = Encoder(Schema.from_columns({"x": "bytes"}))
    with pytest.raises(SampleError, match="a value is too large"):
        encoder.batch({"x": [b"", huge]})
    encoder.sample({"x": bytes(2**32 - 2)})
    error = refusal("bytes[*]", [b"", bytes(2**32)])
    assert (error.expected, error.found) == ("fewer than 4294967295 bytes", 4 + 2 * 4 + 2**32)


def test_later_changes_of_a_value_change_no_encoded_bytes() -> None:
    encoder = Encoder(Schema.from_columns({"a": "uint8[2]", "b": "bytes", "c": "uint8[*]", "d": "json"}))
    sample: dict[str, Any] = {"a": np.ones(2, "u1"), "b": bytearray(b"bb"), "c": np.ones(1, "u1"), "d": [1]}
    values, _ = encoder.sample(sample)
    for value in sample.values():
        value[0] = 0
    assert values == [b"\1\1", b"bb", b"\1\0\0\0\1", b"[1]"]


COLUMNS = {
    "a": "int64",
    "b": "str",
    "c": "uint16[2]",
    "d": "float32[*]?",
    "e": "bool",
    "f": "bfloat16[2]?",
    "g": "json?",
    "h": "int16?",
    "i": "bytes",
}
SAMPLES = st.fixed_dictionaries(
    {
        "a": st.integers(-(2**63), 2**63 - 1),
        "b": st.text(max_size=5),
        "c": st.lists(st.integers(0, 65535), min_size=2, max_size=2),
        "d": st.none() | st.lists(st.floats(width=32), max_size=3),
        "e": st.booleans(),
        "f": st.none() | st.lists(st.floats(width=16), min_size=2, max_size=2),
        "g": st.none() | st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
        "h": st.none() | st.integers(-(2**15), 2**15 - 1),
        "i": st.binary(max_size=5),
    }
)


@given(st.lists(SAMPLES, min_size=1, max_size=5))
def test_a_batch_is_encoded_as_its_samples_are(samples: list[dict[str, Any]]) -> None:
    encoder = Encoder(Schema.from_columns(COLUMNS))
    one_by_one = encoder.gather([value for sample in samples for value in encoder.sample(sample)[0]])
    batch = encoder.batch({name: [sample[name] for sample in samples] for name in COLUMNS})
    assert batch.samples == one_by_one.samples == len(samples)
    for ours, theirs in zip(batch.fixed, one_by_one.fixed, strict=True):
        assert ours.tobytes() == theirs.tobytes()
    assert batch.lengths.tolist() == one_by_one.lengths.tolist()
    assert batch.stops.tolist() == one_by_one.stops.tolist()
    assert batch.heap.data == one_by_one.heap.data


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("int64", np.arange(3, dtype=np.int32)),
        ("uint16[2]", np.arange(6).reshape(3, 2)),
        ("uint16[2]", torch.arange(6).reshape(3, 2)),
        ("uint16[2]", [torch.tensor([1, 2]), np.array([1, 2]), (1, 2)]),
        ("bfloat16[1]", torch.ones(3, 1, dtype=torch.bfloat16)),
        ("float32", (1.5, 2, np.float64(0.1))),
        ("float32[*]", np.ones((3, 4), np.float32)),
        ("int8?", np.arange(3)),
        ("int8?", np.array([1, None, 2])),
        ("int8[2]?", np.ones((3, 2), int)),
        ("str", np.array(["a", "bc", ""])),
        ("str", np.array(["a", "bc", ""], object)),
        ("bytes", np.zeros((3, 4), np.uint8)),
        ("bytes", np.array([b"a", b"b", b"c"])),
    ],
)
def test_a_batchs_column_is_an_array_tensor_or_sequence(kind: str, values: Any) -> None:
    encoder = Encoder(Schema.from_columns({"x": kind}))
    batch = encoder.batch({"x": values})
    one_by_one = encoder.gather([encoded for value in values for encoded in encoder.sample({"x": value})[0]])
    assert [items.tobytes() for items in batch.fixed] == [items.tobytes() for items in one_by_one.fixed]
    assert (bytes(batch.heap.data), batch.lengths.tolist()) == (
        bytes(one_by_one.heap.data),
        one_by_one.lengths.tolist(),
    )


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a": [1, 2, 300], "b": ["x", "y", "z"]}, "sample 2 of the batch, column 'a': does not fit uint8"),
        ({"a": np.array([1, 2, 300]), "b": ["x", "y", "z"]}, "sample 2 of the batch, column 'a': does not fit uint8"),
        ({"a": [1, 2], "b": ["x", None]}, "sample 1 of the batch, column 'b': does not fit str"),
        ({"a": [1, 2], "b": ["x"]}, "the columns of a batch have different lengths"),
        ({"a": [1, 2]}, "'b': the batch lacks columns"),
        ({"a": [1], "b": ["x"], "c": [2]}, "'c': the batch has unknown columns"),
        ({"a": 1, "b": ["x"]}, "column 'a': does not fit uint8"),
        ({"a": [1], "b": "x"}, "column 'b': does not fit str"),
        ({"a": [1], "b": {"x"}}, "column 'b': does not fit str"),
        ({"a": [1], "b": iter("x")}, "column 'b': does not fit str"),
        ({"a": np.array(1), "b": ["x"]}, "column 'a': does not fit uint8"),
        ({"a": np.ones((1, 1), int), "b": ["x"]}, "column 'a': does not fit uint8"),
        ({"a": np.ones(1), "b": ["x"]}, "column 'a': does not fit uint8"),
    ],
)
def test_an_invalid_batch_raises_naming_sample_and_column(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(SampleError) as caught:
        Encoder(Schema.from_columns({"a": "uint8", "b": "str"})).batch(columns)
    assert str(caught.value).startswith(message)


def test_columns_of_different_lengths_raise_with_each_length() -> None:
    with pytest.raises(SampleError, match="different lengths") as caught:
        Encoder(Schema.from_columns({"a": "uint8", "b": "str"})).batch({"a": [1, 2], "b": ["x"]})
    assert caught.value.found == {"a": 2, "b": 1}


def test_an_item_of_a_batch_is_named_by_its_sample_and_its_place_there() -> None:
    for values in ([[1, 2], [1, 300]], np.array([[1, 2], [1, 300]])):
        with pytest.raises(SampleError) as caught:
            Encoder(Schema.from_columns({"x": "uint8[2]"})).batch({"x": values})
        assert caught.value.place == "sample 1 of the batch, column 'x'"
        assert (caught.value.found, caught.value.expected) == ("300 at [1]", "0 to 255")


@pytest.mark.parametrize("kind", ["int64", "uint16[2]", "str", "float32[*]", "int8?"])
def test_a_batch_may_have_no_samples(kind: str) -> None:
    encoder = Encoder(Schema.from_columns({"x": kind}))
    assert encoder.batch({"x": []}).samples == 0
    if kind == "uint16[2]":
        assert encoder.batch({"x": np.zeros((0, 2), np.uint16)}).samples == 0


# --- masks


def masked(values: Any, mask: Any, **options: Any) -> Any:
    return np.ma.array(values, mask=mask, **options)


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        ("int64?", masked([1, 2, 3], [0, 1, 0]), [1, None, 3]),
        ("float32[2]?", masked([[1, 2], [3, 4]], [[0, 0], [1, 1]], dtype="f4"), [[1.0, 2.0], None]),
        ("str?", masked(["a", "b"], [0, 1]), ["a", None]),
        ("int64", masked([1, 2, 3], False), [1, 2, 3]),
    ],
)
def test_masked_values_of_a_batch_become_null(kind: str, values: Any, expected: list[Any]) -> None:
    encoder = Encoder(Schema.from_columns({"x": kind}))
    found, wanted = encoder.batch({"x": values}), encoder.batch({"x": expected})
    assert found.heap.data == wanted.heap.data
    assert [column.tolist() for column in found.fixed] == [column.tolist() for column in wanted.fixed]
    assert found.lengths.tolist() == wanted.lengths.tolist()


@pytest.mark.parametrize("value", [np.ma.masked, masked(5, True), masked([1, 2], True)])
def test_a_fully_masked_value_is_null(value: Any) -> None:
    for kind in ("int64?", "int64[2]?", "str?", "json?"):
        assert encode(kind, value) is encode(kind, None)


def test_an_empty_masked_array_is_not_null() -> None:
    assert encode("int64[*]?", masked([], [], dtype=int)) == bytes(4)


@pytest.mark.parametrize("kind", ["int64", "int64[2]", "int64[*]", "int64[2]?", "bool[2]", "float32[*]", "uint8[2]"])
def test_masked_values_are_never_stored(kind: str) -> None:
    value = masked([1, 2], [0, 1]) if "[" in kind else masked(2, True)
    error = refusal(kind, value)
    assert error.place == "column 'x'"
    assert "filled" in str(error)
    with pytest.raises(SampleError, match="sample 1 of the batch, column 'x'"):
        Encoder(Schema.from_columns({"x": kind})).batch(
            {"x": masked([value.data, value.data], [value.mask & 0, value.mask])}
        )


# --- values that are not numbers

NO_NUMBERS = {
    "a duration": np.timedelta64(5, "s"),
    "a duration in ns": np.timedelta64(5, "ns"),
    "no time": np.timedelta64("NaT"),
    "durations": np.array([1, 2], "m8[s]"),
    "a date": np.datetime64("2020-01-01"),
    "no date": np.datetime64("NaT"),
    "dates": np.array(["2020", "NaT"], "M8[D]"),
    "datetime": datetime(2020, 1, 1, tzinfo=UTC),
    "complex": 1j,
    "complexes": np.zeros(2, np.complex64),
    "structured": np.zeros(2, [("a", "i4"), ("b", "f4")]),
}
NO_DENSE_NUMBERS: dict[str, Callable[[], object]] = {
    "meta": lambda: torch.empty(2, device="meta"),
    "meta bfloat16": lambda: torch.empty(2, dtype=torch.bfloat16, device="meta"),
    "sparse": lambda: torch.eye(2).to_sparse(),
    "quantised": lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]),
    "mkldnn": lambda: torch.ones(2).to_mkldnn(),
    "conjugate": lambda: torch.zeros(2, dtype=torch.complex64).conj(),
}
NUMBERS = ["bool", "int64", "uint8", "float32", "float64", "int64[2]", "float32[*]", "bool[2]", "bfloat16[2]"]
OTHERS = ["bytes", "str", "jpeg", "str[*]", "bytes[*]"]


@pytest.mark.parametrize("value", NO_NUMBERS.values(), ids=NO_NUMBERS)
def test_values_that_are_not_numbers_raise_with_advice(value: object) -> None:
    for kind in NUMBERS:
        error = refusal(kind, value)
        assert error.place == "column 'x'"
        assert (error.hint or "").startswith("give")


def test_the_advice_for_dates_and_durations_converts_them() -> None:
    hint = {value: refusal("int64", value).hint for value in (np.timedelta64(5, "m"), np.datetime64("2020"))}
    assert hint == {
        np.timedelta64(5, "m"): "give a number in a unit, such as value / np.timedelta64(1, 's'); for NaT, None in a "
        "column with '?'",
        np.datetime64("2020"): "give a number in a unit, such as value.astype('datetime64[s]').astype('int64'), or a "
        "str; for NaT, None",
    }
    assert np.timedelta64(5, "m") / np.timedelta64(1, "s") == 300
    assert np.datetime64("2020").astype("datetime64[s]").astype("int64") == 1577836800


@pytest.mark.filterwarnings("ignore::UserWarning")  # PyTorch's, of prototypes
@pytest.mark.parametrize("make", NO_DENSE_NUMBERS.values(), ids=NO_DENSE_NUMBERS)
def test_a_tensor_without_dense_numbers_raises_with_advice(make: Callable[[], object]) -> None:
    for kind in NUMBERS:
        error = refusal(kind, make())
        assert error.place == "column 'x'"
        dtype, problem = str(error.found).split(": ", 1)
        assert dtype.startswith("torch.")
        assert re.fullmatch(r"\S+ .+", problem)  # PyTorch's words
        assert ".to_dense()" in str(error)


class Unreadable:
    """As a tensor of a backend with problems."""

    dtype = "torch.int8"

    def detach(self) -> None:
        raise RuntimeError("no data\nfrom a function in C++")

    cpu = detach


def test_only_the_first_line_of_a_tensors_error_is_shown() -> None:
    assert refusal("int8", Unreadable()).found == "torch.int8: no data"


bottomless: list[Any] = []
bottomless.append(bottomless)
released = memoryview(b"abc")
released.release()


class NoArray:
    def __array__(self, *_: object) -> None:
        raise RuntimeError("not now")


ODD: dict[str, Callable[[], object]] = {
    **{name: lambda value=value: value for name, value in NO_NUMBERS.items()},  # type: ignore[misc]  # its default
    **NO_DENSE_NUMBERS,
    "a list in itself": lambda: bottomless,
    "released memory": lambda: released,
    "no array": NoArray,
    "a module": lambda: np,
    "a null in objects": lambda: np.array([1, None], object),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("make", ODD.values(), ids=ODD)
def test_every_refused_value_raises_our_error(make: Callable[[], object]) -> None:
    value = make()
    for kind in NUMBERS + OTHERS:
        encoder = Encoder(Schema.from_columns({"x": kind}))
        for take in (encoder.sample, encoder.batch):
            with pytest.raises(SampleError, match="column 'x'"):
                take({"x": value})
