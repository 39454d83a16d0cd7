"""Numbers as a person reads them."""

from __future__ import annotations

import pytest

from mdsx.simulate import words


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 %"), (0.00001, "under 0.01 %"), (0.000256, "0.03 %"), (0.0153, "1.5 %"), (0.384, "38 %"), (1, "100 %")],
)
def test_shares_have_the_digits_that_matter(value: float, text: str) -> None:
    assert words.share(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 ms"), (0.0605, "60.5 ms"), (90.3, "90.3 s"), (2344, "39.1 min"), (20000, "5.56 hours"), (1e6, "11.6 days")],
)
def test_times_have_a_fitting_unit(value: float, text: str) -> None:
    assert words.seconds(value) == text


def test_counts_are_full_below_a_million() -> None:
    assert [words.count(value) for value in (0, 39, 1.25, 999_999, 1e6, 1e10, 2e12)] == [
        "0",
        "39",
        "1.25",
        "999,999",
        "1 million",
        "10 billion",
        "2 trillion",
    ]


def test_limits_are_rounded_up() -> None:
    assert [words.limit(value) for value in (1, 4_979_166_667, 4_980_000_000, 4_980_000_001)] == [
        "1B",
        "4.98GB",
        "4.98GB",
        "4.99GB",
    ]


def test_money_below_a_cent_is_not_zero() -> None:
    assert words.money(0.0003, "USD") == "under 0.01 USD"
    assert words.money(1234.5, "EUR") == "1,234.50 EUR"
    assert words.money(0, "EUR") == "0.00 EUR"


def test_times_of_nothing_are_zero() -> None:
    assert words.times(1.02, 1) == "1.02 times"
    assert words.times(150, 1) == "150 times"
    assert words.times(1, 0) == "0.00 times"
