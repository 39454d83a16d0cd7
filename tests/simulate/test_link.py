"""The simulated link: its transfers share the rate, by weights of a half to one and a half."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdsx.simulate.clock import World
from mdsx.simulate.link import Connections, Link


def test_transfers_share_the_rate_by_their_weights() -> None:
    world, ended = World(), dict[str, float]()
    link = Link(world, 100.0, 0.0)

    def transfer(name: str, begin: float, size: int) -> None:
        world.sleep(begin)
        link.transfer(size)
        ended[name] = world.now

    def begin() -> None:
        world.start(lambda: transfer("first", 0.0, 100))
        world.start(lambda: transfer("second", 0.5, 25))

    world.run(begin)
    assert 0.5 + 0.25 / 0.75 <= ended["second"] <= 0.5 + 0.25 / 0.25  # between three fourths of the rate and one fourth
    assert ended["first"] == pytest.approx(1.25)  # all bytes are there
    assert link.bytes == 125


def test_a_request_waits_for_its_first_byte_and_once_for_its_connection() -> None:
    world, ended = World(), list[float]()
    link, connections = Link(world, None, 0.25), Connections()

    def two() -> None:
        for _ in range(2):
            link.request(1000, connections)
            ended.append(world.now)

    world.run(two)
    assert ended == [0.5, 0.75]
    assert link.requests == 2


def test_transfers_that_begin_together_do_not_end_together() -> None:
    world, ended = World(), list[float]()
    link = Link(world, 100.0, 0.0)

    def transfer() -> None:
        link.transfer(100)
        ended.append(world.now)

    def begin() -> None:
        for _ in range(8):
            world.start(transfer)

    world.run(begin)
    assert len({round(time, 3) for time in ended}) == 8
    assert max(ended) == pytest.approx(8)


def test_a_process_keeps_64_connections() -> None:
    connections = Connections()
    assert {connections.take(0.5) for _ in range(70)} == {0.5}
    for _ in range(70):
        connections.give()
    assert [connections.take(0.5) for _ in range(70)] == [0.0] * 64 + [0.5] * 6


@given(st.lists(st.tuples(st.floats(0, 10), st.integers(1, 10**6)), min_size=1, max_size=20), st.floats(1e3, 1e6))
def test_the_link_is_never_faster_than_its_rate_nor_idle_with_work(
    transfers: list[tuple[float, int]], rate: float
) -> None:
    world, ended = World(), list[float]()
    link = Link(world, rate, 0.0)

    def transfer(begin: float, size: int) -> None:
        world.sleep(begin)
        link.transfer(size)
        ended.append(world.now)

    def begin() -> None:
        for start, size in transfers:
            world.start(lambda start=start, size=size: transfer(start, size))  # type: ignore[misc]

    world.run(begin)
    free = 0.0  # when a link that serves one after the other has sent all: the same as for one that shares
    for start, size in sorted(transfers):
        free = max(free, start) + size / rate
    assert max(ended) == pytest.approx(free)
    assert len(ended) == len(transfers)
