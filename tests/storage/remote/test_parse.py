"""What servers send in headers and documents: a wrong value is a ValueError, and nothing else."""

from __future__ import annotations

from contextlib import suppress

import pytest

from mdsx import secret
from mdsx.storage.remote import parse
from tests.storage.remote.answers import DATES, NUMBERS, TEXTS


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-01-01T00:00:00.5Z", 1767225600.5),
        ("2026-01-01T00:00:00.123456789Z", 1767225600.123456),
        ("2026-01-01T00:00:00+00:00", 1767225600.0),
        ("Thu, 01 Jan 2026 00:00:00 GMT", 1767225600.0),
        ("Thu, 01 Jan 2026 00:00:00 -0000", 1767225600.0),
    ],
)
def test_dates_of_servers_are_read(text: str, seconds: float) -> None:
    assert parse.date(text) == seconds


@pytest.mark.parametrize("text", [*DATES, *NUMBERS, *TEXTS])
def test_any_text_is_a_value_or_a_value_error(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret, "_known", set())  # no other test's messages hide these tokens
    for function in (parse.date, parse.time, parse.number, parse.etag, parse.token):
        with suppress(ValueError):
            function(text)
    with suppress(ValueError):
        parse.xml(text.encode())
    with suppress(ValueError):
        parse.json(text.encode(), list[int])
    assert parse.content_range(text) in (None, (0, 10), (0, 1000), (9, 1000))
    assert parse.number_or_none(text) in (None, 0, 7, 1000)


def test_numbers_are_digits_alone() -> None:
    assert [text for text in NUMBERS if parse.number_or_none(text) is not None] == ["0", "1000"]
