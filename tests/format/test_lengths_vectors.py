"""The vectors of `lengths-v1.json`, and of `windows-v1.json`."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mdsx.errors import CorruptError, FormatError, UnsupportedError, UsageError
from mdsx.format import STORED_LENGTH, LengthIdentity, LengthTrailer, ShardView, filenames, length_rule, parse_type
from mdsx.format.lengths import (
    length_rules,
    lengths_of_rows,
    lengths_of_selection,
    lengths_of_sizes,
    values_of_selection,
)
from mdsx.order import default_window
from tests.format.by_the_book import shard
from tests.vectors import lengths

FOLDER = Path(lengths.__file__).parent
VECTORS: dict[str, Any] = json.loads((FOLDER / "lengths-v1.json").read_text())
WINDOWS: dict[str, Any] = json.loads((FOLDER / "windows-v1.json").read_text())
IDENTITY = LengthIdentity("c344224789ad69dcc5e596e908f5ceeb", "text", "bytes")


def test_the_files_are_those_of_the_reference() -> None:
    assert lengths.text() == (FOLDER / "lengths-v1.json").read_text()
    assert lengths.windows_text() == (FOLDER / "windows-v1.json").read_text()


def test_each_column_has_its_file() -> None:
    for vector in VECTORS["file_name"]:
        assert filenames.lengths(vector["column"]) == vector["value"]


@pytest.mark.parametrize("vector", VECTORS["lengths"], ids=lambda vector: f"{vector['type']} {vector['bytes']}")
def test_lengths_follow_from_the_rows(vector: dict[str, Any]) -> None:
    values = [given if given is None else bytes.fromhex(given) for given in vector["bytes"]]
    view = ShardView.parse(shard({"a": vector["type"]}, [{"a": value} for value in values]), file="x")
    selection = view.select(np.arange(view.samples), verify=False)
    reads: list[Callable[[], NDArray[np.int64]]] = [
        lambda: lengths_of_rows(view.schema, view.rows, len(view.heap), 0, file="x"),
        lambda: lengths_of_selection(selection, 0),
    ]
    for read in reads:
        if vector["value"] is None:
            with pytest.raises((CorruptError, UsageError), match=r"^x: sample 0: "):
                read()
        else:
            found = read()
            assert found.tolist() == vector["value"]
            assert found.dtype == np.dtype(np.int64)


def test_lengths_without_null_follow_from_the_sizes() -> None:
    assert lengths_of_sizes(parse_type("uint16[*]"), np.array([4, 8]), file="x").tolist() == [0, 2]
    with pytest.raises(CorruptError, match=r"^x: sample 1: the value's size is wrong for type 'uint16\[\*\]'"):
        lengths_of_sizes(parse_type("uint16[*]"), np.array([4, 7]), file="x")


def test_a_number_that_is_no_length_is_named() -> None:
    view = ShardView.parse(shard({"a": "int16"}, [{"a": b"\1\0"}, {"a": b"\xff\xff"}]), file="x")
    with pytest.raises(UsageError) as caught:
        view.lengths(0)
    error = caught.value
    assert (error.file, error.place, error.found, error.expected) == ("x", "sample 1", -1, "0 to 4294967295")


def test_heap_bytes_that_are_not_consecutive_are_named() -> None:
    whole = ShardView.parse(shard({"a": "str"}, [{"a": b"abc"}, {"a": b"de"}]))
    rows = whole.rows.copy()
    for start, size, facts in ((2, 5, ("sample 1", 2, 3)), (3, 6, ("sample 2", 6, 5))):
        rows["start"][1] = start
        with pytest.raises(CorruptError, match="not consecutive") as caught:
            lengths_of_rows(whole.schema, rows, size, 0, file="x")
        assert (caught.value.file, caught.value.place, caught.value.found, caught.value.expected) == ("x", *facts)
    rows["start"][1] = 9
    with pytest.raises(CorruptError, match=r"^x: sample 1: its heap bytes lie outside the heap"):
        lengths_of_rows(whole.schema, rows, 5, 0, file="x")


def test_stored_bytes_are_those_of_the_selected_samples() -> None:
    columns = {"a": "str", "b": "bytes?"}
    samples: list[dict[str, bytes | None]] = [{"a": b"a", "b": b"bc"}, {"a": b"", "b": None}, {"a": b"d", "b": b""}]
    view = ShardView.parse(shard(columns, samples))
    found = view.select(np.array([2, 1, 0]), verify=True)
    assert [each if each is None else bytes(each) for each in values_of_selection(found, 1)] == [b"", None, b"bc"]
    assert [each if each is None else bytes(each) for each in values_of_selection(found, 0)] == [b"d", b"", b"a"]


def test_only_images_have_sides() -> None:
    sides = {text: length_rules(parse_type(text)) for text in ("png?", "bytes", "png[*]", "uint8[*]", "int8", "str")}
    assert sides == {
        "png?": ("bytes", "height", "width"), "bytes": ("bytes", "height", "width"), "png[*]": (),
        "uint8[*]": ("values",),
        "int8": ("number",), "str": ("bytes",),
    }  # fmt: skip


def test_other_columns_give_no_lengths() -> None:
    assert [length_rule(parse_type(vector["type"])) for vector in VECTORS["no_rule"]] == [None] * len(
        VECTORS["no_rule"]
    )


def read(data: bytes) -> list[list[int]]:
    """Return the lengths of each shard, checked as a reader does."""
    trailer, found, start = LengthTrailer.parse(data[20:], file="x"), [], 0
    trailer.check(IDENTITY, [2, 3], file="x")
    for number, count in enumerate((2, 3)):
        part = np.frombuffer(data, STORED_LENGTH, count, start)
        if IDENTITY.hash(number, part) != trailer.hashes[number]:
            raise CorruptError("damaged")
        found.append(part.tolist())
        start += 4 * count
    return found


@pytest.mark.parametrize("vector", VECTORS["files"], ids=lambda vector: vector["about"])
def test_a_file_of_lengths_is_read_or_refused(vector: dict[str, Any]) -> None:
    data, expected = bytes.fromhex(vector["hex"]), vector["value"]
    if expected in ("corrupt", "unsupported"):
        with pytest.raises(FormatError) as caught:
            read(data)
        assert type(caught.value) is (CorruptError if expected == "corrupt" else UnsupportedError)
    elif expected != "either":
        assert read(data) == expected


def test_default_windows_follow_the_vectors() -> None:
    for vector in WINDOWS["default_window"]:
        known = [each for each in vector["components"] if each is not None]
        sums = [Fraction(each["sum"]) if "sum" in each else Fraction(each["heap"], each["item"]) for each in known]
        mean = Fraction(sum(sums), samples) if (samples := sum(each["samples"] for each in known)) else None
        found = default_window(vector["capacity"], mean if len(known) == len(vector["components"]) else None)
        assert found == vector["value"]
