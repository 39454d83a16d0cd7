"""The stored bytes of a shard, received whole or read by range: which requests, which bytes, which errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import pytest
import xxhash

from mdsx.errors import CorruptError
from mdsx.format import FRAME_SIZE, Hashes, Range, RawStream, Reading, Selection, ShardView, compress
from mdsx.format.rows import DAMAGED_HINT
from mdsx.format.stored_bytes import FramedBytes, PlainBytes, ShardRanges, ShardReceiver
from tests.format import by_the_book
from tests.format.reference import get, patch, put, row_at, row_checksums, rows_offset, seal, seal_rows, with_key

T = TypeVar("T")
COLUMNS = {"text": "str", "id": "uint16", "note": "bytes?"}
SHARD = by_the_book.shard(
    COLUMNS,
    [
        {"text": b"zero", "id": b"\0\0", "note": None},
        {"text": b"one", "id": b"\1\0", "note": b"n"},
        {"text": b"two", "id": b"\2\0", "note": b""},
        {"text": b"", "id": b"\3\0", "note": None},
    ],
)
ROW, HEAP = get(SHARD, "row_size"), get(SHARD, "heap_offset")
RAW = bytes(range(256)) * (6 * FRAME_SIZE // 256) + b"the last frame is shorter"
PACKED = compress(RAW)


def served(reading: Reading[T], stored: bytes, asked: list[list[Range]] | None = None) -> T:
    """Answer a reading's requests from the stored bytes, and add these requests to `asked`."""
    asked = [] if asked is None else asked
    try:
        ranges = next(reading)
        while True:
            asked.append([*ranges])
            ranges = reading.send([memoryview(stored)[start:stop] for start, stop in ranges])
    except StopIteration as end:
        result: T = end.value
        return result


def ranges_of(shard: bytes) -> ShardRanges:
    return ShardRanges(PlainBytes(), ShardView.parse(shard).layout, "x")


def select(shard: bytes, samples: list[int], stored: bytes, asked: list[list[Range]] | None = None) -> Selection:
    return served(ranges_of(shard).select(np.array(samples)), stored, asked)


# --- whole


def received(stored: bytes, raw: bytes | None, expected: Hashes) -> bytes:
    size = None if raw is None else len(raw)
    receiver = ShardReceiver(RawStream(size=len(stored), raw_size=size, file="x"), expected, "x")
    chunks = (stored[at : at + 1000] for at in range(0, len(stored), 1000))
    found = b"".join(bytes(piece) for chunk in chunks for piece in receiver.feed(chunk))
    receiver.finish()
    return found


def hash_of(data: bytes) -> str:
    return xxhash.xxh3_128_hexdigest(data)


def test_a_received_shard_becomes_raw_bytes_with_both_hashes() -> None:
    packed = compress(SHARD)
    assert received(SHARD, None, Hashes(hash_of(SHARD), hash_of(SHARD))) == SHARD
    assert received(packed, SHARD, Hashes(hash_of(packed), hash_of(SHARD))) == SHARD


def test_each_hash_must_be_that_of_the_index() -> None:
    packed = compress(SHARD)
    for expected in (Hashes(hash_of(packed), "0" * 32), Hashes("0" * 32, hash_of(SHARD))):
        with pytest.raises(CorruptError, match="do not match the index") as caught:
            received(packed, SHARD, expected)
        error = caught.value
        (found,) = {hash_of(packed), hash_of(SHARD)} - {*expected}
        assert (error.message, error.hint) == ("the shard's bytes do not match the index", DAMAGED_HINT)
        assert (error.file, error.place, error.found, error.expected) == ("x", "XXH3-128", found, "0" * 32)


def test_damage_that_decompression_finds_names_the_file() -> None:
    packed = compress(SHARD)
    with pytest.raises(CorruptError) as caught:
        received(packed[:-1], SHARD, Hashes("", ""))
    assert caught.value.file == "x"


# --- raw ranges of a compressed shard


def read(raw: FramedBytes, ranges: Sequence[Range], asked: list[list[Range]]) -> list[bytes]:
    return [bytes(part) for part in served(raw.read(ranges), PACKED, asked)]


def test_only_the_frames_of_the_ranges_are_read_after_the_seek_table() -> None:
    raw, asked = FramedBytes(size=len(PACKED), raw_size=len(RAW), file="x"), list[list[Range]]()
    places = [(5, 5), (3 * FRAME_SIZE - 2, 3 * FRAME_SIZE), (2 * FRAME_SIZE - 1, 2 * FRAME_SIZE + 1), (0, 3)]
    assert read(raw, places[:1], asked) == [b""]
    assert asked == []
    assert read(raw, places, asked) == [RAW[low:high] for low, high in places]
    (table,), frames = asked
    assert table == (len(PACKED) - 7 * 8 - 17, len(PACKED))
    assert [PACKED[start:stop][:4] for start, stop in frames] == [b"\x28\xb5\x2f\xfd"] * 3
    assert frames[0][0] == 0
    assert frames[1][1] == frames[2][0]  # the second frame and the third


def test_the_last_four_decoded_frames_are_kept() -> None:
    raw, asked = FramedBytes(size=len(PACKED), raw_size=len(RAW), file="x"), list[list[Range]]()
    assert read(raw, [(0, len(RAW))], asked) == [RAW]
    assert read(raw, [(3 * FRAME_SIZE, len(RAW))], asked) == [RAW[3 * FRAME_SIZE :]]
    assert list(map(len, asked)) == [1, 7]
    assert read(raw, [(2 * FRAME_SIZE, len(RAW))], asked) == [RAW[2 * FRAME_SIZE :]]
    assert list(map(len, asked)) == [1, 7, 1]


def test_a_damaged_frame_or_seek_table_is_named() -> None:
    for place, name in ((len(PACKED) - 1, "seek table"), (PACKED.index(b"\x28\xb5\x2f\xfd", 4), "frame 1")):
        raw = FramedBytes(size=len(PACKED), raw_size=len(RAW), file="x")
        with pytest.raises(CorruptError) as caught:
            served(raw.read([(FRAME_SIZE, FRAME_SIZE + 1)]), patch(PACKED, place, b"!"))
        assert caught.value.file == "x"
        assert (caught.value.place or "").startswith(name)


# --- samples by range


def test_samples_take_a_request_for_their_rows_and_one_for_their_heap_bytes() -> None:
    asked = list[list[Range]]()
    found = select(SHARD, [2, 0, 2], SHARD, asked)
    rows = [(row_at(SHARD, sample), row_at(SHARD, sample) + ROW) for sample in (2, 0, 2)]
    assert asked == [rows, [(HEAP + 8, HEAP + 11), (HEAP, HEAP + 4), (HEAP + 8, HEAP + 11)]]
    assert (found.file, found.samples.tolist(), found.take.tolist()) == ("x", [2, 0, 2], [0, 1, 2])
    assert (found.rows["column1"].tolist(), found.rows["start"].tolist()) == ([2, 0, 2], [0, 3, 7])
    assert (bytes(found.heap), found.schema) == (b"twozerotwo", ShardView.parse(SHARD).schema)


def test_a_row_key_may_be_0() -> None:
    shard = with_key(SHARD, 0, row_checksums(SHARD))
    assert bytes(select(shard, [1, 2], shard).heap) == b"onentwo"


def test_samples_without_variable_size_values_take_one_request() -> None:
    shard, asked = by_the_book.shard({"id": "uint16"}, [{"id": b"\1\0"}, {"id": b"\2\0"}]), list[list[Range]]()
    found = select(shard, [1], shard, asked)
    assert asked == [[(row_at(shard, 1), row_at(shard, 1) + 16)]]
    assert (found.rows["column0"].tolist(), bytes(found.heap)) == ([2], b"")


@pytest.mark.parametrize("place", [HEAP + 8, row_at(SHARD, 2), row_at(SHARD, 2) + 8])
def test_a_damaged_sample_is_named(place: int) -> None:
    damaged = patch(SHARD, place, b"\xee")
    assert select(SHARD, [0, 1, 3], damaged).samples.tolist() == [0, 1, 3]
    with pytest.raises(CorruptError) as caught:
        select(SHARD, [0, 2], damaged)
    assert (caught.value.file, caught.value.place) == ("x", "sample 2")


def test_lengths_and_rows_take_one_request_for_all_rows() -> None:
    asked = list[list[Range]]()
    assert served(ranges_of(SHARD).lengths(0), SHARD, asked).tolist() == [4, 3, 3, 0]
    found = served(ranges_of(SHARD).rows(), SHARD, asked)
    assert asked == [[(row_at(SHARD, 0), row_at(SHARD, 4))]] * 2
    assert (found.file, found.samples.tolist(), found.take.tolist()) == ("x", [0, 1, 2, 3], [0, 1, 2, 3])
    assert (found.rows["column1"].tolist(), bytes(found.heap)) == ([0, 1, 2, 3], b"")


def test_rows_that_the_row_key_does_not_prove_are_refused() -> None:
    with pytest.raises(CorruptError, match="the rows are damaged") as caught:
        served(ranges_of(SHARD).rows(), patch(SHARD, row_at(SHARD, 1), b"\xee"))
    assert (caught.value.file, caught.value.place) == ("x", "row key")
    assert caught.value.expected == f"{get(SHARD, 'row_key'):016x}"


def test_lengths_that_the_heap_cannot_have_are_refused() -> None:
    wrong = seal_rows(patch(SHARD, row_at(SHARD, 2) + 16, b"\x04"))  # one byte more than the heap
    assert served(ranges_of(SHARD).lengths(0), SHARD).tolist()[2] == 3
    with pytest.raises(CorruptError) as caught:
        served(ranges_of(wrong).lengths(0), wrong)
    assert (caught.value.file, caught.value.place) == ("x", "sample 2")


# --- the header


def test_a_check_reads_only_the_header() -> None:
    asked = list[list[Range]]()
    served(ranges_of(SHARD).check(), SHARD, asked)
    assert asked == [[(0, rows_offset(SHARD))]]


@pytest.mark.parametrize(
    ("place", "other"),
    [
        ("magic", patch(SHARD, 0, b"!")),
        ("file size", seal(put(SHARD, file_size=len(SHARD) + 1))),
        ("schema", seal(SHARD.replace(b'"text"', b'"next"'))),
        ("row key", seal(put(SHARD, row_key=1))),
        ("number of samples, offset of the rows, size", seal(put(SHARD, samples=3))),
    ],
)
def test_a_check_refuses_another_header(place: str, other: bytes) -> None:
    with pytest.raises(CorruptError) as caught:
        served(ranges_of(SHARD).check(), other)
    assert (caught.value.file, caught.value.place) == ("x", place)
