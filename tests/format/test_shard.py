"""Reading shards: the checks on opening, on an access, and of the full check."""

from __future__ import annotations

import contextlib
import itertools
import time
import tracemalloc
from typing import Any

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from mdsx.errors import CorruptError, FormatError, UnsupportedError, UsageError
from mdsx.format import NULL, Schema, ShardView, check_shard, header_row_key, raw_size
from mdsx.format.rows import DAMAGED_HINT, heap_extents, row_checksum, row_key
from mdsx.format.shard import build_header, parse_header, shard_checksums
from tests.format import by_the_book
from tests.format.reference import emptied, enlarged, get, patch, put, row_at, rows_offset, seal, seal_rows

COLUMNS = {"id": "uint16", "ok": "bool", "text": "str", "note": "bytes?"}
SAMPLES: list[dict[str, bytes | None]] = [
    {"id": b"\1\0", "ok": b"\1", "text": b"one", "note": None},
    {"id": b"\2\0", "ok": b"\0", "text": b"", "note": b"12"},
    {"id": b"\3\0", "ok": b"\0", "text": "drei ß".encode(), "note": b""},
]
SHARD = by_the_book.shard(COLUMNS, SAMPLES)


def test_a_shard_is_rows_and_heap_without_a_copy() -> None:
    view = ShardView.parse(SHARD, file="a.mdsx")
    assert view.samples == 3
    assert view.schema == Schema.from_columns(COLUMNS)
    assert view.rows["column0"].tolist() == [1, 2, 3]
    assert view.rows["lengths"].tolist() == [[3, NULL], [0, 2], [7, 0]]
    assert bytes(view.heap) == b"one12" + "drei ß".encode()
    assert np.shares_memory(view.rows.view(np.uint8), np.frombuffer(SHARD, np.uint8))
    assert not view.rows.flags.writeable


def test_a_writable_buffer_is_read_and_not_written() -> None:
    view = ShardView.parse(bytearray(SHARD))
    assert not view.rows.flags.writeable
    assert view.heap.readonly
    assert ShardView.parse(memoryview(SHARD).cast("b")).heap.format == "B"
    assert check_shard(bytearray(SHARD)) == []


def test_the_header_can_be_built_and_read() -> None:
    schema = Schema.from_columns(COLUMNS)
    head = build_header(schema, 3, 12, get(SHARD, "row_key"))
    assert SHARD.startswith(head)
    assert len(SHARD) == raw_size(schema, 3, 12)
    header = parse_header(head, size=len(SHARD))
    assert (header.samples, header.row_size, header.rows_offset) == (3, 32, len(head))
    assert header_row_key(head) == header.row_key == get(SHARD, "row_key")


def test_a_header_without_its_padding_is_refused() -> None:
    head = build_header(Schema.from_columns(COLUMNS), 3, 12, 0)
    with pytest.raises(CorruptError, match="ends before its rows begin"):
        parse_header(head[:-1], size=len(SHARD))


FIXED = by_the_book.shard({"id": "uint8"}, [{"id": b"\1"}, {"id": b"\2"}])
LONGER = put(SHARD, file_size=len(SHARD) + 1)
EMPTY = emptied(SHARD)


@pytest.mark.parametrize(
    ("data", "place", "found", "expected"),
    [
        (SHARD[:63], "header", 63, "64 or more bytes"),
        (patch(SHARD, 0, b"x"), "magic", "78 4d 44 53 58 0d 0a 1a", "89 4d 44 53 58 0d 0a 1a"),
        (put(SHARD, major=0), "major version", 0, 1),
        (seal(put(SHARD, header_size=68)), "header size", 68, "a multiple of 8 from 64 to 4096"),
        (seal(put(SHARD, header_size=4104)), "header size", 4104, "a multiple of 8 from 64 to 4096"),
        (put(SHARD, schema_size=2**20 + 1), "schema size", 2**20 + 1, "at most 1 MiB"),
        (SHARD[:70], "schema", 70, f"{64 + get(SHARD, 'schema_size')} or more bytes"),
        (put(SHARD, checksum=1), "header checksum", f"{get(SHARD, 'checksum'):016x}", "0000000000000001"),
        (seal(put(SHARD, row_size=36)), "row size", 36, "a multiple of 8 below 2^31"),
        (seal(put(SHARD, row_size=2**31)), "row size", 2**31, "a multiple of 8 below 2^31"),
        (seal(put(SHARD, heap_offset=1)), "offset of the heap", 1, get(SHARD, "heap_offset")),
        (seal(put(SHARD, file_size=2**63)), "file size", 2**63, "below 2^63"),
        (seal(LONGER), "file size", f"{len(SHARD)} bytes", len(SHARD) + 1),
        (seal(put(FIXED[:-1], file_size=len(FIXED) - 1)), "file size", len(FIXED) - 1, len(FIXED)),
        (seal(put(SHARD, row_size=24)), "row size", 24, 32),
        (seal(put(FIXED, file_size=len(FIXED) + 1)) + b"!", "heap", len(FIXED) + 1, len(FIXED)),
        (seal(put(EMPTY, file_size=len(EMPTY) + 1)) + b"!", "heap", len(EMPTY) + 1, len(EMPTY)),
    ],
)
def test_an_error_of_the_header_shows_what_was_found(data: bytes, place: str, found: object, expected: object) -> None:
    with pytest.raises(CorruptError) as caught:
        parse_header(data, size=len(data), file="x")
    error = caught.value
    assert (error.file, error.place, error.found, error.expected) == ("x", place, found, expected)


def test_a_later_version_is_named() -> None:
    with pytest.raises(UnsupportedError, match=r"of version 3\.7, this reader knows 1") as caught:
        parse_header(put(SHARD, major=3, minor=7), size=len(SHARD), file="x")
    error = caught.value
    assert (error.file, error.place, error.found, error.expected) == ("x", "major version", 3, 1)
    assert error.hint == "upgrade mdsx"


def test_the_largest_header_is_read() -> None:
    assert ShardView.parse(enlarged(SHARD, 4096)).rows_offset == 4096 + rows_offset(SHARD) - 64


def test_no_shard_of_2_63_bytes_is_built() -> None:
    schema = Schema.from_columns(COLUMNS)
    most = 2**63 - 1 - raw_size(schema, 1, 0)
    assert get(build_header(schema, 1, most, 0), "file_size") == 2**63 - 1
    with pytest.raises(UsageError, match="smaller than 2\\^63") as caught:
        build_header(schema, 1, most + 1, 0)
    assert caught.value.found == 2**63


def test_the_schema_of_another_shard_is_shown() -> None:
    shard = by_the_book.shard({"a" * 255: "uint8"}, [{"a" * 255: b"\1"}])
    schema = Schema.from_columns({"b" * 255: "uint8"})
    with pytest.raises(CorruptError) as caught:
        parse_header(shard, size=len(shard), file="x", schema=schema)
    error = caught.value
    start = b'[{"name":"'
    assert (error.file, error.place) == ("x", "schema")
    assert (error.found, error.expected) == (start + b"a" * 190, start + b"b" * 190)


def test_the_row_key_of_another_shard_is_shown() -> None:
    key = get(SHARD, "row_key")
    with pytest.raises(CorruptError) as caught:
        ShardView.parse(SHARD, file="x", row_key=0)
    error = caught.value
    assert (error.file, error.place, error.found, error.expected) == ("x", "row key", f"{key:016x}", "0" * 16)


def test_a_stored_schema_that_is_none_names_its_place() -> None:
    at = SHARD.index(b'"name"')
    with pytest.raises(CorruptError) as caught:
        ShardView.parse(seal(patch(SHARD, at, b"!")), file="x")
    assert (caught.value.file, caught.value.place) == ("x", "schema, character 1")


def test_the_schema_must_be_that_of_the_index() -> None:
    other = Schema.from_columns({**COLUMNS, "note": "str?"})
    with pytest.raises(CorruptError, match="schema: it is not the index's"):
        ShardView.parse(SHARD, schema=other)
    assert ShardView.parse(SHARD, schema=Schema.from_columns(COLUMNS)).samples == 3


def test_opening_reads_no_row() -> None:
    shard = by_the_book.shard({"id": "uint64"}, [{"id": bytes(8)}] * 20_000)
    start = rows_offset(shard)
    damaged = shard[:start] + b"\xee" * (len(shard) - start)
    tracemalloc.start()
    assert ShardView.parse(damaged).samples == 20_000
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20_000


# --- on each access


def extents(view: ShardView, samples: list[int]) -> tuple[Any, ...]:
    numbers = np.array(samples, np.int64)
    return heap_extents(view.schema, view.rows[numbers], len(view.heap), file="a.mdsx", samples=numbers)


def test_heap_extents_are_right_for_any_rows() -> None:
    starts, stops, lengths = extents(ShardView.parse(SHARD), [2, 0, 2])
    assert starts.tolist() == [5, 0, 5]
    assert stops.tolist() == [12, 3, 12]
    assert lengths.tolist() == [[7, 0], [3, NULL], [7, 0]]


def test_heap_extents_without_variable_size_columns_are_empty() -> None:
    view = ShardView.parse(by_the_book.shard({"id": "uint8"}, [{"id": b"\1"}]))
    starts, stops, lengths = extents(view, [0])
    assert (starts.tolist(), stops.tolist(), lengths.shape) == ([0], [0], (1, 0))
    assert (starts.dtype, stops.dtype, lengths.dtype) == (np.int64, np.int64, np.uint32)


@pytest.mark.parametrize(
    ("offset", "new", "says"),
    [
        (16, b"\x08\0\0\0", "sample 1: its heap bytes lie outside the heap"),
        (8, (2**64 - 1).to_bytes(8, "little"), "sample 1: its heap bytes lie outside the heap"),
        (8, (2**63).to_bytes(8, "little"), "sample 1: its heap bytes lie outside the heap"),
        (16, b"\xfe\xff\xff\xff", "sample 1: its heap bytes lie outside the heap"),
        (16, b"\xff\xff\xff\xff", "sample 1, column 'text': null in a column that is not nullable"),
    ],
)
def test_an_access_checks_bounds_and_nulls(offset: int, new: bytes, says: str) -> None:
    view = ShardView.parse(patch(SHARD, row_at(SHARD, 1) + offset, new))
    assert extents(view, [0, 2])[0].tolist() == [0, 5]
    with pytest.raises(CorruptError, match=says) as caught:
        extents(view, [0, 1, 2])
    assert caught.value.file == "a.mdsx"


def test_an_extent_is_compared_exactly() -> None:
    schema = Schema.from_columns({"text": "str"})
    rows = np.zeros(3, schema.row_dtype)
    rows["start"] = [2**60 - 128, 2**60, 2**60 - 127]  # as floats, the first equals the last
    rows["lengths"] = [[128], [0], [128]]
    starts, stops, _ = heap_extents(schema, rows[:2], 2**60, file="x", samples=np.array([7, 8]))
    assert (starts.tolist(), stops.tolist()) == ([2**60 - 128, 2**60], [2**60] * 2)
    with pytest.raises(CorruptError, match="outside the heap") as caught:
        heap_extents(schema, rows, 2**60, file="x", samples=np.array([7, 8, 9]))
    error = caught.value
    assert (error.file, error.place) == ("x", "sample 9")
    assert (error.found, error.expected) == (f"128 bytes from {2**60 - 127}", f"within {2**60}")


@pytest.mark.parametrize("shard", [SHARD, FIXED])
def test_selected_samples_are_checked_if_asked(shard: bytes) -> None:
    numbers = np.array([1, 0, 1])
    selected = ShardView.parse(shard, file="x").select(numbers, verify=True)
    assert (selected.file, selected.samples.tolist(), selected.take.tolist()) == ("x", [1, 0, 1], [1, 0, 1])
    damaged = ShardView.parse(patch(shard, row_at(shard, 1) + 8, b"\xee"), file="x")
    assert damaged.select(numbers, verify=False).samples.tolist() == [1, 0, 1]
    assert damaged.select(np.array([0]), verify=True).samples.tolist() == [0]
    with pytest.raises(CorruptError) as caught:
        damaged.select(numbers, verify=True)
    assert (caught.value.file, caught.value.place) == ("x", "sample 1")


def test_a_wrong_checksum_is_shown() -> None:
    view = ShardView.parse(patch(SHARD, row_at(SHARD, 2), bytes(8)), file="x")
    with pytest.raises(CorruptError, match="its checksum does not match its bytes") as caught:
        view.select(np.array([2]), verify=True)
    error = caught.value
    right = int.from_bytes(SHARD[row_at(SHARD, 2) :][:8], "little")
    assert (error.file, error.place, error.found) == ("x", "sample 2", f"{right:016x}")
    assert (error.expected, error.hint) == ("0" * 16, DAMAGED_HINT)


def test_lengths_need_only_rows_that_the_row_key_proves() -> None:
    at = get(SHARD, "heap_offset")
    assert ShardView.parse(patch(SHARD, at, b"x")).lengths(2).tolist() == [3, 0, 7]
    wrong = seal_rows(patch(SHARD, row_at(SHARD, 2) + 16, b"\x08"))  # one byte more than the heap
    for damaged, place in ((patch(SHARD, row_at(SHARD, 1), bytes(8)), "row key"), (wrong, "sample 2")):
        with pytest.raises(CorruptError) as caught:
            ShardView.parse(damaged, file="x").lengths(2)
        assert (caught.value.file, caught.value.place) == ("x", place)


@pytest.mark.parametrize("heap", [b"heap bytes", b"heap bytes" * 200])
def test_the_row_checksum_is_seeded_and_covers_row_and_heap(heap: bytes) -> None:
    row = bytes(range(32))
    assert row_checksum(row[8:], heap, 7) == xxhash.xxh3_64_intdigest(row[8:] + heap, 7)
    assert row_checksum(memoryview(row)[8:], b"", 2**63) == xxhash.xxh3_64_intdigest(row[8:], 2**63)


# --- the full check


def test_any_changed_byte_is_found() -> None:
    for place, change in itertools.product(range(len(SHARD)), (0x01, 0x80, 0xFF)):
        damaged = patch(SHARD, place, bytes([SHARD[place] ^ change]))
        try:
            assert check_shard(damaged), f"byte {place}"
        except UnsupportedError:
            assert place in (8, 9)  # the major version


def test_any_missing_or_additional_byte_is_found() -> None:
    for size in range(len(SHARD)):
        assert check_shard(SHARD[:size])
    assert check_shard(SHARD + b"\0")


def test_every_damage_is_listed_with_its_sample() -> None:
    damaged = SHARD
    for sample in (0, 2):
        damaged = patch(damaged, row_at(SHARD, sample) + 24, b"\xee")
    assert [problem.place for problem in check_shard(damaged, file="a")] == ["sample 0", "sample 2"]


def test_a_wrong_length_is_blamed_on_its_sample_only() -> None:
    columns: dict[str, str] = {"text": "str"}
    shard = by_the_book.shard(columns, [{"text": b"abc"}] * 100)
    damaged = seal_rows(patch(shard, row_at(shard, 50) + 16, b"\2"))
    assert [problem.place for problem in check_shard(damaged)] == ["sample 51"]


def test_the_list_of_problems_is_bounded() -> None:
    shard = by_the_book.shard({"a": "uint8"}, [{"a": b"\1"}] * 2000)
    size = get(shard, "row_size")
    damaged = bytearray(shard)
    start = rows_offset(shard) + 8
    damaged[start : start + 2000 * size : size] = b"\2" * 2000
    problems = check_shard(bytes(damaged))
    assert len(problems) == 1001
    assert "more than 1000 problems" in str(problems[-1])


def test_a_check_without_values_is_fast_and_finds_the_rest() -> None:
    count = 200_000
    schema = Schema.from_columns(COLUMNS)
    rows = np.zeros(count, schema.row_dtype)
    rows["lengths"] = [3, NULL]
    rows["start"] = np.arange(count) * 3
    head = build_header(schema, count, 3 * count, 0)
    shard = bytearray((head + rows.tobytes()).ljust(raw_size(schema, count, 0), b"\0") + b"abc" * count)
    view = ShardView.parse(shard)
    size = count * schema.row_size
    checksums = shard_checksums(view)
    key = row_key(schema, checksums)
    np.frombuffer(shard, schema.row_dtype, count, len(head))["checksum"] = checksums ^ np.uint64(key)
    shard[: len(head)] = build_header(schema, count, 3 * count, key)
    began = time.process_time()
    assert check_shard(shard, values=False) == []
    assert time.process_time() - began < 2
    shard[len(head) + size - 1] = 1  # the last row's padding
    shard[len(head) + 123_456 * schema.row_size + 26] = 2  # `ok`
    places = [problem.place for problem in check_shard(shard, values=False)]
    assert places == ["sample 123456, column 'ok'", "sample 199999, padding of the row"]


def test_an_opaque_column_does_not_prevent_the_check() -> None:
    shard = by_the_book.shard({"clip": "video", "id": "int8"}, [{"clip": b"?", "id": b"\1"}])
    assert check_shard(shard) == []
    assert check_shard(patch(shard, len(shard) - 1, b"!"))


@settings(max_examples=100)
@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_are_read_or_raise_format_error(data: bytes, headed: bool) -> None:
    data = SHARD[:64] + data if headed else data
    with contextlib.suppress(FormatError):
        check_shard(seal(data) if headed else data)


@settings(max_examples=100)
@given(
    st.dictionaries(
        st.sampled_from(["samples", "row_key", "row_size", "heap_offset", "file_size"]), st.integers(0, 2**64 - 1)
    )
)
def test_no_number_in_the_header_causes_an_allocation(fields: dict[str, int]) -> None:
    fields = {key: value % 2**32 if key == "row_size" else value for key, value in fields.items()}
    sealed = seal(put(SHARD, **fields))
    tracemalloc.start()
    try:
        problems = check_shard(sealed)
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 2**20
    assert bool(problems) == (sealed != SHARD)
