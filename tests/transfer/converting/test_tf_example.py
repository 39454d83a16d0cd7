"""Examples are parsed as protobuf parses them, and other bytes raise BadMessage."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mdsx.transfer.converting.tf_example import BadMessage, SequenceExample, parse_example
from tests.transfer.converting.tf_files import CLASSES, example

_FLOATS = st.floats(width=32, allow_nan=False)
_INTEGERS = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 300)
_VALUES = st.one_of(
    st.lists(st.binary(max_size=300), min_size=1, max_size=4),
    st.lists(_FLOATS, min_size=1, max_size=40),
    st.lists(_INTEGERS, min_size=1, max_size=40),
)


def parsed(data: bytes) -> dict[str, list[Any]]:
    return {name: list(values) for name, (_, values) in parse_example(data).items()}


@pytest.mark.parametrize("package", CLASSES)
@settings(deadline=None, max_examples=60)
@given(features=st.dictionaries(st.text(max_size=150), _VALUES, max_size=6))
def test_any_example_of_protobuf_is_parsed(package: str, features: dict[str, Any]) -> None:
    assert parsed(example(features, package)) == features


@pytest.mark.parametrize("count", [1, 17, 3_000_000])
def test_many_integers_of_every_size_are_parsed(count: int) -> None:
    values = (np.arange(count) * 7 - 3) * 3 ** (np.arange(count) % 37)
    message = CLASSES["packed"]()
    message.features.feature["x"].int64_list.value.extend(values.tolist())
    ((kind, found),) = parse_example(message.SerializeToString()).values()
    assert kind == "int64"
    np.testing.assert_array_equal(np.asarray(found), values)


def test_what_repeats_is_joined_or_replaced_as_protobuf_does() -> None:
    pieces = [example({name: value}) for name, value in (("a", 1), ("a", b"x"), ("b", [1.5, 2.5]), ("c", 3))]
    joined = b"".join(pieces)  # protobuf messages one after the other are one message
    expected = CLASSES["packed"].FromString(joined).features.feature
    assert parsed(joined) == {"a": [b"x"], "b": [1.5, 2.5], "c": [3]}
    assert set(expected) == {"a", "b", "c"}

    def feature(data: bytes) -> bytes:  # an Example whose feature "x" is `data`
        entry = b"\x0a\x01x\x12" + bytes([len(data)]) + data
        return b"\x0a" + bytes([len(entry) + 2, 0x0A, len(entry)]) + entry

    integers, more, floats = b"\x1a\x03\x0a\x01\x01", b"\x1a\x02\x08\x02", b"\x12\x06\x0a\x04\0\0\x80\x3f"
    for data, values in ((integers + more, [1, 2]), (integers + floats, [1.0]), (floats + integers, [1])):
        assert parsed(feature(data))["x"] == values
        message = CLASSES["packed"].FromString(feature(data)).features.feature["x"]
        assert list(getattr(message, message.WhichOneof("kind")).value) == values


def test_unknown_fields_and_features_without_a_list_are_ignored() -> None:
    unknown = b"\x78\x96\x01" + b"\x7d1234" + b"\x7912345678" + b"\x7a\x02ab"
    message = CLASSES["packed"]()
    message.features.feature["none"].SetInParent()
    message.features.feature["one"].int64_list.value.append(5)
    assert parsed(unknown + message.SerializeToString() + unknown) == {"one": [5]}
    assert parsed(b"") == {}
    assert parsed(b"\x0a\x02\x0a\x00") == {}


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a\x05\x0a",
        b"\x0b",
        b"\x02\x00",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x0a\x05\x0a\x03\x0a\x01\xff",
        b"\x0a\x0c\x0a\x0a\x0a\x01a\x12\x05\x12\x03\x0a\x01\0",
        b"\x0a\x0c\x0a\x0a\x0a\x01a\x12\x05\x1a\x03\x0a\x01\x80",
    ],
)
def test_other_bytes_raise(data: bytes) -> None:
    with pytest.raises(BadMessage, match="protobuf cannot parse it"):
        parse_example(data)


def test_every_truncated_example_raises_or_lacks_whole_features() -> None:
    data = example({"image": b"\xff\xd8" * 100, "label": 300, "box": [0.5, 1.5], "ids": list(range(40))})
    for size in range(1, len(data)):
        with pytest.raises(BadMessage):
            parse_example(data[:size])


def test_a_sequence_example_is_recognized() -> None:
    with pytest.raises(SequenceExample):
        parse_example(example({"x": 1}) + b"\x12\x02\x0a\x00")
