"""Clients above a bucket's request limit finish their work, without errors and without a storm of retries."""

from __future__ import annotations

import pytest

from tools.scale.limits import Case, measure

pytestmark = pytest.mark.slow


def test_clients_above_the_limit_finish_without_a_storm() -> None:
    found = measure(Case("write", clients=4, rate=40.0, seconds=2.0))
    assert not found.errors
    assert found.refused > 0
    assert found.least > 0
    assert found.per_answer < 2
