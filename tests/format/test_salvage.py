"""Salvage keeps exactly the samples of a damaged shard whose bytes are all undamaged."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import pytest

from mdsx.errors import CorruptError, FormatError, UnsupportedError
from mdsx.format import (
    Layout,
    Ranges,
    Salvage,
    ShardView,
    check_shard,
    compress,
    format_ranges,
    own_layout,
    salvage,
    surplus,
)
from tests.checks.damage.datasets import holds
from tests.conftest import Often
from tests.format import by_the_book
from tests.format.owners import owners
from tests.format.reference import get, patch, put, read_shard, row_at, rows_offset, seal
from tests.format.test_check import SHARDS, change_of

FRAME = 2**20


def layout_of(shard: bytes) -> Layout:
    view = ShardView.parse(shard)
    return Layout(view.schema, view.row_key, view.rows_offset, view.samples, len(shard))


def left(shard: bytes, damaged: bytes, *, size: int | None = None, compressed: bool = False) -> Salvage:
    size = len(damaged) if size is None else size
    return salvage(damaged, layout_of(shard), compressed=compressed, size=size, file="x")


def samples(found: Salvage) -> list[dict[str, Any]]:
    """Return the samples of the shard that salvage makes."""
    if not found.undamaged.any():
        return []
    raw = bytes(found.rebuild())
    assert check_shard(raw) == []
    return read_shard(raw)


@pytest.mark.parametrize("name", SHARDS)
def test_a_changed_byte_costs_only_its_sample(name: str) -> None:
    shard = SHARDS[name]
    whose, written = owners(shard), read_shard(shard)
    for place in range(len(shard)):
        damaged = patch(shard, place, bytes([shard[place] ^ change_of(place)]))
        found, owner = left(shard, damaged), None if whose[place].part == "checksum" else whose[place].sample
        assert len(found.problems) == 1, (place, found.problems)
        assert found.lost == (() if owner is None else ((owner, owner + 1),))
        assert samples(found) == [sample for number, sample in enumerate(written) if number != owner]


@pytest.mark.parametrize("name", SHARDS)
def test_a_truncated_shard_loses_only_the_missing_samples(name: str) -> None:
    shard = SHARDS[name]
    whose, written = owners(shard), read_shard(shard)
    for size in range(len(shard)):
        gone = {owner.sample for owner in whose[size:]}
        found = left(shard, shard[:size], size=len(shard))
        assert samples(found) == [sample for number, sample in enumerate(written) if number not in gone], size
        assert found.problems[0].place == f"byte {size}"


def test_a_truncated_shard_has_no_problem_but_that() -> None:
    values = [None, b"a", b"", b"bc", None, b"d"]
    shard = by_the_book.shard({"text": "str?"}, [{"text": value} for value in values])
    for size in range(rows_offset(shard), len(shard)):
        (problem,) = left(shard, shard[:size], size=len(shard)).problems
        assert problem.place == f"byte {size}"
    size = row_at(shard, 1)
    found = left(shard, patch(shard, row_at(shard, 0), bytes(8))[:size], size=len(shard))
    assert [problem.place for problem in found.problems] == [f"byte {size}", "sample 0"]


def test_the_error_of_a_truncated_shard_has_the_missing_samples() -> None:
    shard = SHARDS["fixed"]
    size = row_at(shard, 4) + 1
    found = salvage(shard[:size], layout_of(shard), compressed=False, size=len(shard), file="x", first=10)
    (problem,) = found.problems
    assert problem.message == "the shard is truncated; it holds samples 4-8 (14-18 of the dataset)"
    assert (problem.file, problem.place, problem.expected) == ("x", f"byte {size}", f"{len(shard)} bytes")


def test_damaged_samples_before_the_missing_ones_are_lost_with_them() -> None:
    shard = SHARDS["fixed"]
    damaged = patch(patch(shard, row_at(shard, 1) + 8, b"!"), row_at(shard, 3) + 8, b"!")
    assert left(shard, damaged[: row_at(shard, 4)], size=len(shard)).lost == ((1, 2), (3, 9))


def test_the_error_of_bytes_after_a_shard_says_where_it_ends() -> None:
    assert surplus(7, 7, "x") == []
    (problem,) = surplus(8, 7, "x")
    assert (problem.file, problem.place, problem.found, problem.expected) == ("x", "byte 7", "8 bytes", 7)


def test_ranges_are_written_as_people_do() -> None:
    ranges = [(3, 4), (7, 10), (12, 14), (20, 21), (30, 40)]
    assert format_ranges(ranges) == "3, 7-9, 12-13, 20, 30-39"
    assert format_ranges([*ranges, (50, 51), (60, 70)]) == "3, 7-9, 12-13, 20, 30-39, and 11 more"
    assert format_ranges(ranges, 100, most=1) == "103, and 16 more"


def test_undamaged_samples_keep_their_bytes() -> None:
    for shard in SHARDS.values():
        damaged = patch(shard, 0, bytes(64))  # no header at all: the index gives the layout
        found = left(shard, damaged)
        assert (bytes(found.rebuild()), found.lost) == (shard, ())


def test_a_foreign_shard_is_not_salvaged() -> None:
    other = by_the_book.shard({"text": "str"}, [{"text": b"other"}, {"text": b"alone"}])
    found = left(SHARDS["one"], other[: len(SHARDS["one"])])
    assert found.other == get(other, "row_key")
    assert (found.view.samples, found.lost) == (1, ((0, 1),))
    assert [problem.place for problem in found.problems] == ["header"]


def test_a_header_of_another_shard_is_described() -> None:
    name, key = "n" * 255, 0
    shard = by_the_book.shard({name: "uint8"}, [{name: b"\1"}, {name: b"\2"}])
    (problem,) = left(shard, seal(put(shard, row_key=key))).problems
    columns = f'[{{"name":"{name}'[:200]
    rest = f"2 samples, {len(shard)} bytes, columns {columns}"
    assert problem.message == "is not the shard that the index names"
    assert (problem.file, problem.place) == ("x", "header")
    assert problem.found == f"row key {key:016x}, {rest}"
    assert problem.expected == f"row key {get(shard, 'row_key'):016x}, {rest}"


def test_a_damaged_header_has_the_errors_of_its_bytes() -> None:
    shard = SHARDS["mixed"]
    (version,) = left(shard, patch(shard, 8, b"\2")).problems
    assert (version.message, version.file, version.place) == ("it is damaged", "x", "major version")
    assert (version.found, version.expected) == (2, 1)
    (schema,) = left(shard, patch(shard, 70, b"!")).problems
    assert (schema.file, schema.place) == ("x", "header checksum")
    end = row_at(shard, get(shard, "samples"))
    for place in (end, get(shard, "heap_offset") - 1):
        (padding,) = left(shard, patch(shard, place, b"!")).problems
        assert (padding.message, padding.file) == ("it is not zero", "x")
        assert padding.place == "padding between rows and heap"


def test_a_header_is_checked_if_it_is_complete() -> None:
    shard = SHARDS["one"]
    damaged, size = patch(shard, 70, b"!"), rows_offset(shard)
    both = left(shard, damaged[:size], size=len(shard)).problems
    assert [problem.place for problem in both] == [f"byte {size}", "header checksum"]
    (cut,) = left(shard, damaged[: size - 1], size=len(shard)).problems
    assert cut.place == f"byte {size - 1}"


def test_damaged_samples_are_named_by_their_dataset_number() -> None:
    shard = SHARDS["fixed"]
    damaged = patch(patch(shard, row_at(shard, 3) + 8, b"!"), row_at(shard, 5) + 8, b"!")
    found = salvage(damaged, layout_of(shard), compressed=False, size=len(shard), file="x", first=10)
    places = [(problem.file, problem.place) for problem in found.problems]
    assert places == [("x", "sample 3 (13 of the dataset)"), ("x", "sample 5 (15 of the dataset)")]
    assert found.lost == ((3, 4), (5, 6))


def test_samples_whose_problems_are_not_listed_are_lost_too() -> None:
    shard = by_the_book.shard({"a": "uint8"}, [{"a": b"\1"}] * 1500)
    rows = b"\xff" * (1499 * 16)
    found = left(shard, patch(shard, row_at(shard, 0), rows))
    assert found.lost == ((0, 1499),)
    assert len(found.problems) == 1001
    assert found.problems[-1].file == "x"


# --- compressed

_BITS = random.Random(5)
LARGE = by_the_book.shard(
    {"data": "bytes", "id": "uint16"},
    [
        {"data": _BITS.randbytes(_BITS.randrange(50_000)) + b"!", "id": number.to_bytes(2, "little")}
        for number in range(200)
    ],
)
PACKED = compress(LARGE, 1)


def frames() -> list[tuple[int, int]]:
    """Return the place of each frame of PACKED, by its seek table."""
    count = -(-len(LARGE) // FRAME)
    table = PACKED[-8 * count - 9 :]
    at, found = 0, []
    for number in range(count):
        size = int.from_bytes(table[8 * number : 8 * number + 4], "little")
        found.append((at, at + size))
        at += size
    return found


def frame_of(number: int) -> bytes:
    return LARGE[number * FRAME : (number + 1) * FRAME]


def expected_lost(damaged: set[int]) -> set[int]:
    """Return the samples that have a byte in these frames."""
    whose = owners(LARGE)
    return {
        owner.sample
        for frame in damaged
        for owner in whose[frame * FRAME : (frame + 1) * FRAME]
        if owner.sample is not None
    }


def numbers(found: Salvage) -> set[int]:
    return {number for start, stop in found.lost for number in range(start, stop)}


@pytest.fixture(scope="module")
def lost_by_frame() -> list[set[int]]:
    return [expected_lost({number}) for number in range(len(frames()))]


def test_damaged_frames_cost_only_their_samples(lost_by_frame: list[set[int]], often: Often) -> None:
    rng = random.Random(7)
    for _ in range(often(10, long=500)):
        hit = rng.sample(range(len(frames())), rng.randint(1, 3))
        damaged = bytearray(PACKED)
        for number in hit:
            start, stop = frames()[number]
            # Frame header, block header, or any byte.
            place = rng.choice([start + rng.randrange(18), start + rng.randrange(9, 12), rng.randrange(start, stop)])
            damaged[place] ^= 1 << rng.randrange(8)
        if rng.random() < 0.5:  # and a byte of the seek table
            damaged[rng.randrange(frames()[-1][1], len(PACKED))] ^= 1 << rng.randrange(8)
        hit = [number for number in hit if not holds(damaged[slice(*frames()[number])], frame_of(number))]
        found = left(LARGE, bytes(damaged), compressed=True)
        expected = set[int]().union(*(lost_by_frame[number] for number in hit))
        assert numbers(found) == expected
        assert {f"frame {number}" for number in hit} <= {problem.place for problem in found.problems}


def test_a_damaged_frame_or_entry_hides_no_other_frame(
    lost_by_frame: list[set[int]],
) -> None:
    table = frames()[-1][1] + 8
    for number, (start, _) in enumerate(frames()):
        for entry in range(len(frames())):
            damaged = patch(PACKED, start, b"!")
            damaged = patch(damaged, table + 8 * entry, bytes([damaged[table + 8 * entry] ^ 1]))
            assert numbers(left(LARGE, damaged, compressed=True)) == lost_by_frame[number], (number, entry)


def test_a_damaged_frame_is_reported_with_its_samples(lost_by_frame: list[set[int]]) -> None:
    start, stop = frames()[2]
    damaged = patch(PACKED, (start + stop) // 2, b"\0\0\0\0")
    found = salvage(damaged, layout_of(LARGE), compressed=True, size=len(PACKED), file="x", first=1000)
    (problem,) = found.problems
    first, last = min(lost_by_frame[2]), max(lost_by_frame[2])
    assert problem.place == "frame 2"
    assert f"it holds samples {first}-{last} ({1000 + first}-{1000 + last} of the dataset)" in str(problem)


def test_the_error_of_a_frame_or_seek_table_is_that_of_its_bytes() -> None:
    (table,) = left(LARGE, patch(PACKED, len(PACKED) - 1, b"!"), compressed=True).problems
    assert table.file == "x"
    assert str(table.place).startswith("seek table")
    (problem,) = left(LARGE, patch(PACKED, frames()[2][0], b"!"), compressed=True).problems
    assert problem.message.startswith("no zstd frame; it holds samples")
    assert (problem.file, problem.place) == ("x", "frame 2")
    assert (problem.found, problem.expected) == ("21 b5 2f fd", "28 b5 2f fd")


def damaged_frame(shard: bytes, number: int) -> tuple[str, Ranges]:
    """Return the only problem of a shard with this damaged frame, and the lost samples."""
    packed = compress(shard, 1)
    magic = b"\x28\xb5\x2f\xfd"
    at = -1
    for _ in range(number + 1):
        at = packed.index(magic, at + 1)
    found = left(shard, patch(packed, at, b"!"), compressed=True)
    (problem,) = found.problems
    return problem.message, found.lost


def test_a_frame_holds_the_samples_whose_rows_it_touches() -> None:
    shard = by_the_book.shard({"data": "uint8[524288]"}, [{"data": bytes([number]) * 2**19} for number in range(5)])
    assert rows_offset(shard) == 128  # so the third row is in the first and the second frame
    assert damaged_frame(shard, 0) == ("no zstd frame; it holds samples 0-1", ((0, 2),))
    assert damaged_frame(shard, 1) == ("no zstd frame; it holds samples 1-3", ((1, 4),))
    assert damaged_frame(shard, 2) == ("no zstd frame; it holds samples 3-4", ((3, 5),))


def test_a_frame_with_only_the_schema_holds_no_sample() -> None:
    names = [f"{number:0255}" for number in range(3718)]
    shard = by_the_book.shard(dict.fromkeys(names, "uint8"), [dict.fromkeys(names, b"\1")])
    assert rows_offset(shard) == FRAME
    assert damaged_frame(shard, 0) == ("no zstd frame; it holds no sample", ())


def test_a_frame_holds_the_samples_whose_heap_bytes_it_touches() -> None:
    """Not those that end where it begins, begin where it ends, or have no bytes."""
    first = FRAME - 320  # the heap begins at byte 320
    sizes = [first, 9, 0, FRAME - 9, 9, 0]
    shard = by_the_book.shard({"text": "str"}, [{"text": b"x" * size} for size in sizes])
    assert get(shard, "heap_offset") == 320
    assert damaged_frame(shard, 1) == ("no zstd frame; it holds samples 1, 3", ((1, 2), (3, 4)))
    assert damaged_frame(shard, 2) == ("no zstd frame; it holds samples 4", ((4, 5),))


def test_a_damaged_seek_table_costs_nothing() -> None:
    for place in range(frames()[-1][1], len(PACKED)):
        found = left(LARGE, patch(PACKED, place, bytes([PACKED[place] ^ 4])), compressed=True)
        assert found.problems
        assert all((problem.place or "").startswith("seek table") for problem in found.problems)
        assert found.lost == ()
    assert bytes(found.rebuild()) == LARGE


def test_a_truncated_compressed_shard_keeps_its_whole_frames(lost_by_frame: list[set[int]]) -> None:
    rng = random.Random(9)
    for _ in range(10):
        size = rng.randrange(len(PACKED))
        gone = {number for number, (_, stop) in enumerate(frames()) if stop > size}
        found = left(LARGE, PACKED[:size], size=len(PACKED), compressed=True)
        assert numbers(found) == set().union(*(lost_by_frame[number] for number in gone))


# --- the shard's own header, where there is no index


@pytest.mark.parametrize("name", SHARDS)
def test_the_header_of_a_truncated_shard_gives_the_layout(name: str) -> None:
    shard = SHARDS[name]
    for size in range(rows_offset(shard), len(shard)):
        assert own_layout(shard[:size], compressed=False) == layout_of(shard)


def test_the_first_frame_gives_the_layout() -> None:
    assert own_layout(PACKED[: frames()[0][1]], compressed=True) == layout_of(LARGE)
    with pytest.raises(CorruptError, match="frame 0"):
        own_layout(PACKED[: frames()[0][1] - 1], compressed=True)


def test_a_damaged_version_is_no_later_version() -> None:
    shard = SHARDS["one"]
    assert own_layout(patch(shard, 8, b"\2"), compressed=False) == layout_of(shard)
    with pytest.raises(UnsupportedError):
        own_layout(patch(patch(shard, 8, b"\2"), 16, b"\7"), compressed=False)


def test_without_a_header_the_error_names_the_file() -> None:
    shard = SHARDS["one"]
    for data, compressed, place in (
        (patch(shard, 64, b"!"), False, "header checksum"),
        (patch(patch(shard, 8, b"\2"), 16, b"\7"), False, "major version"),
        (frame_of(0), True, "frame 0"),
        (patch(PACKED, frames()[0][1] - 1, b"!"), True, "frame 0"),
    ):
        with pytest.raises(FormatError) as caught:
            own_layout(data, compressed=compressed, file="x")
        assert (caught.value.file, caught.value.place) == ("x", place)


# --- bounds


@pytest.mark.parametrize("name", ["one", "fixed"])
def test_claimed_sizes_are_not_allocated(name: str) -> None:
    schema = ShardView.parse(SHARDS[name]).schema
    claims = Layout(schema, 0, 128, 2**55, 2**62)
    tracemalloc.start()
    found = salvage(SHARDS[name], claims, compressed=False, size=2**62)
    packed = salvage(PACKED[:1000], claims, compressed=True, size=2**62)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.lost == packed.lost == ((0, 2**55),)
    assert peak < 2**23


# --- the row key


@pytest.mark.parametrize("name", SHARDS)
def test_rows_with_the_indexs_key_count_under_any_header(name: str) -> None:
    """The header is undamaged, but of another shard: the rows decide."""
    shard = SHARDS[name]
    other = put(shard, row_key=get(shard, "row_key") ^ 1)
    found = left(shard, seal(other))
    assert (found.lost, found.other) == ((), None)
    assert [problem.place for problem in found.problems] == ["header"]
    assert bytes(found.rebuild()) == shard


@pytest.mark.parametrize("name", SHARDS)
def test_a_damaged_header_with_undamaged_sizes_costs_nothing(name: str) -> None:
    """Without an index: the samples prove the rest of the header."""
    shard = SHARDS[name]
    for place in (*range(10), *range(24, 32), *range(56, 64)):
        damaged = patch(shard, place, bytes([shard[place] ^ 0x41]))
        layout = own_layout(damaged, compressed=False)
        found = salvage(damaged, layout, compressed=False, size=len(damaged))
        assert (found.lost, bytes(found.rebuild())) == ((), shard), place


def test_two_votes_and_the_header_checksum_prove_a_key() -> None:
    shard = by_the_book.shard({"id": "uint8"}, [{"id": bytes([number])} for number in range(3)])
    damaged = patch(patch(shard, 24, bytes(8)), row_at(shard, 1) + 8, b"!")
    layout = own_layout(damaged, compressed=False)
    assert layout.row_key is None
    found = salvage(damaged, layout, compressed=False, size=len(damaged))
    assert (found.layout.row_key, found.lost) == (get(shard, "row_key"), ((1, 2),))
    one = patch(damaged, row_at(shard, 2) + 8, b"!")
    assert salvage(one, layout, compressed=False, size=len(damaged)).layout.row_key is None


@pytest.mark.parametrize("name", ["one", "fixed"])
def test_unproven_columns_of_a_damaged_header_are_not_kept(name: str) -> None:
    """A column's name is damaged: the rows agree on the key of other columns."""
    shard = SHARDS[name]
    at = shard.index(b'"name":"') + 8
    damaged = patch(shard, at, b"x")
    layout = own_layout(damaged, compressed=False)
    found = salvage(damaged, layout, compressed=False, size=len(damaged), file="x")
    assert (found.layout.row_key, found.view.row_key, found.view.samples) == (None, 0, layout.samples)
    assert found.lost == ((0, layout.samples),)
    assert [(problem.file, problem.place) for problem in found.problems] == [("x", "header checksum")]
    cut = salvage(damaged[:-1], layout, compressed=False, size=len(damaged) - 1)
    assert [problem.place for problem in cut.problems] == ["header checksum", f"byte {len(damaged) - 1}"]


def test_a_single_row_must_give_its_own_key() -> None:
    shard = patch(SHARDS["one"], 24, bytes(8))
    at = row_at(shard, 0)
    for damaged in (patch(shard, at, bytes(8)), patch(shard, len(shard) - 1, b"!")):
        layout = own_layout(damaged, compressed=False)
        found = salvage(damaged, layout, compressed=False, size=len(damaged))
        assert (found.layout.row_key, found.lost) == (None, ((0, 1),))
