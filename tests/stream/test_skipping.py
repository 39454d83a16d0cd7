"""A run stops once it has left out more than a share of its samples."""

from __future__ import annotations

from typing import Any

import pytest

from mdsx import SkippedError, UsageError
from mdsx.stream import Meter, check_skipped, checked_share


def meter(samples: int, skipped: int) -> Meter:
    found = Meter()
    found.samples, found.skipped = samples, skipped
    return found


@pytest.mark.parametrize(
    ("most", "samples", "skipped", "lines", "raises"),
    [
        (0.01, 0, 0, 10, False),  # of 1,000 at least
        (0.01, 0, 0, 11, True),
        (0.01, 89, 1, 9, False),
        (0.01, 89, 1, 10, True),
        (0.01, 5000, 40, 10, False),
        (0.01, 5000, 40, 11, True),
        (0.0, 5000, 0, 1, True),
        (1.0, 0, 0, 500, False),
        (None, 0, 0, 500, False),
    ],
)
def test_more_than_the_share_is_an_error(
    most: float | None, samples: int, skipped: int, lines: int, raises: bool
) -> None:
    found, texts = meter(samples, skipped), [f"position {n}" for n in range(lines)]
    if not raises:
        check_skipped(most, found, lines, texts)
        return
    for _ in range(2):  # the same batch again
        with pytest.raises(SkippedError, match="max_skipped") as caught:
            check_skipped(most, found, lines, texts)
        total = f"{skipped + lines:,} of the {samples + skipped + lines:,} read"
        assert total in str(caught.value)
        assert str(caught.value).count("position 0") == 1
        assert "position 3" not in str(caught.value)


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan"), "0.1", True])
def test_a_share_is_a_number_from_0_to_1(share: Any) -> None:
    with pytest.raises(UsageError, match="max_skipped must be a share"):
        checked_share(share, "skip")


def test_a_share_needs_skipping() -> None:
    assert checked_share(None, "raise") is None
    assert checked_share(1, "skip") == 1.0
    with pytest.raises(UsageError, match="on_error='skip'"):
        checked_share(0.1, "raise")
