"""Selected samples: where their values are, copies of them, and the errors that name them."""

from __future__ import annotations

import numpy as np
import pytest

from mdsx.errors import CorruptError
from mdsx.format import Encoder, RowLayout, Rows, Schema, Selection, ShardView, Values
from tests.format import by_the_book
from tests.format.reference import patch, row_at

COLUMNS = {"text": "str", "id": "uint16", "note": "bytes?"}
SCHEMA = Schema.from_columns(COLUMNS)
SHARD = by_the_book.shard(
    COLUMNS,
    [
        {"text": b"zero", "id": b"\0\0", "note": None},
        {"text": b"one", "id": b"\1\0", "note": b"n"},
        {"text": b"two", "id": b"\2\0", "note": b""},
    ],
)
DAMAGED = patch(SHARD, row_at(SHARD, 2) + 8, b"\xee")  # its heap bytes would begin at byte 238


def select(shard: bytes, samples: list[int], file: str = "x") -> Selection:
    return ShardView.parse(shard, file=file).select(np.array(samples), verify=False)


def both(first: Selection, second: Selection) -> Rows:
    """Return the rows of the second selection, followed by those of the first."""
    source = np.repeat([1, 0], [len(second.take), len(first.take)])
    samples = np.concatenate((second.samples, first.samples))
    return Rows([first, second], source, samples, np.concatenate((second.addresses, first.addresses)))


def test_values_of_several_shards_are_located_within_their_heaps() -> None:
    first, second = select(SHARD, [2, 0]), select(SHARD, [1])
    rows = both(first, second)
    found = RowLayout(SCHEMA).locate(rows, [2, 0, 1])
    text, note, ids = found[0], found[2], found[1]
    assert isinstance(text, Values)
    assert isinstance(note, Values)
    assert (text.starts.tolist(), text.stops.tolist(), text.nulls) == ([4, 8, 0], [7, 11, 4], None)
    assert (note.starts.tolist(), note.stops.tolist()) == ([7, 11, 4], [8, 11, 4])
    assert text.starts.dtype == text.stops.dtype == np.int64
    assert note.nulls is not None
    assert note.nulls.tolist() == [False, False, True]
    assert isinstance(ids, np.ndarray)
    assert (ids - rows.addresses).tolist() == [24] * 3
    assert list(RowLayout(SCHEMA).locate(rows, [1])) == [1]


def test_a_damaged_row_is_named_with_its_file() -> None:
    rows = both(select(SHARD, [0], "good"), select(DAMAGED, [1, 2], "bad"))
    with pytest.raises(CorruptError, match="outside the heap") as caught:
        RowLayout(SCHEMA).locate(rows, [2])
    error = caught.value
    assert (error.file, error.place) == ("bad", "sample 2")
    assert (error.found, error.expected) == ("3 bytes from 238", "within 11")
    assert list(RowLayout(SCHEMA).locate(rows, [1])) == [1]


def test_an_error_of_a_row_names_its_sample() -> None:
    rows = both(select(SHARD, [0], "first"), select(SHARD, [2, 1], "second"))
    error = rows.corrupt(1, "wrong", found=3, expected=4)
    assert (error.message, error.file, error.place) == ("wrong", "second", "sample 1")
    assert (error.found, error.expected) == (3, 4)
    some = rows[np.array([False, True, True])]
    assert [(some.file(row), some.corrupt(row, "").place) for row in range(2)] == [
        ("second", "sample 1"),
        ("first", "sample 0"),
    ]


def test_a_copy_has_only_its_samples() -> None:
    copy = select(SHARD, [2, 0, 2]).copied()
    assert (copy.file, copy.samples.tolist(), copy.take.tolist()) == ("x", [2, 0, 2], [0, 1, 2])
    assert (copy.rows["column1"].tolist(), copy.rows["start"].tolist()) == ([2, 0, 2], [0, 3, 7])
    assert bytes(copy.heap) == b"twozerotwo"
    fixed = select(by_the_book.shard({"id": "uint8"}, [{"id": b"\1"}, {"id": b"\2"}]), [1]).copied()
    assert (fixed.rows["column0"].tolist(), bytes(fixed.heap)) == ([2], b"")
    with pytest.raises(CorruptError) as caught:
        select(DAMAGED, [0, 2]).copied()
    assert (caught.value.file, caught.value.place) == ("x", "sample 2")


def test_each_sample_is_a_selection() -> None:
    found = select(SHARD, [2, 0]).each()
    assert [(each.samples.tolist(), each.take.tolist(), bytes(each.copied().heap)) for each in found] == [
        ([2], [2], b"two"),
        ([0], [0], b"zero"),
    ]


def test_encoded_values_are_selected_as_samples_of_a_file() -> None:
    encoded = Encoder(SCHEMA).batch({"text": ["a", "bc"], "id": np.array([5, 6], np.uint16), "note": [b"d", None]})
    found = Selection.of(SCHEMA, "x", np.array([7, 3]), encoded)
    assert (found.file, found.samples.tolist(), found.take.tolist()) == ("x", [7, 3], [0, 1])
    assert (found.rows["column1"].tolist(), found.rows["start"].tolist()) == ([5, 6], [0, 2])
    assert (found.rows["lengths"].tolist(), bytes(found.heap)) == ([[1, 1], [2, 2**32 - 1]], b"adbc")
    assert bytes(found.copied().heap) == b"adbc"
