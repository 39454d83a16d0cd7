"""Another try: after pauses that grow, for a bounded time, by one layer only."""

from __future__ import annotations

from types import SimpleNamespace
from typing import NoReturn

import pytest

from mdsx.errors import TransportError
from mdsx.storage import retry


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Time passes only by pauses, which are noted, and by hand."""
    clock = SimpleNamespace(now=0.0, pauses=[])

    def sleep(seconds: float) -> None:
        clock.now += seconds
        clock.pauses.append(seconds)

    monkeypatch.setattr(retry, "time", SimpleNamespace(monotonic=lambda: clock.now, sleep=sleep))
    return clock


def failure() -> NoReturn:
    raise retry.TransientError(TransportError, "S3 answered 503 SlowDown", file="s3://bucket/key", hint="wait")


def test_pauses_grow_and_the_error_tells_how_often_and_how_long_it_was_tried(clock: SimpleNamespace) -> None:
    with pytest.raises(TransportError, match=r"SlowDown; given up after 8 tries in \d+ s; wait") as caught:
        retry.tried(failure)
    assert caught.value.file == "s3://bucket/key"
    assert len(clock.pauses) == 7
    assert all(0.05 * 2**n <= pause <= 0.1 * 2**n for n, pause in enumerate(clock.pauses, 1))
    assert 10 < clock.now < 30


def test_two_minutes_without_progress_are_enough_however_few_tries_they_were(clock: SimpleNamespace) -> None:
    def silence() -> NoReturn:
        clock.now += 50
        failure()

    with pytest.raises(TransportError, match=r"after 3 tries in 15\d s"):
        retry.tried(silence)


def test_progress_gives_all_tries_anew(clock: SimpleNamespace) -> None:
    tries, error = retry.Tries(), retry.TransientError(TransportError, "broken off")
    for _ in range(10):
        for _ in range(retry.TRIES - 1):
            tries.failed(error)
        clock.now += 100
        tries.progressed()


def test_what_comes_to_an_end_is_returned(clock: SimpleNamespace) -> None:
    def seven() -> int:
        return 7

    answers = iter([failure, failure, seven])
    assert retry.tried(lambda: next(answers)()) == 7
