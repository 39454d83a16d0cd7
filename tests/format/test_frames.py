"""Compressed shards: frames of 1 MiB and the seek table."""

from __future__ import annotations

import contextlib
import tracemalloc

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from mdsx.errors import CorruptError, FormatError
from mdsx.format import claimed_raw_size, compress
from mdsx.format.frames import (
    FRAME_SIZE,
    HEAD_SIZE,
    TABLE_END,
    FrameReader,
    decompress_frame,
    first_bytes,
    frame_count,
    parse_seek_table,
    seek_table_size,
)
from tests.format.reference import frame, seek_table

RAW = np.random.default_rng(0).integers(0, 16, 2 * FRAME_SIZE + 5, np.uint8).tobytes()
STORED = compress(RAW)


def read(stored: bytes, raw_size: int, step: int = 2**16) -> bytes:
    reader = FrameReader(raw_size, len(stored), "a.zst")
    pieces: list[bytes] = []
    for start in range(0, len(stored), step):
        pieces += reader.feed(stored[start : start + step])
    reader.finish()
    return b"".join(pieces)


def test_any_zstd_reads_a_compressed_shard() -> None:
    reader = zstandard.ZstdDecompressor().stream_reader(STORED, read_across_frames=True)
    assert reader.read() == RAW


def test_frames_have_content_size_and_checksum_and_no_dictionary() -> None:
    offsets = parse_seek_table(STORED[-seek_table_size(len(RAW)) :], raw_size=len(RAW), size=len(STORED))
    for number, start in enumerate(offsets[:-1].tolist()):
        header = zstandard.get_frame_parameters(STORED[start:])
        assert header.content_size == (FRAME_SIZE if number < 2 else 5)
        assert header.has_checksum
        assert header.dict_id == 0


@pytest.mark.parametrize("step", [1000, FRAME_SIZE, 10**9])
def test_a_stream_in_any_chunks_gives_the_raw_bytes(step: int) -> None:
    assert read(STORED, len(RAW), step) == RAW


def test_a_stream_byte_by_byte() -> None:
    stored = compress(b"abc" * 1000)
    assert read(stored, 3000, 1) == b"abc" * 1000


def test_a_frame_can_be_read_without_the_rest() -> None:
    tail = STORED[len(STORED) - seek_table_size(len(RAW)) :]
    offsets = parse_seek_table(tail, raw_size=len(RAW), size=len(STORED), file="a.zst")
    assert offsets.tolist()[0] == 0
    assert offsets[-1] + len(tail) == len(STORED)
    assert (
        decompress_frame(STORED[offsets[1] : offsets[2]], expected_size=FRAME_SIZE) == RAW[FRAME_SIZE : 2 * FRAME_SIZE]
    )
    assert decompress_frame(STORED[offsets[2] : offsets[3]], expected_size=5) == RAW[-5:]


@pytest.mark.parametrize("size", [1, FRAME_SIZE - 1, FRAME_SIZE, FRAME_SIZE + 1])
def test_sizes_around_a_frame(size: int) -> None:
    raw = RAW[:size]
    assert frame_count(size) == (2 if size > FRAME_SIZE else 1)
    assert read(compress(raw), size) == raw


@pytest.mark.parametrize("level", [-5, 1, 19, 22])
def test_every_level_follows_the_specification(level: int) -> None:
    raw = RAW[: FRAME_SIZE + 1000]
    assert read(compress(raw, level), len(raw)) == raw


def test_a_higher_level_compresses_more() -> None:
    assert len(compress(RAW, 19)) < len(compress(RAW)) < len(compress(RAW, -50))
    assert compress(RAW) == compress(RAW, 3)


def test_incompressible_bytes_fit_into_frames() -> None:
    raw = np.random.default_rng(1).bytes(FRAME_SIZE + 1)
    assert read(compress(raw), len(raw)) == raw


def test_bytes_after_a_frame_are_refused() -> None:
    whole = frame(b"abc")
    assert decompress_frame(whole, expected_size=3) == b"abc"
    for damaged in (whole + b"\0", whole + whole, whole[:-1]):
        with pytest.raises(CorruptError, match="frame is damaged"):
            decompress_frame(damaged, expected_size=3, file="a", place="frame 0")


def test_a_frame_may_have_a_window_of_8_mib() -> None:
    assert decompress_frame(frame(b"abc" * 99, window=0x68), expected_size=297) == b"abc" * 99
    with pytest.raises(CorruptError, match="window is too large"):
        decompress_frame(frame(b"abc" * 99, window=0x69), expected_size=297)


def test_a_frame_of_endless_empty_blocks_is_refused() -> None:
    made = frame(b"a" * 10, blocks_before=2**19)
    stored = made + seek_table([(len(made), 10)])
    with pytest.raises(CorruptError, match="frame 0: the frame is too large"):
        read(stored, 10)


def test_decompression_needs_memory_for_a_frame() -> None:
    count = 64
    zeros = frame(bytes(FRAME_SIZE))
    stored = zeros * count + seek_table([(len(zeros), FRAME_SIZE)] * count)
    reader, size = FrameReader(count * FRAME_SIZE, len(stored)), 0
    tracemalloc.start()
    for piece in reader.feed(stored):
        size += len(piece)
    reader.finish()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size == count * FRAME_SIZE
    assert peak < 4 * FRAME_SIZE


def test_the_first_bytes_are_64_however_much_a_frame_claims() -> None:
    for raw in (RAW, np.random.default_rng(1).bytes(FRAME_SIZE)):
        assert first_bytes(compress(raw)[:HEAD_SIZE]) == raw[:64]
    assert first_bytes(STORED[:20]) == b""
    zeros = frame(bytes(64 * FRAME_SIZE), window=0x68)  # 512 blocks of 4 bytes
    assert first_bytes(zeros[:HEAD_SIZE]) == bytes(64)


@pytest.mark.parametrize(("raw_size", "size"), [(10 * FRAME_SIZE, 60), (2**62, 2**60), (2**47 + 1, 2**60)])
def test_an_impossible_raw_size_is_refused_immediately(raw_size: int, size: int) -> None:
    says = "too small for its seek table" if size == 60 else "too many frames"
    with pytest.raises(CorruptError, match=says):
        FrameReader(raw_size, size)
    with pytest.raises(CorruptError, match=says):
        parse_seek_table(b"", raw_size=raw_size, size=size)


def test_the_largest_raw_size_and_the_smallest_object_are_accepted() -> None:
    FrameReader(2**47, 2**60)
    FrameReader(1, seek_table_size(1))
    with pytest.raises(CorruptError, match="too small for its seek table"):
        FrameReader(1, seek_table_size(1) - 1)


def test_additional_bytes_of_a_stream_are_refused_immediately() -> None:
    reader = FrameReader(len(RAW), len(STORED))
    with pytest.raises(CorruptError, match="bytes follow the shard"):
        list(reader.feed(STORED + b"\0"))


def test_the_seek_table_gives_the_raw_size() -> None:
    assert claimed_raw_size(STORED) == len(RAW)
    for damaged in (b"", STORED[-8:], STORED[:-1], STORED[:-9] + bytes(4) + STORED[-5:]):
        with pytest.raises(CorruptError, match="seek table"):
            claimed_raw_size(damaged)


@pytest.mark.parametrize(
    ("count", "last", "claimed"),
    [
        (1, 1, 1), (1, FRAME_SIZE, FRAME_SIZE), (2**27, 1, (2**27 - 1) * FRAME_SIZE + 1),
        (0, 1, None), (2**27 + 1, 1, None), (1, 0, None), (1, FRAME_SIZE + 1, None),
    ],
)  # fmt: skip
def test_a_seek_table_claims_1_to_2_to_27_frames_of_up_to_a_mebibyte(count: int, last: int, claimed: int) -> None:
    tail = seek_table([(9, last)], count=count)[-TABLE_END:]
    if claimed is None:
        with pytest.raises(CorruptError, match="seek table"):
            claimed_raw_size(tail)
    else:
        assert claimed_raw_size(tail) == claimed


def test_any_buffer_of_bytes_is_read() -> None:
    signed, tail = memoryview(STORED).cast("c"), memoryview(STORED)[-seek_table_size(len(RAW)) :].cast("c")
    reader = FrameReader(len(RAW), len(STORED))
    assert b"".join(reader.feed(signed)) == RAW
    reader.finish()
    offsets = parse_seek_table(tail, raw_size=len(RAW), size=len(STORED))
    assert decompress_frame(signed[offsets[0] : offsets[1]], expected_size=FRAME_SIZE) == RAW[:FRAME_SIZE]
    assert claimed_raw_size(tail) == len(RAW)
    assert first_bytes(signed) == RAW[:64]


SMALL = b"".join(frame(bytes([letter]) * FRAME_SIZE) for letter in b"ab")
SMALL += seek_table([(len(SMALL) // 2, FRAME_SIZE)] * 2)


def test_a_damaged_stream_never_gives_other_bytes() -> None:
    for place in range(len(SMALL)):
        for change in (1, 0x80):
            damaged = SMALL[:place] + bytes([SMALL[place] ^ change]) + SMALL[place + 1 :]
            with contextlib.suppress(CorruptError):
                assert read(damaged, 2 * FRAME_SIZE) == read(SMALL, 2 * FRAME_SIZE), f"byte {place}"
        with pytest.raises(CorruptError):
            read(SMALL[:place], 2 * FRAME_SIZE)


@settings(max_examples=100)
@given(st.binary(max_size=200), st.integers(0, 2**63), st.booleans())
def test_any_bytes_are_read_or_raise_format_error(data: bytes, raw_size: int, begun: bool) -> None:
    data = SMALL[:20] + data if begun else data
    for size in (raw_size, 3):
        with contextlib.suppress(FormatError):
            read(data, size)
        with contextlib.suppress(FormatError):
            parse_seek_table(data, raw_size=size, size=len(data))
        with contextlib.suppress(FormatError):
            decompress_frame(data, expected_size=min(size, FRAME_SIZE))
