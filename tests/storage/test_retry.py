"""Retries: with growing pauses, for a bounded time, in one layer only."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import NoReturn

import pytest

from mdsx.base.process import Counter, Counters, work_for
from mdsx.errors import TransportError
from mdsx.storage import retry


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock that moves only by recorded pauses and by hand."""
    clock = SimpleNamespace(now=0.0, pauses=[])

    def sleep(seconds: float) -> None:
        clock.now += seconds
        clock.pauses.append(seconds)

    monkeypatch.setattr(retry, "time", SimpleNamespace(monotonic=lambda: clock.now, sleep=sleep))
    return clock


def failure() -> NoReturn:
    raise retry.TransientError(TransportError, "S3 answered 503 SlowDown", file="s3://bucket/key", hint="wait")


def test_pauses_grow_and_the_error_counts_tries(clock: SimpleNamespace) -> None:
    with pytest.raises(TransportError, match=r"SlowDown; given up after 8 tries in \d+ s; wait") as caught:
        retry.tried(failure)
    assert caught.value.file == "s3://bucket/key"
    assert len(clock.pauses) == 7
    assert all(0.05 * 2**n <= pause <= 0.1 * 2**n for n, pause in enumerate(clock.pauses, 1))
    assert 10 < clock.now < 30


@pytest.mark.parametrize(("seconds", "tries"), [(25, 5), (1000, 4)])
def test_retries_end_after_two_minutes_without_progress(clock: SimpleNamespace, seconds: int, tries: int) -> None:
    """A shard takes minutes over a slow link; its first failure does not end the writer."""

    def transfer() -> NoReturn:
        clock.now += seconds
        failure()

    with pytest.raises(TransportError, match=rf"after {tries} tries in 12\d s"):
        retry.tried(transfer)


def test_progress_resets_the_number_of_tries(clock: SimpleNamespace) -> None:
    tries, error = retry.Tries(), retry.TransientError(TransportError, "broken off")
    for _ in range(10):
        for _ in range(retry.TRIES - 1):
            tries.failed(error)
        clock.now += 100
        tries.progressed()


def test_a_successful_result_is_returned(clock: SimpleNamespace) -> None:
    def seven() -> int:
        return 7

    answers = iter([failure, failure, seven])
    assert retry.tried(lambda: next(answers)()) == 7


def test_each_retry_is_counted_and_logged_with_its_reason(
    clock: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    counters = Counters()
    work_for(counters)
    try:
        with caplog.at_level(logging.DEBUG, "mdsx"), pytest.raises(TransportError):
            retry.tried(failure)
    finally:
        work_for(None)
    assert counters.totals[Counter.RETRIES] == len(clock.pauses) == 7
    assert [record.levelname for record in caplog.records] == ["DEBUG"] * 7
    assert "retrying: s3://bucket/key: S3 answered 503 SlowDown" in caplog.text
