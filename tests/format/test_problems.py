"""What the full check says of each kind of damage: the sample and column, what was found and what was expected."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

from mdsx.errors import CorruptError
from mdsx.format import Schema, ShardView, check_shard
from mdsx.format.check import MAX_PROBLEMS, bounded, find_problems, stored_votes
from tests.format import by_the_book
from tests.format.reference import emptied, get, patch, row_at, row_checksums, seal_rows, with_key

COLUMNS = {"id": "uint16", "text": "str", "ok": "bool", "note": "json?"}
TEXTS = ["one", "two2", "três", "four"]
NOTES = [None, b"[2]", b"3", None]
SHARD = by_the_book.shard(
    COLUMNS,
    [
        {"id": bytes([number, 0]), "text": text.encode(), "ok": b"\1", "note": note}
        for number, (text, note) in enumerate(zip(TEXTS, NOTES, strict=True))
    ],
)
HEAP = get(SHARD, "heap_offset")
START, LENGTH, ID, OK, PADDING = 8, 16, 24, 26, 27
"""Offsets in a row."""


class Facts(NamedTuple):
    place: str | None
    message: str
    found: object = None
    expected: object = None


def facts(error: CorruptError) -> Facts:
    return Facts(error.place, error.message, error.found, error.expected)


def found(shard: bytes) -> list[Facts]:
    problems = check_shard(shard, file="a shard")
    assert all(problem.file == "a shard" for problem in problems)
    return [facts(problem) for problem in problems]


def at(sample: int, offset: int, new: bytes, shard: bytes = SHARD) -> bytes:
    """Return the shard with other bytes in a row."""
    return patch(shard, row_at(shard, sample) + offset, new)


def pair(shard: bytes, sample: int) -> tuple[str, str]:
    """Return the checksum that a sample should store, and the one that it stores."""
    computed = row_checksums(shard)[sample] ^ get(shard, "row_key")
    (stored,) = struct.unpack_from("<Q", shard, row_at(shard, sample))
    return f"{computed:016x}", f"{stored:016x}"


MISMATCH = "its checksum does not match its bytes"


# --- one sample


def test_an_undamaged_shard_has_no_problems() -> None:
    assert found(SHARD) == []
    view = ShardView.parse(SHARD)
    assert check_shard(SHARD, schema=view.schema, row_key=view.row_key) == []


def test_bytes_that_are_not_zero_between_fields_are_named() -> None:
    for damaged in (at(2, PADDING, b"\1"), seal_rows(at(2, PADDING, b"\1")), at(2, 31, b"\1")):
        assert found(damaged) == [Facts("sample 2, padding of the row", "it is not zero")]


def test_an_invalid_bool_is_named() -> None:
    for damaged in (at(1, OK, b"\2"), seal_rows(at(1, OK, b"\2"))):
        assert found(damaged) == [Facts("sample 1, column 'ok'", "a bool is neither 0 nor 1")]


def test_a_wrong_checksum_has_its_place_if_it_is_known() -> None:
    number = at(3, ID, b"\7")
    assert found(number) == [Facts("sample 3", MISMATCH, *pair(number, 3))]
    text = patch(SHARD, HEAP + 2, b"\xff")
    (problem,) = found(text)
    assert problem[2:] == pair(text, 0)
    assert problem.place == "sample 0, column 'text'"
    assert problem.message.startswith(f"{MISMATCH}: this is not UTF-8")
    note = patch(SHARD, HEAP + len("onetwo2"), b"x")
    (problem,) = found(note)
    assert problem.place == "sample 1, column 'note'"
    assert problem.message.startswith(f"{MISMATCH}: ")


def test_extents_that_do_not_fit_between_the_neighbours_are_named() -> None:
    for sample, offset, new in ((1, START, b"\2"), (1, LENGTH, b"\3"), (0, START, b"\1"), (3, LENGTH, b"\3")):
        damaged = at(sample, offset, new)
        assert found(damaged) == [Facts(f"sample {sample}, start and lengths", MISMATCH, *pair(damaged, sample))]


def test_a_sample_between_damaged_ones_is_not_blamed_for_them() -> None:
    damaged = at(0, ID, b"\7", at(1, ID, b"\7", at(2, ID, b"\7")))
    assert found(damaged) == [Facts(f"sample {sample}", MISMATCH, *pair(damaged, sample)) for sample in range(3)]
    damaged = at(1, LENGTH, b"\1", at(2, LENGTH, b"\1"))
    assert [problem.place for problem in found(damaged)] == ["sample 1", "sample 2, start and lengths"]
    damaged = at(1, LENGTH, b"\3", at(2, ID, b"\7"))
    assert [problem.place for problem in found(damaged)] == ["sample 1", "sample 2"]
    damaged = at(0, START, struct.pack("<QI", 1, 2), at(3, ID, b"\7"))
    assert [problem.place for problem in found(damaged)] == ["sample 0, start and lengths", "sample 3"]
    damaged = at(0, ID, b"\7", at(2, START, b"\1", at(3, ID, b"\7")))
    assert [problem.place for problem in found(damaged)] == ["sample 0", "sample 2, start and lengths", "sample 3"]


def test_bytes_outside_the_heap_are_named() -> None:
    size, heap = get(SHARD, "file_size"), len(SHARD) - HEAP
    assert size == len(SHARD)
    assert found(at(1, START, b"\xff" * 8)) == [
        Facts("sample 1", "its heap bytes lie outside the heap", f"7 bytes from {2**64 - 1}", f"within {heap}")
    ]
    assert found(at(1, LENGTH, b"\xff" * 4)) == [
        Facts("sample 1, column 'text'", "null in a column that is not nullable")
    ]


def test_a_damaged_checksum_of_undamaged_bytes_is_named() -> None:
    damaged = at(2, 0, bytes(8))
    says = "its bytes are right, but its stored checksum is not"
    assert found(damaged) == [Facts("sample 2", says, *pair(damaged, 2))]
    (problem,) = find_problems(ShardView.parse(damaged))
    assert (problem.sample, problem.proven) == (2, True)
    (problem,) = find_problems(ShardView.parse(at(2, ID, b"\7")))
    assert (problem.sample, problem.proven) == (2, False)


def test_a_value_that_a_faulty_writer_wrote_is_named() -> None:
    damaged = seal_rows(patch(SHARD, HEAP + len("onetwo2"), b"x"))
    (problem,) = found(damaged)
    assert problem.place == "sample 1, column 'note'"
    assert "JSON" in problem.message
    assert check_shard(damaged, values=False) == []


# --- all samples


def test_samples_are_numbered_in_the_dataset_too() -> None:
    for damaged in (at(1, ID, b"\7"), at(1, START, b"\xff" * 8), seal_rows(patch(SHARD, HEAP + 3, b"\xff"))):
        (problem,) = find_problems(ShardView.parse(damaged), first=70)
        assert str(problem.error.place).startswith("sample 1 (71 of the dataset)")


def test_samples_that_leave_bytes_out_or_share_them_are_named() -> None:
    shard = by_the_book.shard({"text": "str"}, [{"text": b"abcd"}] * 3)
    says = "its heap bytes do not begin where those before end"
    for sample, start in ((1, 5), (1, 3), (0, 2)):
        new = at(sample, START, bytes([start]), shard)
        new = at(sample, LENGTH, bytes([4 * sample + 4 - start]), new)
        assert found(seal_rows(new)) == [Facts(f"sample {sample}", says, start, 4 * sample)]
        assert [problem.sample for problem in find_problems(ShardView.parse(seal_rows(new)))] == [sample]
    alone = by_the_book.shard({"text": "str"}, [{"text": b"abcd"}])
    assert found(seal_rows(at(0, START, struct.pack("<QI", 1, 3), alone))) == [Facts("sample 0", says, 1, 0)]
    shorter = at(2, LENGTH, b"\3", shard)
    assert found(seal_rows(shorter)) == [Facts("heap", "the samples do not fill it", 11, 12)]


def test_samples_that_claim_the_same_bytes_again_and_again_are_not_read() -> None:
    """Four heaps and a block is still read."""
    for count in (8, 9, 10):
        shard = by_the_book.shard({"text": "str"}, [{"text": b"x" * 1024}, *[{"text": b""}] * (count - 1)])
        for sample in range(count):
            shard = at(sample, START, struct.pack("<QI", 0, 1024), shard)
        if count == 8:
            problem = Facts(None, "its heap bytes do not begin where those before end", 0, 1024)
        else:
            problem = Facts(None, "its heap bytes also belong to other samples")
        expected = [problem._replace(place=f"sample {sample}") for sample in range(1, count)]
        assert found(seal_rows(shard)) == expected
        problems = find_problems(ShardView.parse(seal_rows(shard)))
        assert [problem.sample for problem in problems] == [*range(1, count)]
    expected[3] = Facts("sample 4", "its heap bytes lie outside the heap", f"1024 bytes from {2**40}", "within 1024")
    assert found(at(4, START, struct.pack("<Q", 2**40), shard))[3] == expected[3]


def test_rows_of_another_key_are_named() -> None:
    key = get(SHARD, "row_key") ^ 1
    other = with_key(SHARD, key, row_checksums(SHARD))
    expected = [Facts("row key", "it does not match the shard's samples", f"{key ^ 1:016x}", f"{key:016x}")]
    assert found(other) == expected
    assert [facts(problem.error) for problem in find_problems(ShardView.parse(other))] == expected
    (problem,) = find_problems(ShardView.parse(other))
    assert (problem.sample, problem.proven) == (None, False)


def test_the_index_says_which_shard_is_expected() -> None:
    view = ShardView.parse(SHARD)
    other = Schema.from_columns({"id": "uint16"})
    for schema, key, place in ((view.schema, view.row_key ^ 1, "row key"), (other, view.row_key, "schema")):
        (problem,) = check_shard(SHARD, file="a shard", schema=schema, row_key=key)
        assert (problem.file, problem.place) == ("a shard", place)


def test_an_empty_shard_has_no_problems() -> None:
    assert check_shard(emptied(SHARD)) == []
    assert check_shard(emptied(by_the_book.shard({"id": "uint16"}, [{"id": b"ab"}]))) == []


# --- a part of a shard


def test_only_known_samples_are_checked() -> None:
    damaged = at(1, ID, b"\7", at(2, START, b"\xff" * 8))
    damaged = at(3, OK, b"\2", at(0, PADDING, b"\1", damaged))
    for sample in range(4):
        known = np.arange(4) == sample
        (problem,) = find_problems(ShardView.parse(damaged), known=known)
        assert problem.sample == sample
    assert list(find_problems(ShardView.parse(damaged), known=np.zeros(4, np.bool_))) == []
    elsewhere = ShardView.parse(at(1, START, struct.pack("<QI", 2**40, 2**31)))
    assert list(find_problems(elsewhere, known=np.arange(4) != 1)) == []


def test_the_end_of_a_truncated_shard_may_be_missing() -> None:
    view = ShardView.parse(SHARD)
    rows, heap = replace(view, rows=view.rows[:2]), replace(view, heap=view.heap[:11])
    assert list(find_problems(rows, samples=4)) == []
    of_heap, of_key = find_problems(rows)
    assert facts(of_heap.error) == Facts("heap", "the samples do not fill it", 10, len(view.heap))
    assert of_key.error.place == "row key"
    known = np.arange(4) < 2
    assert list(find_problems(heap, known=known, heap_size=len(view.heap))) == []
    (problem,) = find_problems(replace(heap, rows=view.rows[:3]), samples=4)
    assert facts(problem.error)[1:] == ("its heap bytes lie outside the heap", "6 bytes from 10", "within 11")


def test_only_a_neighbour_or_the_end_shows_where_the_bytes_of_a_sample_end() -> None:
    damaged = at(1, LENGTH, b"\3")
    view = ShardView.parse(damaged)
    (problem,) = find_problems(replace(view, rows=view.rows[:2]), samples=4)
    assert problem.error.place == "sample 1"
    (problem,) = find_problems(view, known=np.arange(4) < 2)
    assert problem.error.place == "sample 1"
    problem, *_ = find_problems(replace(view, rows=view.rows[:2]))
    assert problem.error.place == "sample 1, start and lengths"


def test_each_sample_implies_a_row_key() -> None:
    view, key = ShardView.parse(SHARD), get(SHARD, "row_key")
    everything = np.ones(4, np.bool_)
    votes, of_all = stored_votes(view, everything, 4, len(view.heap))
    assert (votes.tolist(), of_all) == ([key] * 4, key)
    votes, of_all = stored_votes(view, np.array([True, False, True, False]), 4, len(view.heap))
    assert (votes.tolist(), of_all) == ([key] * 2, None)
    outside = ShardView.parse(at(1, START, b"\xff" * 8))
    votes, of_all = stored_votes(outside, everything, 4, len(view.heap))
    assert (votes.tolist(), of_all) == ([key] * 3, None)
    votes, of_all = stored_votes(view, everything, 5, len(view.heap))
    assert (votes.tolist(), of_all) == ([key] * 4, None)


def test_at_most_1000_problems_are_listed() -> None:
    shard = by_the_book.shard({"a": "bool"}, [{"a": b"\2"}] * 1001)
    assert len(found(shard)) == 1001
    errors = [CorruptError(f"{number}") for number in range(MAX_PROBLEMS + 2)]
    assert MAX_PROBLEMS == 1000
    assert bounded(iter(errors[:1000]), "a shard") == errors[:1000]
    for count in (1001, 1002):
        left = iter(errors[:count])
        listed = bounded(left, "a shard")
        assert listed[:1000] == errors[:1000]
        assert [facts(error) for error in listed[1000:]] == [Facts(None, "there are more than 1000 problems")]
        assert listed[-1].file == "a shard"
        assert len(list(left)) == count - 1001


# --- values


@pytest.mark.parametrize("second", ["str?", "json?"])
def test_every_value_is_decoded_in_shards_of_any_size(second: str) -> None:
    """Samples are decoded in blocks of 4096."""
    good: dict[str, bytes | None] = {"a": "é".encode(), "b": b"1"}
    bad: dict[str, bytes | None] = {"a": "é".encode(), "b": b"\xff"}
    null: dict[str, bytes | None] = {"a": b"", "b": None}
    for wrong in (0, 1, 4095, 4096, 4099):
        samples = [good, null, good] * 1366 + [null, good]
        samples[wrong] = bad
        shard = by_the_book.shard({"a": "str", "b": second}, samples)
        assert [problem.place for problem in found(shard)] == [f"sample {wrong}, column 'b'"]
    samples[0] = bad
    shard = by_the_book.shard({"a": "str", "b": second}, samples)
    assert [problem.sample for problem in find_problems(ShardView.parse(shard))] == [0, 4099]


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("str", b"a", b"\xff"),
        ("str", b"a", b"a" * 2**22 + b"\xff"),
        ("json", b"1", b"{"),
        ("msgpack", b"\1", b"\xc1"),
        ("str[*]", struct.pack("<2I", 1, 1) + b"a", struct.pack("<2I", 1, 5) + b"a"),
        ("bool[*]", struct.pack("<I", 1) + b"\1", struct.pack("<I", 1) + b"\2"),
    ],
)
def test_values_of_each_kind_are_decoded(kind: str, good: bytes, bad: bytes) -> None:
    shard = by_the_book.shard({"x": kind}, [{"x": good}, {"x": bad}, {"x": good}])
    assert [problem.place for problem in found(shard)] == ["sample 1, column 'x'"]
    shard = by_the_book.shard({"null": "str?", "x": kind}, [{"null": None, "x": value} for value in (good, bad)])
    assert [problem.place for problem in found(shard)] == ["sample 1, column 'x'"]


def test_bytes_are_right_whatever_they_are() -> None:
    """So are values of unknown types and of packages' types."""
    columns = dict.fromkeys("abcde", "bytes") | {"b": "video", "c": "video[*]", "d": "acme.clip", "e": "str"}
    for text, places in ((b"a", []), (b"\xff", ["sample 0, column 'e'"])):
        shard = by_the_book.shard(columns, [dict.fromkeys("abcd", b"\xff") | {"e": text}])
        assert [problem.place for problem in found(shard)] == places
    shard = by_the_book.shard({"d": "acme.clip[*]"}, [{"d": b"\xff"}])
    assert [problem.place for problem in found(shard)] == ["sample 0, column 'd'"]


def test_two_values_that_divide_a_character_are_wrong() -> None:
    shard = by_the_book.shard({"text": "str"}, [{"text": b"\xc3"}, {"text": b"\xa9"}])
    assert [problem.place for problem in found(shard)] == ["sample 0, column 'text'", "sample 1, column 'text'"]
