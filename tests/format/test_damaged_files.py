"""The errors of damaged indexes and compressed shards name the place, what was found, what was expected, and the way
out."""

from __future__ import annotations

import pytest

from mdsx.errors import CorruptError, FormatError
from mdsx.format import parse_index
from mdsx.format.frames import (
    FRAME_SIZE,
    FrameReader,
    claimed_raw_size,
    decompress_frame,
    first_bytes,
    parse_seek_table,
)
from tests.format.reference import frame, seek_table
from tests.format.test_vectors import data, open_file

START = '{"format":"mdsx","version":1,'
END = ',"checksum":"<16 lower-case hexadecimal digits>"} and a line feed'
COPY = "copy it from a complete copy of the dataset; an index cannot be edited by hand"
UPGRADE = "upgrade mdsx"
FINGERPRINT = "640cee7d119d238447bfbc257459afef"

# place, found, expected, hint
FACTS: dict[str, tuple[object, object, object, object]] = {
    "bad/index-nothing.json": ("its first bytes", "b''", START, None),
    "bad/index-line-feed-first.json": ("its first bytes", repr(b"\n" + START.encode() + b'"columns":'), START, None),
    "bad/index-version-0.json": ("version", 0, 1, None),
    "bad/index-no-line-feed.json": ("its last bytes", """b'},"checksum":"7d34213ca3db3117"}'""", END, None),
    "bad/index-checksum.json": ("checksum", "7d34213ca3db3117", "0" * 16, COPY),
    "bad/index-deep.json": (None, None, None, None),
    "bad/index-no-json.json": (None, None, None, None),
    "bad/index-no-columns.json": (None, None, None, None),
    "bad/index-columns.json": ("columns", None, None, None),
    "bad/index-column-key.json": ("columns[1]", None, None, None),
    "bad/index-column-type.json": ("schema, column 'text'", None, None, None),
    "bad/index-rows-offset.json": ("rows_offset", 136, 128, None),
    "bad/index-row-size.json": ("row_size", 40, 24, None),
    "bad/index-samples.json": ("samples", 3, 2, None),
    "bad/index-samples-2-62.json": ("samples", 2**62, "below 2^62", None),
    "bad/index-samples-negative.json": ("shards.samples", -1, None, None),
    "bad/index-samples-float.json": ("shards.samples[0]", None, None, None),
    "bad/index-samples-2-63.json": ("shards.samples", None, None, None),
    "bad/index-samples-many.json": ("raw size of shard 0", "195 bytes for 100 samples", None, None),
    "bad/index-size-short.json": ("shards.size", 1, 2, None),
    "bad/index-key-short.json": ("shards.row_key", 16, 32, None),
    "bad/index-key-upper.json": ("shards.row_key", None, None, None),
    "bad/index-hash-short.json": ("shards.xxh3_128", 32, 64, None),
    "bad/index-hash-list.json": ("shards.xxh3_128", None, None, None),
    "bad/index-raw-short.json": ("shards.raw_size", 1, 2, None),
    "bad/index-raw-where-plain.json": ("shards", None, None, None),
    "bad/index-no-raw.json": ("shards", None, None, None),
    "bad/index-raw-beyond-frames.json": ("raw size of shard 0", f"240 bytes for {2**60}", None, None),
    "bad/index-files-count.json": ("shards.files", 1, 2, None),
    "bad/index-files-negative.json": ("shards.files[1]", [0, -1], None, None),
    "bad/index-files-2-63.json": ("shards.files[0]", [2**63 - 2, 2], None, None),
    "bad/index-files-up.json": ("shards.files[0]", "'../shard.00001.mdsx'", None, None),
    "bad/index-files-longer.json": ("shards.files[0]", repr("a" * 507 + "100000"), None, None),
    "bad/index-fingerprint.json": ("fingerprint", "0" * 32, FINGERPRINT, None),
    "bad/index-lengths-column.json": ("lengths['other']", None, None, None),
    "bad/index-lengths-sum.json": ("lengths['text']", 2 * (2**32 - 1) + 1, f"at most {2 * (2**32 - 1)}", None),
    "bad/index-metadata-list.json": ("metadata", None, None, None),
    "bad/index-metadata-size-by-1.json": ("metadata", f"{2**20 + 1} bytes", "at most 1 MiB", None),
    "unsupported/index-version-2.json": ("version", None, None, UPGRADE),
    "unsupported/index-requires.json": ("requires", None, None, UPGRADE),
    "bad/index-requires-number.json": ("requires[0]", None, None, None),
    "unsupported/index-compression.json": ("compression", None, None, UPGRADE),
    "bad/frames-nothing.mdsx.zst": (None, "0 bytes", "41 or more", None),
    "bad/frames-cut.mdsx.zst": ("seek table", 40, 41, None),
    "bad/frames-cut-in-frame.mdsx.zst": ("frame 1", None, None, None),
    "bad/frames-one-frame.mdsx.zst": ("frame 0", FRAME_SIZE + 100, FRAME_SIZE, None),
    "bad/frames-magic.mdsx.zst": ("frame 0", "27 b5 2f fd", "28 b5 2f fd", None),
    "bad/frames-no-content-size.mdsx.zst": ("frame 2", "none", 1000, None),
    "bad/frames-more-content.mdsx.zst": ("frame 2", None, None, None),
    "bad/frames-no-checksum.mdsx.zst": ("frame 1", None, None, None),
    "bad/frames-window.mdsx.zst": ("frame 1", 9 * FRAME_SIZE, "at most 8 MiB", None),
    "bad/frames-dictionary.mdsx.zst": ("frame 1", 7, None, None),
    "bad/frames-large.mdsx.zst": ("frame 1", None, f"<= {FRAME_SIZE + 2**16} bytes", None),
    "bad/frames-reserved-bit.mdsx.zst": ("frame 1", None, None, None),
    "bad/frames-block.mdsx.zst": ("frame 1", None, None, None),
    "bad/frames-table-magic.mdsx.zst": ("seek table", "0x184d2a5f", "0x184d2a5e", None),
    "bad/frames-table-size.mdsx.zst": ("seek table", 34, 33, None),
    "bad/frames-table-count.mdsx.zst": ("seek table", 4, 3, None),
    "bad/frames-table-descriptor.mdsx.zst": ("seek table", 128, 0, None),
    "bad/frames-table-footer.mdsx.zst": ("seek table", "0x8f92eab2", "0x8f92eab1", None),
    "bad/frames-table-raw.mdsx.zst": ("seek table", [21, 999], [f"<= {FRAME_SIZE + 2**16}", 1000], None),
    "bad/frames-table-sum.mdsx.zst": ("seek table", 79, 119, None),
    "bad/frames-table-sizes.mdsx.zst": ("seek table, frame 0", 50, 49, None),
}


def facts(error: FormatError) -> tuple[object, ...]:
    return error.file, error.place, error.found, error.expected, error.hint


@pytest.mark.parametrize("file", FACTS)
def test_a_damaged_file_is_named_with_the_place_and_the_damage(file: str) -> None:
    with pytest.raises(FormatError) as caught:
        open_file(file)
    assert facts(caught.value) == (file, *FACTS[file])


def test_a_web_page_is_no_index() -> None:
    with pytest.raises(CorruptError) as caught:
        parse_index(b" \n<!doctype html>", file="x")
    assert facts(caught.value) == (
        "x", "its first bytes", "b' \\n<!doctype html>'", START, "this is a web page: check the URL",
    )  # fmt: skip


STORED, RAW_SIZE = data("good/frames.zst"), 2 * FRAME_SIZE + 1000


def test_a_stream_of_another_length_is_named_with_what_is_missing_or_left_over() -> None:
    with pytest.raises(CorruptError, match="bytes follow the shard") as caught:
        list(FrameReader(RAW_SIZE, len(STORED), "x").feed(STORED + b"!!"))
    assert facts(caught.value) == ("x", None, 2, 0, None)
    second = int(parse_seek_table(STORED[-41:], raw_size=RAW_SIZE, size=len(STORED))[1])
    for size, place in ((0, "frame 0"), (second - 1, "frame 0"), (second, "frame 1"), (len(STORED) - 1, "seek table")):
        reader = FrameReader(RAW_SIZE, len(STORED), "x")
        list(reader.feed(STORED[:size]))
        with pytest.raises(CorruptError, match="the shard is truncated") as caught:
            reader.finish()
        assert facts(caught.value) == ("x", place, f"{len(STORED) - size} bytes missing", None, None)


def test_a_frame_by_itself_is_named_by_its_reader() -> None:
    for damaged, found in ((b"", ""), (b"\0" * 20, "00 00 00 00")):
        with pytest.raises(CorruptError, match="no zstd frame") as caught:
            decompress_frame(damaged, expected_size=3, file="x", place="frame 7")
        assert facts(caught.value) == ("x", "frame 7", found, "28 b5 2f fd", None)
    with pytest.raises(CorruptError, match="the frame is damaged") as caught:
        first_bytes(b"\0" * 20)
    assert facts(caught.value) == (None, "frame 0", None, None, None)


def test_sizes_that_no_shard_has_are_named() -> None:
    for read in (
        lambda: FrameReader(2**47 + 1, 2**60, "x"),
        lambda: parse_seek_table(b"", raw_size=2**47 + 1, size=2**60, file="x"),
    ):
        with pytest.raises(CorruptError, match="too many frames") as caught:
            read()
        assert facts(caught.value) == ("x", None, 2**27 + 1, "at most 134217728", None)
    with pytest.raises(CorruptError, match="too small for a seek table") as caught:
        claimed_raw_size(b"12", file="x")
    assert facts(caught.value) == ("x", None, "2 bytes", None, None)
    with pytest.raises(CorruptError, match="no seek table at its end") as caught:
        claimed_raw_size(bytes(41), file="x")
    assert facts(caught.value) == ("x", None, None, None, None)


def test_a_frame_that_is_too_large_is_named_by_the_seek_table() -> None:
    most = FRAME_SIZE + 2**16
    assert parse_seek_table(seek_table([(most, 5)]), raw_size=5, size=most + 25).tolist() == [0, most]
    with pytest.raises(CorruptError, match="wrong sizes of frame 0") as caught:
        parse_seek_table(seek_table([(most + 1, 5)]), raw_size=5, size=most + 26, file="x")
    assert facts(caught.value) == ("x", "seek table", [most + 1, 5], [f"<= {most}", 5], None)


def test_the_first_frame_of_another_size_than_in_the_seek_table_is_named() -> None:
    frames = [frame(bytes(FRAME_SIZE)), frame(bytes(FRAME_SIZE - 5) + b"hello")]
    small, large = map(len, frames)
    stored = b"".join(frames) + seek_table([(small + 1, FRAME_SIZE), (large - 1, FRAME_SIZE)])
    reader = FrameReader(2 * FRAME_SIZE, len(stored), "x")
    list(reader.feed(stored))
    with pytest.raises(CorruptError, match="wrong compressed size") as caught:
        reader.finish()
    assert facts(caught.value) == ("x", "seek table, frame 0", small + 1, small, None)
