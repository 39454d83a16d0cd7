"""The full check finds every changed byte, and blames only the sample and column that own it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import pytest

from mdsx.errors import FormatError
from mdsx.format import ShardView, check_shard
from mdsx.format.check import find_problems
from tests.conftest import Often
from tests.format import by_the_book
from tests.format.owners import Owner, owners
from tests.format.reference import patch, row_at, seal_rows

SHARDS = {
    "mixed": by_the_book.shard(
        {"id": "uint16", "ok": "bool", "text": "str", "note": "bytes?", "tags": "uint8[*]", "meta": "json?"},
        [
            {
                "id": bytes([number, 7]),
                "ok": bytes([number % 2]),
                "text": "é".encode() * number,
                "note": None if number % 3 else b"note",
                "tags": bytes([number, 0, 0, 0]) + bytes(range(number)),
                "meta": None if number % 2 else b'{"n":[1]}',
            }
            for number in range(7)
        ],
    ),
    "fixed": by_the_book.shard(
        {"ids": "uint32[3]", "flags": "bool[2]"}, [{"ids": bytes(range(12)), "flags": b"\0\1"}] * 9
    ),
    "one": by_the_book.shard({"text": "str"}, [{"text": b"alone"}]),
}
CHANGES = (0x01, 0x20, 0x80, 0xFF)


def changed(shard: bytes, changes: Iterable[int]) -> Iterator[tuple[int, bytes]]:
    """Yield the shard with each of its bytes changed by each of these bits."""
    changes = list(changes)
    for place in range(len(shard)):
        for change in changes:
            yield place, patch(shard, place, bytes([shard[place] ^ change]))


def change_of(place: int) -> int:
    """Return one of these bits for the byte at `place`, for tests that change each byte once."""
    return CHANGES[place // 3 % len(CHANGES)]


def problems(shard: bytes) -> list[str | None]:
    """Return the place of each problem found."""
    try:
        return [error.place for error in check_shard(shard, file="x")]
    except FormatError as error:  # a later version
        return [error.place]


@pytest.mark.parametrize("name", SHARDS)
def test_every_changed_byte_is_blamed_on_its_owner(name: str, often: Often) -> None:
    shard = SHARDS[name]
    whose = owners(shard)
    for place, damaged in changed(shard, range(1, 256) if often(0, long=1) else CHANGES):
        owner, (blamed, *others) = whose[place], problems(damaged)
        assert not others, (place, owner, blamed, others)
        assert fits(blamed or "", owner), (place, owner, blamed)


def fits(blamed: str, owner: Owner) -> bool:
    """Return whether a place names the owner's sample, and no other column of it."""
    match = re.fullmatch(r"sample (\d+)(?:, (padding of the row|start and lengths|column '(\w+)'))?", blamed)
    if match is None or owner.sample is None:
        return match is None and owner.sample is None
    sample, part, column = match.groups()
    parts = {None: True, "padding of the row": owner.part == "row padding", "start and lengths": owner.part == "extent"}
    # If a length becomes "null", the message names its column. That is right, although the byte belongs to the row.
    named = parts[part] if column is None else owner.column == column or owner.part == "extent"
    return int(sample) == owner.sample and named


def test_a_problem_names_its_column_if_known() -> None:
    shard = SHARDS["mixed"]
    whose = owners(shard)
    text = whose.index(Owner("column", 3, "text"))
    flag = whose.index(Owner("column", 3, "ok"))
    assert problems(patch(shard, text, b"\xff")) == ["sample 3, column 'text'"]
    assert problems(patch(shard, flag, b"\2")) == ["sample 3, column 'ok'"]
    assert problems(patch(shard, row_at(shard, 3) + 16, b"\1")) == ["sample 3, start and lengths"]


def test_two_damaged_neighbours_are_both_reported() -> None:
    shard = SHARDS["mixed"]
    damaged = patch(shard, row_at(shard, 3) + 16, b"\1")
    damaged = patch(damaged, row_at(shard, 4) + 16, b"\1")
    assert problems(damaged) == ["sample 3", "sample 4, start and lengths"]  # values in 3 have unknown places


def test_samples_are_named_by_their_dataset_number() -> None:
    damaged = patch(SHARDS["fixed"], row_at(SHARDS["fixed"], 4) + 8, b"!")
    (problem,) = find_problems(ShardView.parse(damaged), first=1000)
    assert problem.error.place == "sample 4 (1004 of the dataset)"


def test_a_gap_is_reported_at_the_following_sample() -> None:
    shard = by_the_book.shard({"text": "str"}, [{"text": b"abc"}] * 5)
    damaged = seal_rows(patch(shard, row_at(shard, 2) + 16, b"\2"))
    assert problems(damaged) == ["sample 3"]


@pytest.mark.parametrize("between", [[], [b""], [None]])
def test_a_character_that_values_divide_is_found(between: list[bytes | None]) -> None:
    values = ["é".encode(), b"\xc3", *between, b"\xa9", b""]
    shard = by_the_book.shard({"text": "str?"}, [{"text": value} for value in values])
    last = len(values) - 2
    assert problems(shard) == ["sample 1, column 'text'", f"sample {last}, column 'text'"]


def test_text_that_ends_within_a_character_is_found() -> None:
    shard = by_the_book.shard({"title": "str", "text": "str"}, [{"title": "é".encode(), "text": b"\xc3"}])
    assert problems(shard) == ["sample 0, column 'text'"]
