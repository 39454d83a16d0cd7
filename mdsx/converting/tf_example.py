"""Parse tf.train.Example, the message in the records of TFRecord files: a map of feature names to lists of values.

    Example       1: Features
    Features      1: repeated entry (1: name, 2: Feature)
    Feature       one of 1: BytesList, 2: FloatList, 3: Int64List
    BytesList     1: repeated bytes
    FloatList     1: repeated float, packed or not
    Int64List     1: repeated varint, packed or not

As protobuf does: unknown fields are ignored, the last entry of a name counts, lists that occur twice in a Feature are
joined, and bits above the 64th of a varint are ignored. A Feature without a list is as if it were absent.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Values: TypeAlias = "list[Any] | array[Any] | NDArray[Any]"
Feature: TypeAlias = tuple[str, Values]
"""The kind of a feature's values, "bytes", "float32" or "int64", and the values."""

_MOST_FEATURES = 2**16  # in an Example: so a small compressed file cannot make millions of names
_AT_ONCE = 2**20  # bytes of packed integers
_FEW = 16  # bytes of packed integers, which a loop parses faster than NumPy
_VARINT, _EIGHT_BYTES, _SIZED, _FOUR_BYTES = 0, 1, 2, 5
_FIRST, _SECOND = 1 << 3 | _SIZED, 2 << 3 | _SIZED  # the tags of fields 1 and 2 that have a size
_LISTS = {1 << 3 | _SIZED: "bytes", 2 << 3 | _SIZED: "float32", 3 << 3 | _SIZED: "int64"}
_FLOAT, _INTEGER = 1 << 3 | _FOUR_BYTES, 1 << 3 | _VARINT  # values that are not packed


class BadMessage(ValueError):
    """The bytes are not an Example message."""


class SequenceExample(BadMessage):
    """The message is a tf.train.SequenceExample, which has lists of features."""


def parse_example(data: bytes) -> dict[str, Feature]:
    """Return the features of an Example by name. Raise BadMessage."""
    found: dict[str, Feature] = {}
    try:
        for tag, start, stop in _fields(data, 0, len(data)):
            if tag == _FIRST:
                for inner, first, last in _fields(data, start, stop):
                    if inner == _FIRST:
                        _entry(data, first, last, found)
            elif tag == _SECOND:
                raise SequenceExample("it is a SequenceExample, which has lists of features")
    except IndexError:
        raise BadMessage("it ends in the middle of a field") from None
    return found


def _entry(data: bytes, start: int, stop: int, found: dict[str, Feature]) -> None:
    """Add an entry of the map of features to `found`."""
    feature = None
    last = start + 2 + data[start + 1] if stop - start > 8 else stop
    if (
        stop - start < 128  # so each size has one byte
        and stop - last > 6
        and data[start] == data[last + 4] == _FIRST
        and data[last] == _SECOND
        and data[last + 1] + 2 == data[last + 3] + 4 == data[last + 5] + 6 == stop - last
        and data[last + 2] in _LISTS
    ):  # as writers make small ones: a name, a list, and in this one bytes value or packed numbers
        name, kind, first = data[start + 2 : last], _LISTS[data[last + 2]], last + 6
        feature = kind, [data[first:stop]] if kind == "bytes" else _PACKED[kind](data, first, stop)
    else:
        name = b""
        for tag, first, last in _fields(data, start, stop):
            if tag == _FIRST:
                name = data[first:last]
            elif tag == _SECOND:
                feature = _feature(data, first, last, feature)
    try:
        text = name.decode()
    except UnicodeDecodeError:
        raise BadMessage(f"the name of a feature is not UTF-8: {name[:80]!r}") from None
    if feature is None:
        found.pop(text, None)
    else:
        found[text] = feature
        if len(found) > _MOST_FEATURES:
            raise BadMessage(f"it has more than {_MOST_FEATURES:,} features")


def _feature(data: bytes, start: int, stop: int, feature: Feature | None) -> Feature | None:
    """Return the Feature in data[start:stop], joined to what an earlier occurrence of the same field had."""
    for tag, first, last in _fields(data, start, stop):
        kind = _LISTS.get(tag)
        if kind is None:
            continue
        values: Any
        if kind == "bytes":
            values = [data[low:high] for inner, low, high in _fields(data, first, last) if inner == _FIRST]
        else:
            values = _numbers(data, first, last, kind)
        if feature is not None and feature[0] == kind:
            before: Any = feature[1]
            values = before + values if kind == "bytes" else _joined([before, values], kind)
        feature = kind, values
    return feature


def _numbers(data: bytes, start: int, stop: int, kind: str) -> Values:
    """Return the values of a FloatList or Int64List, packed or not."""
    lists: list[Values] = []
    single: array[Any] = array("f" if kind == "float32" else "q")
    for tag, first, last in _fields(data, start, stop):
        if tag == _FIRST:
            lists += [single, _PACKED[kind](data, first, last)] if single else [_PACKED[kind](data, first, last)]
            single = array(single.typecode)
        elif tag == _FLOAT and kind == "float32":
            single.append(*struct.unpack_from("<f", data, first))
        elif tag == _INTEGER and kind == "int64":
            value = _varint(data, first)[0]
            single.append(value if value < 2**63 else value - 2**64)
    if single or not lists:
        lists.append(single)
    return lists[0] if len(lists) == 1 else _joined(lists, kind)


def _joined(lists: list[Any], kind: str) -> NDArray[Any]:
    return np.concatenate([np.asarray(values, kind) for values in lists])


def _floats(data: bytes, start: int, stop: int) -> Values:
    if (stop - start) % 4:
        raise BadMessage("a list of packed floats ends in the middle of one")
    if stop - start == 4:
        return list(struct.unpack_from("<f", data, start))
    return np.frombuffer(data, "<f4", (stop - start) // 4, start)


def _integers(data: bytes, start: int, stop: int) -> Values:
    """Return packed varints."""
    if start < stop and data[stop - 1] > 127:
        raise BadMessage("a list of packed integers ends in the middle of one")
    if stop - start <= _FEW:
        values: list[int] = []
        while start < stop:
            value = data[start]
            if value < 128:
                start += 1
            else:
                value, start = _varint(data, start)
            values.append(value if value < 2**63 else value - 2**64)
        return values
    parts = []
    while start < stop:
        end = min(start + _AT_ONCE, stop)
        while data[end - 1] > 127:  # this ends: the last byte of all is less
            end += 1
        parts.append(_many_integers(np.frombuffer(data, np.uint8, end - start, start)))
        start = end
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


_PACKED = {"float32": _floats, "int64": _integers}


def _many_integers(data: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the varints in `data`, whose last byte ends one."""
    ends = np.flatnonzero(data < 128)
    if len(ends) == len(data):
        return data.astype(np.int64)
    starts = np.concatenate([[0], ends[:-1] + 1])
    sizes = ends - starts + 1
    longest = int(sizes.max())
    if longest > 10:
        raise BadMessage("an integer has more than 10 bytes")
    padded = np.concatenate([data, np.zeros(8, np.uint8)])
    windows: NDArray[np.uint64] = np.ndarray(len(data), "<u8", padded, strides=(1,))  # 8 bytes from each byte on
    words = windows[starts] & _FIRST_BYTES[np.minimum(sizes, 8)]
    values = words & np.uint64(127)
    for place in range(1, min(longest, 8)):
        values |= words >> np.uint64(place) & np.uint64(127 << 7 * place)
    for place in range(8, longest):
        there = np.flatnonzero(sizes > place)
        values[there] |= (data[starts[there] + place] & np.uint64(127)) << np.uint64(7 * place)
    signed: NDArray[np.int64] = values.view(np.int64)
    return signed


_FIRST_BYTES = np.array([256**count - 1 for count in range(9)], np.uint64)  # masks


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the varint at `at`, and where it ends. Raise IndexError after the end of `data`."""
    value = data[at]
    if value < 128:
        return value, at + 1
    value &= 127
    for shift in range(7, 70, 7):
        at += 1
        byte = data[at]
        value |= (byte & 127) << shift
        if byte < 128:
            return value & 0xFFFFFFFFFFFFFFFF, at + 1
    raise BadMessage("an integer has more than 10 bytes")


def _fields(data: bytes, at: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Yield (tag, start, stop) of each field of the message in data[at:stop]. Raise IndexError if it is cut off."""
    while at < stop:
        tag = data[at]
        at += 1
        if tag > 127:
            tag, at = _varint(data, at - 1)
        wire = tag & 7
        if wire == _SIZED:
            size = data[at]
            at += 1
            if size > 127:
                size, at = _varint(data, at - 1)
            end = at + size
        elif wire == _VARINT:
            _, end = _varint(data, at)
        elif wire == _FOUR_BYTES:
            end = at + 4
        elif wire == _EIGHT_BYTES:
            end = at + 8
        else:
            raise BadMessage(f"it has a field of wire type {wire}")
        if end > stop:
            raise IndexError
        if tag < 8:
            raise BadMessage("it has a field with number 0")
        yield tag, at, end
        at = end
