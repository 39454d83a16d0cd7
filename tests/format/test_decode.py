"""Stored bytes -> values, as the public page promises them."""

from __future__ import annotations

import contextlib
import struct
import sys
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdsx.errors import CorruptError, SampleError, UnsupportedError
from mdsx.format import Encoder, Schema, bare_decoder, numpy_values, parse_type, value_decoder, values_decoder
from mdsx.format.families.floats import BFLOAT16


def decode(kind: str, data: bytes) -> Any:
    return value_decoder(parse_type(kind), "a")(memoryview(data))


def test_a_scalar_is_a_numpy_scalar_or_a_python_bool() -> None:
    value = decode("int16?", b"\xfe\xff")
    assert (type(value), value) == (np.int16, -2)
    assert decode("bool?", b"\1") is True
    assert decode("bool?", b"\0") is False
    assert (type(decode("float64?", bytes(8))), decode("uint64?", b"\xff" * 8)) == (np.float64, 2**64 - 1)


def test_bfloat16_is_widened_to_float32_exactly() -> None:
    value = decode("bfloat16?", b"\x80\x3f")
    assert (type(value), value) == (np.float32, 1.0)
    every = np.arange(2**16, dtype=np.uint16)
    assert (BFLOAT16.numpy(every).view(np.uint32) == every.astype(np.uint32) << 16).all()


def test_an_array_may_be_stored_without_its_dimension() -> None:
    """As MDS stores it."""

    def bare(kind: str, data: bytes, **options: bool) -> Any:
        return bare_decoder(parse_type(kind), **options)(memoryview(data))

    found = bare("int16[*]", b"\1\0\xff\xff")
    assert (found.dtype, found.tolist(), found.flags.writeable) == (np.int16, [1, -1], True)
    assert (bare("float32[*]", b"").dtype, bare("float32[*]", b"").shape) == (np.float32, (0,))
    assert bare("bfloat16[*]", b"\x80\x3f").tolist() == [1.0]
    assert bare("bfloat16[*]", b"\x80\x3f", stored=True).tolist() == [0x3F80]
    for stored in (False, True):  # a bool is a byte in both cases
        assert bare("bool[*]", b"\1\0", stored=stored).dtype == np.bool_
    with pytest.raises(CorruptError, match=r"^the size is wrong for an array of int16") as caught:
        bare("int16[*]", b"\1\0\2")
    assert (caught.value.found, caught.value.expected) == (3, "a multiple of 2 bytes")


def test_many_values_are_decoded_like_each_of_them() -> None:
    def every(kind: str, *pieces: bytes, **options: bool) -> list[Any]:
        return values_decoder(parse_type(kind), "a", **options)(map(memoryview, pieces))

    assert every("str", b"", "é".encode()) == ["", "é"]
    assert every("str[*]", packed(b"a"), packed()) == [["a"], []]
    with pytest.raises(CorruptError, match="not UTF-8"):
        every("str", b"a", b"\xff")
    assert list(map(type, every("bytes", b"a"))) == [bytes]
    assert list(map(type, every("bytes", b"a", views=True))) == [memoryview]
    assert every("bytes[*]", packed(b"a"), views=True) == [[b"a"]]


def test_items_that_numpy_lacks_may_stay_bits() -> None:
    for kind in ("bfloat16[*]", "bfloat16[*]?"):
        for stored, expected in ((False, [1.0]), (True, [0x3F80])):
            data = memoryview(b"\1\0\0\0\x80\x3f")
            assert value_decoder(parse_type(kind), "a", stored=stored)(data).tolist() == expected  # type: ignore[attr-defined]
            (found,) = values_decoder(parse_type(kind), "a", stored=stored)([data])
            assert found.tolist() == expected  # type: ignore[attr-defined]
    (found,) = values_decoder(parse_type("bfloat16?"), "a")([memoryview(b"\x80\x3f")])
    assert found == 1.0


def test_an_array_is_a_writable_aligned_copy() -> None:
    data = b"?" + struct.pack("<I6H", 2, *range(6))
    array = decode("uint16[*,3]", memoryview(data)[1:])  # type: ignore[arg-type]
    assert array.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert array.flags.aligned
    assert array.flags.writeable
    assert array.flags.c_contiguous
    assert decode("float32[2]?", struct.pack("<2f", 0.5, -1)).tolist() == [0.5, -1]
    assert decode("bool[*]", b"\2\0\0\0\1\0").dtype == np.bool_
    assert decode("bfloat16[*]", b"\1\0\0\0\x80\x3f").dtype == np.float32


def test_arrays_without_items_keep_their_shape() -> None:
    assert decode("uint16[*,3]", bytes(4)).shape == (0, 3)
    assert decode("uint16[*,*]", struct.pack("<2I", 0, 2**30 - 1)).shape == (0, 2**30 - 1)
    with pytest.raises(CorruptError, match=r"^an array's dimensions are too large") as caught:
        decode("uint16[*,*]", struct.pack("<2I", 0, 2**30))
    assert (caught.value.found, caught.value.expected) == ((0, 2**30), "below 2^31 bytes, ignoring dimensions of 0")
    assert decode("float64[0,2]?", b"").shape == (0, 2)
    assert decode("bool[*]", bytes(4)).dtype == np.bool_
    assert decode("bfloat16[0]?", b"").dtype == np.float32


@pytest.mark.parametrize("base", ["bytes", "jpeg", "png"])
def test_bytes_and_images_are_bytes(base: str) -> None:
    value = decode(base, b"\xff\0")
    assert (type(value), value) == (bytes, b"\xff\0")


def test_a_msgpack_map_never_loses_an_entry() -> None:
    assert decode("msgpack", b"\x83\x01\x0a\xa11\x0b\xc4\x011\x0c") == {1: 10, "1": 11, b"1": 12}
    assert decode("msgpack", b"\x82\x01\x0a\xcd\0\x01\x0b") == {1: 11}  # the same integer twice
    one = b"\xcb\x3f\xf0" + bytes(6)
    for key, names in ((one, "1 and 1.0"), (b"\xc3", "1 and True")):
        with pytest.raises(CorruptError, match=names):
            decode("msgpack", b"\x91\x82\x01\x0a" + key + b"\x0b")


def test_text_json_and_msgpack_are_decoded() -> None:
    assert decode("str", "naïve 😀".encode()) == "naïve 😀"
    assert decode("json", b' {"b":1,"a":[null,1e2]} ') == {"b": 1, "a": [None, 100.0]}
    assert decode("json", b"null") is None
    value = {"z": b"\0", 1: [None, True, 0.5], "t": msgpack.Timestamp(1, 2)}
    assert decode("msgpack", msgpack.packb(value)) == value
    assert list(decode("msgpack", msgpack.packb(value))) == ["z", 1, "t"]


def test_a_msgpack_map_with_any_keys_has_no_extension_types_but_timestamps() -> None:
    with pytest.raises(CorruptError, match=r"extension type 5 \(only timestamps, -1, are allowed\)"):
        decode("msgpack", b"\x81\x01\xd4\x05x")


def packed(*values: bytes) -> bytes:
    """Return a list of these values, as it is stored."""
    return struct.pack(f"<{len(values) + 1}I", len(values), *map(len, values)) + b"".join(values)


def test_a_list_is_a_list_of_its_values() -> None:
    assert decode("str[*]", packed(b"a", b"", "é".encode())) == ["a", "", "é"]
    assert decode("bytes[*]", packed(b"", b"\xff")) == [b"", b"\xff"]
    assert decode("png[*]?", packed()) == []
    assert decode("json[*]", packed(b"null", b'{"a":[1]}')) == [None, {"a": [1]}]
    assert decode("msgpack[*]", packed(b"\xc0", b"\x01")) == [None, 1]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "ends within its lengths"),
        (b"\1\0\0", "ends within its lengths"),
        (b"\1\0\0\0", "ends within its lengths"),
        (b"\xff\xff\xff\xff", "ends within its lengths"),
        (b"\xff\xff\xff\xff" + bytes(1000), "ends within its lengths"),
        (packed(b"ab") + b"c", "wrong size"),
        (packed(b"ab")[:-1], "wrong size"),
        (b"\0\0\0\0\0", "wrong size"),
        (struct.pack("<3I", 2, 2**32 - 1, 2**32 - 1) + b"ab", "wrong size"),
        (struct.pack("<3I", 2, 2**32 - 1, 3) + b"ab", "wrong size"),  # 2 if the sum wrapped around
        (packed(b"a", b"\xff"), "not UTF-8"),
    ],
)
def test_a_hostile_list_is_corrupt(data: bytes, says: str) -> None:
    with pytest.raises(CorruptError, match=says):
        decode("str[*]", data)


@given(st.lists(st.integers(0, 2**32 - 1), max_size=6), st.binary(max_size=64))
def test_lengths_need_their_bytes(lengths: list[int], data: bytes) -> None:
    for count in (len(lengths), 2**32 - 1):
        try:
            values = decode("bytes[*]", struct.pack(f"<{len(lengths) + 1}I", count, *lengths) + data)
        except CorruptError:
            continue
        assert b"".join(values) == data


def test_an_unknown_type_raises_when_decoded() -> None:
    with pytest.raises(UnsupportedError, match="column 'clip' has type 'video'"):
        value_decoder(parse_type("video"), "clip")
    with pytest.raises(UnsupportedError, match=r"column 'clip' has type 'video\[\*\]'"):
        value_decoder(parse_type("video[*]"), "clip")


def test_stored_columns_become_numpy_arrays() -> None:
    def shown(kind: str, values: Any) -> Any:
        return numpy_values(parse_type(kind), values)

    flags = shown("bool", np.array([0, 1], np.uint8))
    assert (flags.dtype, flags.tolist()) == (np.bool_, [False, True])
    assert shown("bfloat16[1]", np.array([[0x3F80]], np.uint16)).tolist() == [[1.0]]
    assert shown("bfloat16[*]", [np.array([0x3F80], np.uint16)])[0].dtype == np.float32
    assert shown("bfloat16?", [None, np.uint16(0x3F80)]) == [None, 1.0]
    assert shown("bool?", [None, True]) == [None, True]
    values = np.array([1, 2])
    assert shown("int64", values) is values


SIZED = ["bool?", "int32?", "bfloat16?", "float16[3]?"]
STARRED = ["bool[*]", "uint8[*,*]", "uint64[*,2,*]", "bfloat16[*]", "uint8[0,*,*]"]


@given(st.sampled_from([*SIZED, *STARRED, "str", "json", "msgpack", "str[*]", "json[*]?"]), st.binary(max_size=64))
def test_any_bytes_decode_or_raise_corrupt_error(kind: str, data: bytes) -> None:
    with contextlib.suppress(CorruptError):
        decode(kind, data)


@given(st.lists(st.integers(0, 2**32 - 1), min_size=3, max_size=3), st.binary(max_size=64))
def test_dimensions_without_their_bytes_raise(sizes: list[int], data: bytes) -> None:
    try:
        array = decode("uint16[*,*,*]", struct.pack("<3I", *sizes) + data)
    except CorruptError:
        return
    assert array.nbytes == len(data)


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def test_json_has_at_most_500_levels() -> None:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(4000)
    try:
        sample = Encoder(Schema.from_columns({"a": "json"})).sample
        values, _ = sample({"a": nested(500)})
        assert decode("json", values[0]) == nested(500)
        with pytest.raises(SampleError, match="at most 500 levels"):
            sample({"a": nested(501)})
    finally:
        sys.setrecursionlimit(limit)


def test_json_of_500_levels_works_in_a_deep_stack() -> None:
    def read(depth: int, data: bytes) -> Any:
        return decode("json", data) if depth == 0 else read(depth - 1, data)

    schema = Schema.from_columns({"a": "json"})
    values, _ = Encoder(schema).sample({"a": nested(500)})
    assert read(300, values[0]) == nested(500)
    with pytest.raises(SampleError, match="at most 500 levels"):
        Encoder(schema).sample({"a": nested(502)})
