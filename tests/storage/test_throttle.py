"""A limit of a bucket: this process finds its share of it, and no request fails as long as others are answered."""

from __future__ import annotations

import heapq
import random
from types import SimpleNamespace
from typing import NoReturn

import pytest

from mdsx.errors import TransportError
from mdsx.storage import retry, throttle
from mdsx.storage.throttle import Throttle

_START = 1000.0
_LATENCY = 0.005  # seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock that moves only by pauses and by hand."""
    clock = SimpleNamespace(now=_START)

    def sleep(seconds: float) -> None:
        clock.now += seconds

    for module in (throttle, retry):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now, sleep=sleep))
    monkeypatch.setattr(throttle, "random", random.Random(3))
    return clock


def test_there_is_no_limit_before_a_refusal(clock: SimpleNamespace) -> None:
    turns = Throttle("bucket")
    for _ in range(1000):
        turns.turn()
        turns.answered()
    assert clock.now == _START
    assert turns._rate is None


def test_a_process_alone_uses_nearly_all_of_a_limit(clock: SimpleNamespace) -> None:
    answered, refused, seconds = work(clock, [Throttle("bucket")], limit=50.0, requests=3000)
    assert answered / seconds > 0.8 * 50
    assert refused < 0.1 * answered


def test_many_processes_share_a_limit_without_a_storm(clock: SimpleNamespace) -> None:
    answered, refused, seconds = work(clock, [Throttle("bucket") for _ in range(40)], limit=100.0, requests=8000)
    assert answered / seconds > 0.8 * 100
    assert refused < 0.5 * answered


def test_a_minute_without_a_refusal_ends_the_limit(clock: SimpleNamespace) -> None:
    turns = Throttle("bucket")
    turns.refused(turns.turn())
    assert turns._rate is not None
    clock.now += 61
    turns.answered()
    assert turns._rate is None


def test_requests_refused_together_cut_the_rate_once(clock: SimpleNamespace) -> None:
    turns = Throttle("bucket")
    sent = [turns.turn() for _ in range(64)]
    clock.now += 0.1
    turns.refused(sent[0])
    first = turns._rate
    for at in sent[1:]:
        turns.refused(at)
    assert turns._rate == first


def test_a_refusal_does_not_count_while_others_are_answered(clock: SimpleNamespace) -> None:
    started = clock.now

    def refused() -> NoReturn:
        refusal = retry.TransientError(TransportError, "503 SlowDown", limited=True)
        refusal.answered_at = clock.now + 0.001
        clock.now += 1
        raise refusal

    with pytest.raises(TransportError, match="SlowDown"):
        retry.tried(refused)
    assert retry.OBEDIENCE < clock.now - started < retry.OBEDIENCE + 60


def test_a_server_that_only_refuses_raises_as_soon_as_ever(clock: SimpleNamespace) -> None:
    def refused() -> NoReturn:
        refusal = retry.TransientError(TransportError, "503 SlowDown", limited=True)
        refusal.answered_at = 0.0
        raise refusal

    with pytest.raises(TransportError, match="given up after 8 tries"):
        retry.tried(refused)
    assert clock.now < _START + 30


def work(clock: SimpleNamespace, processes: list[Throttle], *, limit: float, requests: int) -> tuple[int, int, float]:
    """Let each of `processes` send one request after the other to a server that answers `limit` a second.

    Return how many were answered and refused, and in how many seconds.
    """
    tokens, at, answered, refused = limit / 4, clock.now, 0, 0
    sending = [(turns.turn(), number) for number, turns in enumerate(processes)]  # a heap of the next requests
    while answered < requests:
        sent, number = heapq.heappop(sending)
        turns, clock.now = processes[number], sent
        tokens, at = min(tokens + (sent - at) * limit, limit / 4), sent
        if tokens >= 1:
            tokens, answered = tokens - 1, answered + 1
            turns.answered()
        else:
            refused += 1
            turns.refused(sent)
        clock.now += _LATENCY
        heapq.heappush(sending, (turns.turn(), number))
    return answered, refused, at - _START
