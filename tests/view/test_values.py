"""What a page shows of a value: strict JSON, bounded, whatever the value is."""

from __future__ import annotations

import io
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from mdsx.view.arrays import BINS, POINTS, histogram, line, summary
from mdsx.view.pictures import image_type, is_pixels, png
from mdsx.view.trees import MAX_DEPTH, MAX_NODES, tree
from mdsx.view.values import TEXT, brief, described, has_picture, media_of


def strict(value: object) -> int:
    """Return the length of a value as strict JSON."""
    return len(json.dumps(value, allow_nan=False))


def test_long_values_are_cut() -> None:
    assert described("x" * 10**6, "str") == {"kind": "text", "text": "x" * TEXT, "length": 10**6}
    assert strict(described(b"\x00" * 10**6, "bytes")) < 5000
    assert strict(described(np.arange(10**6), "int64[*]")) < 60_000
    assert strict(described(["x"] * 10**5, "str[*]")) < 20_000
    assert strict(described({str(key): key for key in range(10**5)}, "json")) < 400_000


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("value", [nested(900), {"a": {"b": nested(200)}}, [[0] * 10] * 10_000, {"x": "y" * 10**6}])
def test_trees_are_bounded(value: Any) -> None:
    found = tree(value)
    assert strict(found) < 400_000

    def count(node: Any) -> tuple[int, int]:
        items = [item[1] if node["k"] == "object" else item for item in node.get("items", ())]
        counts = [count(item) for item in items]
        return 1 + sum(each for each, _ in counts), 1 + max((depth for _, depth in counts), default=0)

    nodes, depth = count(found)
    assert nodes <= MAX_NODES + 1
    assert depth <= MAX_DEPTH + 1


def test_numbers_keep_each_digit() -> None:
    assert described(np.int64(2**63 - 1), "int64") == {"kind": "number", "text": "9223372036854775807"}
    assert described(np.float32(0.1), "float32")["text"] == "0.1"
    assert described(True, "bool")["text"] == "true"
    assert described(np.float64("nan"), "float64")["text"] == "NaN"
    assert tree({"a": 2**60})["items"] == [["a", {"k": "number", "v": str(2**60)}]]
    assert "bits" in tree(10**5000)["v"]


@pytest.mark.parametrize(
    "array",
    [
        np.array([], np.float32),
        np.zeros((0, 3)),
        np.array([math.nan, math.inf, -math.inf]),
        np.array([-1.7e308, 1.7e308, math.nan]),
        np.array([1.0, np.nextafter(1.0, 2.0)]),
        np.array([True, False]),
        np.array([2**64 - 1, 0], np.uint64),
        np.array([-(2**63), 2**63 - 1]),
        np.ones((3, 4, 5), np.float16),
        np.full(5000, np.nan),
    ],
)
def test_any_array_has_a_summary(array: np.ndarray[Any, Any]) -> None:
    found = summary(array)
    assert strict(found)
    assert found["shape"] == list(array.shape)


def test_a_summary_is_right() -> None:
    found = summary(np.array([3, 1, 2, 2], np.uint16))
    assert (found["min"], found["max"], found["mean"], found["zeros"], found["not_finite"]) == ("1", "3", "2", 0, 0)
    assert found["histogram"] == {"edges": [0.5, 1.5, 2.5, 3.5], "counts": [1, 2, 1]}
    assert found["line"] == {"x": [0, 1, 2, 3], "y": [3.0, 1.0, 2.0, 2.0]}
    assert found["head"] == ["3", "1", "2", "2"]
    assert summary(np.array([1.0, math.nan]))["not_finite"] == 1
    assert summary(np.array([0.1], np.float32))["max"] == "0.1"


@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=50))
def test_a_histogram_counts_each_value(values: list[float]) -> None:
    found = histogram(np.array(values))
    if found is not None:
        assert sum(found["counts"]) == len(values)
        assert len(found["counts"]) <= BINS + 1


def test_a_line_keeps_each_peak() -> None:
    values = np.zeros(100_000)
    values[[12_345, 77_777]] = 9.0, -9.0
    found = line(values)
    assert len(found["x"]) <= POINTS
    assert dict(zip(found["x"], found["y"], strict=True))[12_345] == 9.0
    assert min(found["y"]) == -9.0
    assert found["x"] == sorted(found["x"])


@pytest.mark.parametrize(
    ("data", "media"),
    [
        (b"\x89PNG\r\n\x1a\n...", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'><script>1</script></svg>", None),
        (b"<?xml version='1.0'?><svg/>", None),
        (b"<!doctype html>", None),
        (b"\x89PNG", None),
        (b"", None),
        (b"%PDF-1.7", None),
        (b"BM", None),
    ],
)
def test_only_four_kinds_of_image_are_shown(data: bytes, media: str | None) -> None:
    assert image_type(data) == media
    assert (media_of(data, "bytes") is not None) == has_picture(data) == (media is not None)


@pytest.mark.parametrize("shape", [(8, 9), (9, 8, 1), (10, 11, 3), (12, 8, 4)])
def test_pixels_become_a_picture(shape: tuple[int, ...]) -> None:
    pixels = np.arange(math.prod(shape), dtype=np.uint8).reshape(shape)
    assert is_pixels(pixels)
    image = Image.open(io.BytesIO(png(pixels)))
    assert np.array_equal(np.asarray(image), pixels.reshape(shape[:2]) if shape[2:] == (1,) else pixels)
    assert media_of(pixels, "uint8[*,*]") == ("image/png", png(pixels))


def test_other_arrays_are_no_pictures() -> None:
    for array in (np.zeros((9, 9), np.int8), np.zeros((9, 9, 2), np.uint8), np.zeros((2, 9), np.uint8), np.zeros(9)):
        assert not is_pixels(array)
        assert media_of(array, "uint8[*,*]") is None


def test_bytes_that_are_text_are_shown_as_text() -> None:
    assert described("grün".encode(), "bytes")["text"] == "grün"
    assert described(("a" * 511 + "ü").encode(), "bytes")["text"] == "a" * 511  # cut in the middle of a letter
    assert "text" not in described(b"\x00\xff", "bytes")
    assert described(b"AB\x00", "bytes")["hex"] == [["000000", "41 42 00", "AB."]]


def test_items_of_a_list_are_described_each() -> None:
    found = described([b"\xff\xd8\xff", b"x"], "jpeg[*]")
    assert [item["kind"] for item in found["items"]] == ["image", "bytes"]
    assert media_of([b"\xff\xd8\xff", b"x"], "bytes[*]", 0) == ("image/jpeg", b"\xff\xd8\xff")
    assert media_of([b"\xff\xd8\xff"], "bytes[*]", 1) is None
    assert media_of(b"\xff\xd8\xff", "bytes", 0) is None


def test_a_value_in_one_line() -> None:
    for value, text in (
        (None, "null"),
        ("a\n b", "a b"),
        (b"123", "3 bytes"),
        (np.array([1.5, 2]), "float64 2: 1.5 2.0"),
        ({"a": 1}, "{1 keys}"),
        ([1, 2], "[2 items]"),
        (np.float32(0.1), "0.1"),
    ):
        assert brief(value) == text
    assert len(brief("x" * 10**6)) <= 160
