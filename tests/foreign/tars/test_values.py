"""A member's bytes are read by its column's type. Otherwise the error names tar, member, offset and a fitting type."""

from __future__ import annotations

import math
from typing import Any

import msgpack
import numpy as np
import pytest
from numpy.typing import ArrayLike

from mdsx import SampleError
from mdsx.foreign.tars.grouping import TarSample
from mdsx.foreign.tars.members import TarMember
from mdsx.foreign.tars.values import SampleReader, parse_npy
from tests.foreign.tars.tars import npy


def read(kind: str, data: bytes | None) -> Any:
    members = {"other": TarMember("1.other", 0)} | ({} if data is None else {"x": TarMember("1.x", 1536, data)})
    sample = TarSample("1", members)
    return SampleReader({"__key__": "str", "x": kind, "other": "bytes"}, file="a.tar", stored=4096).read(sample)["x"]


@pytest.mark.parametrize(
    ("kind", "data", "expected"),
    [
        ("int64", b"7", 7),
        ("int64", b" -12\n", -12),
        ("uint64", b"18446744073709551615", 2**64 - 1),
        ("float32", b"1e-3", 0.001),
        ("float64", b"-Inf", -math.inf),
        ("bool", b"True", True),
        ("bool", b"0", False),
        ("int64", npy(np.int16(5)), 5),
        ("str", "grüße\n".encode(), "grüße\n"),
        ("str", b"", ""),
        ("str[*]", b'["a", "b"]', ["a", "b"]),
        ("json[*]?", b"[1, null]", [1, None]),
        ("json", b'{"a": [1, null, "\\u00e4"]}', {"a": [1, None, "ä"]}),
        ("msgpack", msgpack.packb({"a": b"\0"}), {"a": b"\0"}),
        ("bytes", b"\0\xff", b"\0\xff"),
        ("bytes", b"", b""),
        ("int64?", None, None),
        ("int64?", b"1", 1),
    ],
)
def test_each_type_reads_its_bytes(kind: str, data: bytes | None, expected: object) -> None:
    value = read(kind, data)
    assert value == expected
    assert type(value) is type(expected) or isinstance(value, np.generic)


@pytest.mark.parametrize(
    "array", [np.arange(6, dtype="<f4").reshape(2, 3), np.asfortranarray(np.eye(3)), np.zeros((0, 2))]
)
def test_arrays_are_read_from_numpy_files(array: ArrayLike) -> None:
    value = read("float64[*,*]", npy(array))
    np.testing.assert_array_equal(value, array, strict=True)


def test_big_endian_arrays_come_in_native_order() -> None:
    assert parse_npy(npy(np.arange(3, dtype=">u2"))).dtype == np.uint16


@pytest.mark.parametrize(
    ("kind", "data", "problem", "fix"),
    [
        ("int64", b"cat", "'cat' is not an integer", "str"),
        ("int64", b"", "'' is not an integer", "str"),
        ("int64", b"1_000", "is not an integer", "str"),
        ("int64", b"1.0", "is not an integer", "str"),
        ("int64", b"9" * 5000, "is not an integer", "str"),
        ("int64?", b"\xff", "is not an integer", "bytes?"),
        ("float32", b"0x10", "is not a number", "str"),
        ("bool", b"yes", "is not one of 0, 1, true, false", "str"),
        ("str", b"ab\xff", "not UTF-8", "bytes"),
        ("json", b"{", "line 1", "bytes"),
        ("json", b"NaN", "NaN is not JSON", "bytes"),
        ("json", b"[" * 100_000, "nested too deeply", "bytes"),
        ("msgpack", b"\xc1", "MessagePack", "bytes"),
        ("str[*]", b'"a"', "not a JSON array", "bytes"),
        ("png[*]", b"[]", "only be str or json", "bytes"),
        ("float32[3]", b"1 2 3", "not a NumPy file", "bytes"),
        ("float32[3]", npy(np.zeros(3))[:-1], "a NumPy file of 24 bytes of data has 23", "bytes"),
        ("float32[3]", npy(np.zeros(3)) + b"x", "a NumPy file of 24 bytes of data has 25", "bytes"),
        ("float32[3]", npy(np.array([{}]), allow_pickle=True), "pickled objects, which are never loaded", "bytes"),
    ],
)
def test_an_unfitting_value_raises_with_place_and_advice(kind: str, data: bytes, problem: str, fix: str) -> None:
    with pytest.raises(SampleError) as caught:
        read(kind, data)
    message = str(caught.value)
    assert message.startswith(f"a.tar: member '1.x', offset 1536: does not fit column 'x' of type {kind}: ")
    assert problem in message
    assert message.endswith(f"; --column 'x={fix}' would accept it")


def test_a_missing_member_raises_unless_nullable() -> None:
    with pytest.raises(SampleError, match=r"a.tar: member '1.other', offset 0: missing member: .*'x=int64\?'"):
        read("int64", None)
    torn = TarSample("1", {"other": TarMember("1.other", 0)}, torn=True)
    with pytest.raises(SampleError, match="damage after it"):  # null would be a guess
        SampleReader({"__key__": "str", "x": "int64?", "other": "bytes"}, file="a.tar", stored=4096).read(torn)


NAN = b'{"a": [NaN, Infinity, -Infinity, 1e999, -1e999, 1.5], "b": 0.0}'


def json_reader(kind: str = "json", *, stored: int = 4096) -> SampleReader:
    return SampleReader({"__key__": "str", "x": kind}, file="a.tar", stored=stored, nan_null=True)


def json_sample(data: bytes) -> TarSample:
    return TarSample("1", {"x": TarMember("1.x", 0, data)})


def test_nan_and_infinity_become_null_on_request() -> None:
    assert json_reader().read(json_sample(NAN))["x"] == {"a": [None, None, None, None, None, 1.5], "b": 0.0}
    assert json_reader().read(json_sample(b"NaN"))["x"] is None
    assert json_reader("bytes").read(json_sample(NAN))["x"] == NAN


@pytest.mark.parametrize("data", [b"{", b"[nan]", b"NAN", b"[" * 100_000, b"\xff", b"'a'", b"9" * 5000])
def test_other_invalid_json_stays_an_error(data: bytes) -> None:
    with pytest.raises(SampleError, match=r"does not fit column 'x' of type json: .*--column 'x=bytes'"):
        json_reader().read(json_sample(data))


@pytest.mark.parametrize("data", [b"NaN", b"[-Infinity]", b'{"a": 1e999}'])
def test_the_error_for_nan_names_the_option(data: bytes) -> None:
    reader = SampleReader({"__key__": "str", "x": "json"}, file="a.tar", stored=4096)
    values, error = None, None
    try:
        values = reader.read(json_sample(data))
    except SampleError as caught:
        error = caught
    if values:  # the writer refuses it
        error = reader.misfit(json_sample(data), SampleError("", place="column 'x'", found="inf", expected="JSON"))
    assert "; --nan null makes NaN and Infinity null; --column 'x=bytes' would accept it" in str(error)


def test_parsing_is_bounded_by_the_stored_bytes() -> None:
    large = b"[" + b"0," * 2**20 + b"0]"
    for kind in ("json", "msgpack"):
        with pytest.raises(SampleError, match=r"json and msgpack of this sample have far more bytes.*decompress it"):
            json_reader(kind, stored=0).read(json_sample(large))
    with pytest.raises(SampleError, match="json and msgpack of this tar, up to here,"):  # noqa: PT012
        reader = json_reader(stored=0)
        for _ in range(9):
            reader.read(json_sample(b"[" + b"0," * (2**20 - 10) + b"0]"))
    assert len(json_reader(stored=1).read(json_sample(large))["x"]) == 2**20 + 1
    assert json_reader("bytes", stored=0).read(json_sample(large))["x"] == large


def test_an_unknown_extension_raises_even_with_a_missing_one() -> None:
    sample = TarSample("1", {"new.txt": TarMember("1.new.txt", 512)})
    ways = r"'new.txt=str\?' accepts it.*--rename 'NEW=x;new.txt'.*--drop new.txt .*--key-until last-dot"
    with pytest.raises(SampleError, match=rf"mixed extensions: sample '1' has 'new.txt'.*{ways}"):
        SampleReader({"__key__": "str", "x": "int64?"}, file="a.tar", stored=4096).read(sample)
