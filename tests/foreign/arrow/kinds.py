"""Column types, an Arrow type for each, and values of both."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

JPEG, PNG = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"

TEXT, BYTES = st.text(max_size=5), st.binary(max_size=5)
INTEGERS, FLOATS = st.integers(0, 100), st.floats(width=32, allow_nan=False)
SHAPES = st.integers(0, 3)


def lists(items: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(items, max_size=3)


def rectangles(rows: st.SearchStrategy[int], columns: st.SearchStrategy[int]) -> st.SearchStrategy[Any]:
    """Return lists of lists, which have the same length."""

    def of(shape: tuple[int, int]) -> st.SearchStrategy[Any]:
        row = st.lists(FLOATS, min_size=shape[1], max_size=shape[1])
        return st.lists(row, min_size=shape[0], max_size=shape[0])

    return st.tuples(rows, columns).flatmap(of)


KINDS: dict[str, tuple[str, Any, st.SearchStrategy[Any]]] = {
    "bool": ("bool", pa.bool_(), st.booleans()),
    "int": ("int64", pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "widened": ("uint32", pa.int8(), INTEGERS),
    "float": ("float64", pa.float32(), FLOATS),
    "text": ("str", pa.string(), TEXT),
    "large text": ("str", pa.large_string(), TEXT),
    "text view": ("str", pa.string_view(), TEXT),
    "dictionary": ("str", pa.dictionary(pa.int8(), pa.string()), TEXT),
    "bytes": ("bytes", pa.binary(), BYTES),
    "large bytes": ("bytes", pa.large_binary(), BYTES),
    "two bytes": ("bytes", pa.binary(2), st.binary(min_size=2, max_size=2)),
    "jpeg": ("jpeg", pa.binary(), BYTES.map(JPEG.__add__)),
    "vectors": ("int16[*]", pa.list_(pa.int64()), lists(INTEGERS)),
    "pairs": ("int16[2]", pa.list_(pa.int64()), st.lists(INTEGERS, min_size=2, max_size=2)),
    "fixed": ("int16[2]", pa.list_(pa.int16(), 2), st.lists(INTEGERS, min_size=2, max_size=2)),
    "points": ("float32[*,3]", pa.list_(pa.list_(pa.float32(), 3)), rectangles(SHAPES, st.just(3))),
    "rows": ("float32[2,*]", pa.list_(pa.list_(pa.float32())), rectangles(st.just(2), SHAPES)),
    "matrices": ("float32[*,*]", pa.large_list(pa.list_(pa.float32())), rectangles(st.integers(1, 3), SHAPES)),
    "texts": ("str[*]", pa.list_(pa.string()), lists(TEXT)),
    "large texts": ("str[*]", pa.large_list(pa.large_string()), lists(TEXT)),
    "blobs": ("bytes[*]", pa.list_(pa.binary()), lists(BYTES)),
    "objects": ("json[*]", pa.list_(pa.struct([("a", pa.int64())])), lists(st.fixed_dictionaries({"a": INTEGERS}))),
    "json": (
        "json",
        pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))]),
        st.builds(lambda a, b: {"a": a, "b": b}, INTEGERS | st.none(), lists(TEXT | st.none()) | st.none()),
    ),
    "msgpack": ("msgpack", pa.list_(pa.list_(pa.binary())), lists(lists(BYTES))),
}
