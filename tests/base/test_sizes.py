"""Sizes as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdsx import UsageError
from mdsx.base.sizes import format_count, format_size, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4096", 4096),
        ("1B", 1),
        ("64MiB", 64 * 2**20),
        ("64mib", 64 * 2**20),
        ("200GB", 200 * 10**9),
        (" 1.5 GB ", 1_500_000_000),
        ("0.5KiB", 512),
        ("1TiB", 2**40),
        ("2PB", 2 * 10**15),
        ("3EiB", 3 * 2**60),
    ],
)
def test_binary_and_decimal_units_differ(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "size",
    ["", "MB", "-1", "1,5GB", "64 Mo", "1e9", "9 parsecs", "٣MB", 0, -5, "0", "0.1B", 1.5, None, True, 5000 * "9"],
)
def test_an_invalid_size_raises_naming_the_option(size: object) -> None:
    with pytest.raises(UsageError, match="shard_size"):
        parse_size(size, name="shard_size")  # type: ignore[arg-type]


@given(st.integers(1, 2**62))
def test_an_integer_is_bytes(size: int) -> None:
    assert parse_size(size) == parse_size(str(size)) == parse_size(f"{size}B") == size


@given(st.integers(1, 2**62))
def test_a_shown_size_parses_to_three_digits(size: int) -> None:
    assert abs(parse_size(format_size(size)) - size) <= size * 0.005


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (1_500_000_000, "1.5 GB"), (999_600, "1 MB"), (64 * 2**20, "67.1 MB")],
)
def test_sizes_are_shown_in_three_digits(size: int, text: str) -> None:
    assert format_size(size) == text


def test_a_count_agrees_with_its_noun() -> None:
    assert [format_count(number, "shard") for number in (0, 1, 2000)] == ["0 shards", "1 shard", "2,000 shards"]
