"""What a run foresees: exact by position, whatever the pace; in seconds by the pace of the last epoch."""

from __future__ import annotations

import numpy as np

from mdsx.order import DatasetCourse, Order
from mdsx.stream.foresight import DatasetForesight, Pace, pace_of

COUNTS = [10] * 20
HASHES = np.random.default_rng(1).integers(0, 256, (20, 16), np.uint8)


def name(shard: int) -> str:
    return bytes(HASHES[shard]).hex()


def foresight(*firsts: int) -> tuple[DatasetCourse, Pace, DatasetForesight]:
    course = DatasetCourse(Order(COUNTS * len(firsts), seed=1, lanes=2, shuffle_block=20))
    pace = Pace(course.samples)
    return course, pace, DatasetForesight(course, pace, HASHES, firsts)


def test_each_shard_is_known_by_its_name_and_strange_names_are_not() -> None:
    course, pace, known = foresight(0)
    pace.reached(37, 0.0)
    expected = course.next_needs(37).tolist()
    assert known.needs([name(shard) for shard in range(20)]) == expected
    assert known.needs(["x", name(3).upper(), name(3) + "00", "0" * 32, name(3)]) == [None] * 4 + [expected[3]]
    assert known.needs([]) == []


def test_a_dataset_that_is_shown_twice_needs_a_shard_where_the_first_does() -> None:
    course, _, known = foresight(0, 20)
    needs = course.next_needs(0)
    assert known.needs([name(5)]) == [min(needs[5], needs[25])]


def test_which_shard_is_needed_later_does_not_depend_on_the_pace() -> None:
    _, pace, known = foresight(0)
    names = [name(shard) for shard in range(20)]
    orders = []
    for position, now in ((0, 0.0), (1, 1e-9), (2, 10.0), (3, 10.0), (4, 9999.0)):  # bursts and pauses
        pace.reached(position, now)
        away = [known.seconds_to(need) for need in known.needs(names) if need is not None and need > 4]
        orders.append(np.argsort(away, kind="stable").tolist())
    assert orders == [orders[0]] * 5


def test_the_pace_is_that_of_the_last_epoch_not_of_a_burst() -> None:
    pace = Pace(1000)
    pace.reached(0, 0.0)
    assert 0 < pace.seconds_to(500) < 86400  # not known yet
    for position in range(10, 3001, 10):
        pace.reached(position, position / 100 - (0.09 if position % 100 else 0))
    assert 4.9 < pace.seconds_to(3500) < 5.05
    assert pace.seconds_to(3000) == pace.seconds_to(10) == 0
    for position in range(3010, 6001, 10):  # ten times slower
        pace.reached(position, 30 + (position - 3000) / 10)
    assert 49 < pace.seconds_to(6500) < 51
    pace.reached(100, 331.0)  # a state was loaded: the pace is kept until there is a new one
    assert 49 < pace.seconds_to(600) < 51
    pace.reached(200, 332.0)
    assert 4.9 < pace.seconds_to(700) < 5.1


def test_the_readers_of_a_course_have_one_pace() -> None:
    course, _, _ = foresight(0)
    assert pace_of(course) is pace_of(course)
    assert pace_of(course) is not pace_of(foresight(0)[0])
