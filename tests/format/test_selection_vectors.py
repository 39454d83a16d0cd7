"""The vectors of `selections-v1.json`: conditions, and files of selections."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mdsx.errors import CorruptError, FormatError, UnsupportedError, UsageError
from mdsx.format import (
    NUMBERS,
    ColumnLength,
    ColumnNull,
    ColumnValue,
    Reference,
    SelectionHead,
    StoredSelection,
    Vector,
    evaluate,
    filenames,
    parse_condition,
    parse_type,
    references,
    to_items,
)
from tests.format import reference
from tests.vectors import selections

FOLDER = Path(selections.__file__).parent
VECTORS: dict[str, Any] = json.loads((FOLDER / "selections-v1.json").read_text())
FINGERPRINT = json.loads((FOLDER / "good" / "plain" / "index.json").read_bytes())["fingerprint"]


def plain(text: str) -> str:
    """Return a text without characters that pytest would escape in a test's name."""
    return re.sub(r"[^ -~]", "?", text)


def test_the_file_is_that_of_the_reference() -> None:
    assert selections.text() == (FOLDER / "selections-v1.json").read_text()


def value(found: Any) -> Any:
    if isinstance(found, dict):
        return float(found["float"])
    return int(found) if isinstance(found, str) else found


def vector(asked: Reference) -> Vector:
    """Return what a reference is for the samples of the vectors."""
    if isinstance(asked, ColumnLength):
        if asked.name not in VECTORS["lengths"]:
            raise UsageError("it gives no lengths")
        return Vector(np.array(VECTORS["lengths"][asked.name]))
    if asked.name not in VECTORS["columns"]:
        raise UsageError("there is no such column")
    column = VECTORS["columns"][asked.name]
    base, values = NUMBERS[parse_type(column["type"]).base], [value(each) for each in column["values"]]
    nulls = np.array([each is None for each in values])
    if isinstance(asked, ColumnNull):
        return Vector(nulls)
    assert isinstance(asked, ColumnValue)
    items = to_items(base, [0 if each is None else each for each in values])
    return Vector(base.numpy(items), nulls if nulls.any() else None, base)


def chosen(text: str) -> list[int]:
    condition = parse_condition(text)
    found = evaluate(condition, {each: vector(each) for each in references(condition)})
    return np.flatnonzero(found.true).tolist()


@pytest.mark.parametrize("case", VECTORS["conditions"], ids=lambda case: plain(case["condition"]))
def test_a_condition_chooses_its_samples(case: dict[str, Any]) -> None:
    assert chosen(case["condition"]) == case["value"]


@pytest.mark.parametrize("case", VECTORS["refused"], ids=lambda case: plain(case["condition"][:40]))
def test_what_is_no_condition_is_refused(case: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        chosen(case["condition"])


def test_each_selection_has_its_file() -> None:
    for case in VECTORS["file_name"]:
        if case["value"] is None:
            with pytest.raises(ValueError) as caught:  # noqa: PT011
                filenames.selection(case["name"], FINGERPRINT)
            assert str(caught.value) == case["name"]
        else:
            assert filenames.selection(case["name"], FINGERPRINT) == case["value"]
            assert filenames.selection_of(case["value"]) == (case["name"], FINGERPRINT)
            assert filenames.is_of_dataset(case["value"])


def read(data: bytes) -> StoredSelection:
    found = StoredSelection.parse(data, file="x")
    found.check("some", FINGERPRINT, 5, file="x")
    return found


@pytest.mark.parametrize("case", VECTORS["files"], ids=lambda case: case["about"])
def test_a_file_is_read_or_refused(case: dict[str, Any]) -> None:
    data, expected = case["text"].encode(), case["value"]
    if isinstance(expected, str):
        with pytest.raises(FormatError) as caught:
            read(data)
        assert type(caught.value) is (CorruptError if expected == "corrupt" else UnsupportedError)
        assert caught.value.file == "x"
    else:
        found = read(data)
        assert [sample for sample in range(5) if found.bits[0] >> sample & 1] == expected
        assert SelectionHead.parse(data, file="x") == found.head


def test_the_golden_file_is_written() -> None:
    data = VECTORS["files"][0]["text"].encode()
    assert StoredSelection.parse(data, file="x").text() == data == selections.example()
    assert chosen("label = 3")  # the vectors are not empty


def test_the_bytes_before_the_bitmap_are_enough_for_the_head() -> None:
    good = selections.example()
    head = SelectionHead.parse(good[: good.index(b',"bitmap"')], file="x")
    assert head == StoredSelection.parse(good, file="x").head


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 16, 17, 24, 25, 72, 100])
def test_any_number_of_samples_is_read_and_written(count: int) -> None:
    marks = [number % 3 != 1 for number in range(count)]
    data = reference.selection("some", FINGERPRINT, "text = 'é'", marks)
    found = StoredSelection.parse(data, file="x")
    assert (found.head.samples, found.head.selected, found.text()) == (count, sum(marks), data)
    assert [bool(found.bits[number // 8] >> number % 8 & 1) for number in range(count)] == marks


@pytest.mark.parametrize(("count", "bitmap"), [(17, "AAAC"), (9, "AAI="), (17, "AAA="), (17, "AAAAAAAA")])
def test_a_bitmap_has_exactly_the_bits_of_the_samples(count: int, bitmap: str) -> None:
    good = reference.selection("some", FINGERPRINT, "", [False] * 17, selected=1, bitmap="AAAB")
    assert StoredSelection.parse(good, file="x").bits == b"\0\0\1"
    data = reference.selection("some", FINGERPRINT, "", [False] * count, selected=1, bitmap=bitmap)
    with pytest.raises(CorruptError) as caught:
        StoredSelection.parse(data, file="x")
    assert (caught.value.file, caught.value.place) == ("x", "bitmap")


def test_another_selection_is_told_by_its_first_other_field() -> None:
    found = StoredSelection.parse(selections.example(), file="x")
    right = {"name": "some", "fingerprint": FINGERPRINT, "samples": 5}
    for place, other in {"name": "same", "fingerprint": "0" * 32, "samples": 6}.items():
        with pytest.raises(CorruptError, match="another selection") as caught:
            found.check(**{**right, place: other}, file="x")
        error = caught.value
        assert (error.file, error.place, error.found, error.expected) == ("x", place, right[place], other)


def test_what_is_no_selection_of_this_version_is_refused() -> None:
    with pytest.raises(CorruptError) as other:
        SelectionHead.parse(b"{}", file="x")
    assert (other.value.message, other.value.file, other.value.found) == ("not a selection", "x", "b'{}'")
    with pytest.raises(UnsupportedError) as later:
        SelectionHead.parse(b'{"format":"mdsx-selection","version":2,', file="x")
    error = later.value
    assert (error.message, error.file, error.found) == ("a selection of a later version", "x", "2")
    assert (error.expected, error.hint) == (1, "upgrade mdsx")


def test_a_condition_that_is_too_long_is_refused() -> None:
    longest = reference.selection("some", FINGERPRINT, "x" * 2**20, [True])
    assert len(StoredSelection.parse(longest, file="x").head.where) == 2**20
    data = reference.selection("some", FINGERPRINT, "x" * (2**20 + 1), [True])
    with pytest.raises(CorruptError, match="too long") as caught:
        StoredSelection.parse(data, file="x")
    assert (caught.value.file, caught.value.place, caught.value.found) == ("x", "where", 2**20 + 1)


def test_no_changed_byte_passes() -> None:
    good = selections.example()
    for at in range(len(good)):
        for change in (1, 128):
            with pytest.raises(FormatError):
                read(good[:at] + bytes([good[at] ^ change]) + good[at + 1 :])


def test_damage_is_told_from_a_missing_end() -> None:
    good = selections.example()
    with pytest.raises(CorruptError, match=rf"expected {good[-19:-3].decode()}, found [0-9a-f]{{16}}"):
        read(good.replace(b'"some"', b'"same"'))
    with pytest.raises(CorruptError, match="end: the file ends before its checksum"):
        read(good[:-1])
