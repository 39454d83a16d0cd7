"""Shards whose bytes are wrong: an error of ours that names the sample, whatever the bytes are."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mdsx
from mdsx.checks.damage import verify
from mdsx.errors import CorruptError
from mdsx.foreign.mds import MdsFormat, MdsIndex
from mdsx.format import Reading
from tests.conftest import Often
from tests.foreign.mds.plain import entry, index_bytes, read_shard, shard_bytes, write_dataset

COLUMNS = {"a": "str", "id": "int", "v": "ndarray:float32", "w": "uint16"}
COUNT = 5


def sample(number: int) -> dict[str, Any]:
    return {"a": "text" * number, "id": number, "v": np.ones(number + 1, np.float32), "w": number}


SAMPLES = [sample(number) for number in range(COUNT)]
RAW = shard_bytes(COLUMNS, SAMPLES)
OFFSETS = list(struct.unpack(f"<{COUNT + 1}I", RAW[4 : 8 + 4 * COUNT]))


def index_of(raw: bytes = RAW, count: int = COUNT, hashes: tuple[str, ...] = ()) -> MdsIndex:
    data = index_bytes([entry(COLUMNS, "shard.00000.mds", raw, count, hashes)])
    return MdsFormat().parse_index(data, file="index.json")


def read(raw: bytes, index: MdsIndex | None = None) -> list[dict[str, Any] | CorruptError]:
    """Return each sample, or its error."""
    index = index or index_of()
    shard = index.open(0, raw, file="shard.00000.mds")
    decoder = index.decoder({name: number for number, name in enumerate(sorted(COLUMNS))})
    return [
        caught(lambda number=number: decoder.decode(shard, number, verify=False))  # type: ignore[misc]
        for number in range(shard.samples)
    ]


def caught(read: Callable[[], dict[str, Any]]) -> dict[str, Any] | CorruptError:
    try:
        return read()
    except CorruptError as error:
        return error


def with_u32(at: int, value: int, raw: bytes = RAW) -> bytes:
    return raw[:at] + struct.pack("<I", value % 2**32) + raw[at + 4 :]


def test_an_undamaged_shard_is_read() -> None:
    found = read(RAW)
    assert [each["id"] for each in found if isinstance(each, dict)] == list(range(COUNT))


OPENING = {
    "cut": (RAW[:-1], "size"),
    "longer": (RAW + b"\0", "size"),
    "empty": (b"", "size"),
    "another count": (with_u32(0, COUNT + 1), "count"),
    "a count of 2^32 - 1": (with_u32(0, 2**32 - 1), "count"),
    "first offset in the table": (with_u32(4, 8), "offset 0"),
    "first offset beyond the file": (with_u32(4, 2**32 - 1), "offset 0"),
    "last offset before the end": (with_u32(4 + 4 * COUNT, len(RAW) - 1), f"offset {COUNT}"),
    "last offset beyond the end": (with_u32(4 + 4 * COUNT, len(RAW) + 1), f"offset {COUNT}"),
}


@pytest.mark.parametrize("case", OPENING)
def test_a_wrong_shard_is_not_opened(case: str) -> None:
    raw, place = OPENING[case]
    with pytest.raises(CorruptError, match=f"shard.00000.mds: {place}: "):
        index_of().open(0, raw, file="shard.00000.mds")


INSIDE = {
    "an offset beyond the file": (with_u32(12, 2**32 - 1), {1, 2}),
    "an offset in the table": (with_u32(12, 4), {1, 2}),
    "an offset before the one before it": (with_u32(12, OFFSETS[1] - 1), {1, 2}),
    "an offset one too high": (with_u32(12, OFFSETS[2] + 1), {1, 2}),
    "a size that is too large": (with_u32(OFFSETS[2], 9), {2}),
    "a size of 2^32 - 1": (with_u32(OFFSETS[2], 2**32 - 1), {2}),
    "sizes that add up beyond 2^32": (with_u32(OFFSETS[2] + 4, 2**32 - 8, with_u32(OFFSETS[2], 40)), {2}),
    "a text that is not UTF-8": (RAW[: OFFSETS[2] + 8] + b"\xff" + RAW[OFFSETS[2] + 9 :], {2}),
}


@pytest.mark.parametrize("case", INSIDE)
def test_only_the_damaged_samples_are_errors(case: str, tmp_path: Path) -> None:
    raw, damaged = INSIDE[case]
    found = read(raw)
    assert {number for number, each in enumerate(found) if isinstance(each, CorruptError)} == damaged
    shard = index_of().open(0, raw, file="shard.00000.mds")
    for number in damaged - ({2} if "UTF-8" in case else set()):
        with pytest.raises(CorruptError, match=f"shard.00000.mds: sample {number}: "):
            shard.select(np.array([0, number]), verify=True)
    assert [each["id"] for each in found if isinstance(each, dict)] == [k for k in range(COUNT) if k not in damaged]
    write_dataset(tmp_path, COLUMNS, [SAMPLES])
    (tmp_path / "shard.00000.mds").write_bytes(raw)
    problems = [str(problem) for problem in verify(tmp_path)]
    assert problems
    assert all("shard.00000.mds: " in problem for problem in problems)
    for each in found:
        if isinstance(each, CorruptError):
            assert str(each).startswith("shard.00000.mds: sample ")


def test_every_flipped_byte_is_detected_with_hashes(often: Often) -> None:
    index = index_of(hashes=("xxh64",))

    @settings(max_examples=often(60, long=3000), deadline=None)
    @given(st.integers(0, len(RAW) - 1), st.integers(1, 255))
    def run(at: int, flipped: int) -> None:
        raw = RAW[:at] + bytes([RAW[at] ^ flipped]) + RAW[at + 1 :]
        with pytest.raises(CorruptError, match=r"shard.00000.mds: (xxh64|count|offset)"):
            index.verify(0, index.open(0, raw, file="shard.00000.mds"), file="shard.00000.mds")
        receiver = index.receive(0, file="shard.00000.mds")
        list(receiver.feed(raw))
        with pytest.raises(CorruptError, match="xxh64"):
            receiver.finish()

    run()


def test_any_shard_is_read_like_the_plain_reader_or_refused(often: Often) -> None:
    columns = {
        "column_names": sorted(COLUMNS),
        "column_encodings": [COLUMNS[name] for name in sorted(COLUMNS)],
        "column_sizes": [None, 8, None, 2],
    }

    @settings(max_examples=often(100, long=10_000), deadline=None)
    @given(
        st.lists(st.tuples(st.integers(0, len(RAW) - 4), st.integers(0, 2**32 - 1) | st.integers(0, 300)), max_size=3)
    )
    def run(changes: list[tuple[int, int]]) -> None:
        raw = RAW
        for at, value in changes:
            raw = with_u32(at, value, raw)
        try:
            found = read(raw)
        except CorruptError:
            return
        if any(isinstance(each, CorruptError) for each in found):
            return
        for ours, theirs in zip(found, read_shard(raw, columns), strict=True):
            assert str(ours) == str(theirs)

    run()


# --- by range


def drive(reading: Reading[Any], raw: bytes) -> tuple[Any, int]:
    """Return the result of a reading of `raw`, and the number of its requests."""
    requests = 0
    try:
        wanted = next(reading)
        while True:
            requests += 1
            wanted = reading.send([memoryview(raw)[low:high] for low, high in wanted])
    except StopIteration as end:
        return end.value, requests


@pytest.fixture(params=["whole table", "parts of the table"])
def _table(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param != "whole table":
        monkeypatch.setattr("mdsx.foreign.mds.stored_bytes._WHOLE_TABLE", 8)


@pytest.mark.usefixtures("_table")
def test_samples_are_read_by_range_after_their_offsets() -> None:
    index = index_of()
    ranges, wanted = index.by_range(0, file="shard.00000.mds"), np.array([3, 0, 3])
    for number in range(2):
        selection, requests = drive(ranges.select(wanted), RAW)
        assert requests <= 2 - number * (ranges._table is not None)
        located = selection.layout.copied(selection)
        assert located.samples.tolist() == wanted.tolist()
        assert len(selection.heap) < len(RAW) // 2 + 40
    drive(ranges.check(), RAW)


@pytest.mark.usefixtures("_table")
@pytest.mark.parametrize("case", [*OPENING][3:])
def test_a_wrong_shard_is_not_read_by_range(case: str) -> None:
    raw, place = OPENING[case]
    ranges = index_of().by_range(0, file="shard.00000.mds")
    for reading in (ranges.select(np.array([1])), ranges.check()):
        with pytest.raises(CorruptError, match=f"shard.00000.mds: {place}: "):
            drive(reading, raw)


@pytest.mark.usefixtures("_table")
@pytest.mark.parametrize("case", [*INSIDE][:-1])
def test_damaged_samples_are_not_read_by_range(case: str) -> None:
    raw, damaged = INSIDE[case]
    ranges = index_of().by_range(0, file="shard.00000.mds")
    for number in range(COUNT):
        if number not in damaged:
            drive(ranges.select(np.array([number])), raw)
            continue
        with pytest.raises(CorruptError, match=f"sample {number}"):
            drive(ranges.select(np.array([number])), raw)


# --- the cache


# --- pickles


@pytest.fixture
def pickles(tmp_path: Path) -> Callable[..., mdsx.Dataset]:
    columns = {"id": "int", "x": "pkl", "y": "custom:encoding"}
    write_dataset(tmp_path, columns, [[{"id": k, "x": b"cos\nsystem\n.", "y": b"?"} for k in range(3)]])
    return lambda **options: mdsx.Dataset(tmp_path, **options)


def test_a_pickle_column_is_an_error_that_names_it(pickles: Callable[..., mdsx.Dataset]) -> None:
    with pytest.raises(mdsx.UnsupportedError, match="column 'x' has the encoding 'pkl': pickles are never loaded"):
        pickles()[0]
    with pytest.raises(mdsx.UnsupportedError, match="column 'y' has the encoding 'custom:encoding'"):
        pickles(columns=["y"])[:]
    assert [sample["id"] for sample in pickles(columns=["id"])] == [0, 1, 2]
    assert pickles().columns == {"id": "int64", "x": "mds.pkl", "y": "mds.custom.encoding"}


def test_verify_leaves_pickles_alone(pickles: Callable[..., mdsx.Dataset]) -> None:
    assert not list(verify(pickles().url))
