"""The raw bytes of a damaged shard: its undamaged frames, and a gap with an error for each other one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mdsx.errors import CorruptError
from mdsx.format import compress
from mdsx.format.frames import FRAME_SIZE, seek_table_size
from mdsx.format.gaps import Gap, check_table, first_frame, framed_bytes, plain_bytes
from tests.format.reference import frame, patch, seek_table

RAWS = [bytes([letter]) * FRAME_SIZE for letter in b"abc"] + [b"d"]
FRAMES = [frame(raw) for raw in RAWS]
RAW_SIZE = sum(map(len, RAWS))
TABLE = seek_table([(len(made), len(raw)) for made, raw in zip(FRAMES, RAWS, strict=True)])
STORED = b"".join(FRAMES) + TABLE
HEADER = 13  # bytes of each frame


def recovered(stored: bytes, raw_size: int = RAW_SIZE) -> tuple[bytes, list[Gap]]:
    raw, gaps = framed_bytes(memoryview(stored), raw_size, "a shard")
    return bytes(raw), gaps


def facts(error: CorruptError) -> tuple[str | None, str | None, str]:
    return error.file, error.place, error.message


def test_an_undamaged_shard_has_no_gaps() -> None:
    assert recovered(STORED) == (b"".join(RAWS), [])
    assert check_table(memoryview(STORED), RAW_SIZE, len(STORED), "a shard") == []


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "no zstd frame": lambda made: patch(made, 0, b"!"),
    "wrong content size": lambda made: patch(made, 5, b"!"),
    "a block of a reserved kind": lambda made: patch(made, HEADER, bytes([made[HEADER] | 6])),
    "the frame is damaged: ": lambda made: patch(made, len(made) - 1, bytes([made[-1] ^ 1])),
}


@pytest.mark.parametrize("says", DAMAGE)
def test_a_damaged_frame_is_a_gap_with_its_error(says: str) -> None:
    raw, (gap,) = recovered(STORED.replace(FRAMES[1], DAMAGE[says](FRAMES[1])))
    assert raw == RAWS[0] + bytes(FRAME_SIZE) + RAWS[2] + RAWS[3]
    assert (gap.start, gap.stop) == (FRAME_SIZE, 2 * FRAME_SIZE)
    file, place, message = facts(gap.error)
    assert (file, place) == ("a shard", "frame 1")
    assert message.startswith(says)


def test_a_last_frame_that_is_damaged_leaves_a_gap_at_the_end() -> None:
    raw, (gap,) = recovered(STORED.replace(FRAMES[3], DAMAGE["no zstd frame"](FRAMES[3])))
    assert (raw, gap.start, gap.stop) == (b"".join(RAWS[:3]), 3 * FRAME_SIZE, RAW_SIZE)


def test_a_shard_without_its_table_keeps_the_frames_before_the_first_damaged_one() -> None:
    """Its index says that it has a larger table than the file can hold."""
    for damaged in (b"", FRAMES[1][:-1], FRAMES[1][:4]):
        raw, (gap,) = recovered(FRAMES[0] + damaged, 2**40)
        assert (raw, gap.start, gap.stop) == (RAWS[0], FRAME_SIZE, 2**40)
        assert facts(gap.error) == ("a shard", "frame 1", "the shard ends before the frame does")
    raw, (gap,) = recovered(FRAMES[0] + b"!" + FRAMES[1], 2**40)
    assert (raw, gap.start, gap.stop) == (RAWS[0], FRAME_SIZE, 2**40)
    assert facts(gap.error) == ("a shard", "frame 1", "no zstd frame")


def test_no_more_frames_are_sought_than_the_file_can_hold() -> None:
    """The seek table of a small file tells of 1000 frames, all of which would start beyond its end."""
    table = seek_table([(2**32 - 1, FRAME_SIZE)] * 1000)
    raw, gaps = recovered(FRAMES[0] + table, 1000 * FRAME_SIZE)
    assert raw == RAWS[0]
    assert len(gaps) < 500
    assert (gaps[0].start, gaps[-1].stop) == (FRAME_SIZE, 1000 * FRAME_SIZE)
    assert [gap.start for gap in gaps[1:]] == [gap.start + FRAME_SIZE for gap in gaps[:-1]]


def test_a_missing_frame_hides_no_later_one() -> None:
    raw, (gap,) = recovered(STORED.replace(FRAMES[2], b""))
    assert raw == RAWS[0] + RAWS[1] + bytes(FRAME_SIZE) + RAWS[3]
    assert (gap.start, gap.stop) == (2 * FRAME_SIZE, 3 * FRAME_SIZE)


def test_a_frame_is_not_taken_for_several_ones() -> None:
    """The seek table says that all frames are the only one: they would take memory again and again."""
    table = seek_table([(0, FRAME_SIZE)] * 999 + [(len(FRAMES[0]), FRAME_SIZE)])
    raw, gaps = recovered(FRAMES[0] + table, 1000 * FRAME_SIZE)
    assert (raw, gaps[0].start) == (RAWS[0], FRAME_SIZE)


def test_the_smallest_frame_may_end_a_truncated_shard() -> None:
    raw = RAWS[0] + b"d"
    stored = compress(raw)
    assert recovered(stored[: -seek_table_size(len(raw))], len(raw)) == (raw, [])


def test_a_shard_that_is_not_compressed_is_read_up_to_its_end() -> None:
    for stored in (b"abcd", b"abcd!"):
        raw, gaps = plain_bytes(memoryview(stored), 4, "a shard")
        assert (bytes(raw), gaps) == (b"abcd", [])
    raw, (gap,) = plain_bytes(memoryview(b"abc"), 4, "a shard")
    assert (bytes(raw), gap.start, gap.stop) == (b"abc", 3, 4)
    assert facts(gap.error) == ("a shard", "byte 3", "the shard is truncated")
    assert gap.error.expected == "4 bytes"


def test_a_damaged_or_missing_table_is_a_problem() -> None:
    (problem,) = check_table(memoryview(STORED[:-1]), RAW_SIZE, len(STORED), "a shard")
    assert facts(problem) == ("a shard", f"byte {len(STORED) - 1}", "the shard is truncated")
    assert problem.expected == f"{len(STORED)} bytes"
    (problem,) = check_table(memoryview(STORED[:-1] + b"!"), RAW_SIZE, len(STORED), "a shard")
    assert facts(problem) == ("a shard", "seek table", "wrong magic at its end")


def test_the_first_frame_is_read_without_the_size_of_the_shard() -> None:
    assert first_frame(STORED) == first_frame(FRAMES[0]) == RAWS[0]
    small = compress(b"abc")
    assert first_frame(small) == first_frame(small[: -seek_table_size(3)]) == b"abc"


@pytest.mark.parametrize("says", [says for says in DAMAGE if says not in ("no zstd frame", "wrong content size")])
def test_a_damaged_first_frame_is_an_error(says: str) -> None:
    with pytest.raises(CorruptError) as caught:
        first_frame(DAMAGE[says](FRAMES[0]) + FRAMES[1], file="a shard")
    file, place, message = facts(caught.value)
    assert (file, place) == ("a shard", "frame 0")
    assert message.startswith(says)


@pytest.mark.parametrize(
    ("stored", "says"),
    [
        (b"", "the frame's header is damaged"),
        (b"!" + STORED, "the frame's header is damaged"),
        (FRAMES[0][:-1], "the shard ends before the frame does"),
        (frame(b"abc", content_size=2**21), "wrong content size"),
    ],
)
def test_a_shard_without_a_first_frame_is_an_error(stored: bytes, says: str) -> None:
    with pytest.raises(CorruptError) as caught:
        first_frame(stored, file="a shard")
    file, place, message = facts(caught.value)
    assert (file, place) == ("a shard", "frame 0")
    assert message.startswith(says)
