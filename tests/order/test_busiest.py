"""The busiest rank's cost over the mean, of steps and of micro-batches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mdsx.order import Balance, Busiest, BusiestRank, Dealing, Grouping, Groups, Order, busiest, default_window
from mdsx.order.busiest import dealt_costs
from tests.order import reference_groups
from tests.order.test_groups import listed


def test_it_is_the_largest_sum_over_the_mean() -> None:
    costs = np.array([[4, 0, 1, 1, 2, 4], [1, 1, 1, 1, 1, 1]])
    assert busiest(costs, 3).tolist() == [6 / 4, 1]
    assert busiest(costs, 3, 1).tolist() == [4 / (7 / 3), 4 / (5 / 3), 1, 1]
    assert busiest(costs, 2, 2).tolist() == [4 / 3.5, 4 / 2.5, 1, 1]  # of 3 rows, 2 and then 1
    assert busiest(costs, 4).tolist() == [2, 2 / 1.5]  # ranks have 1, 2, 1, 2 rows
    assert busiest(np.array([[1, 0, 0]]), 3).tolist() == [3], "the mean may be below 1"
    with np.errstate(all="raise"):  # no division by 0
        assert busiest(np.zeros((2, 4), np.int64), 2).tolist() == []


def test_without_micro_batches_only_steps_count() -> None:
    found = BusiestRank(Dealing(Balance(1, 0), 2), lanes=1, size=4, world_size=2)
    assert found.found() is None
    found.add(np.zeros(5, np.int64), np.array([4, 3, 2, 1, 9]), np.arange(6))  # 9 is of the next step
    assert found.steps == 1
    assert found.found() == (Busiest(1, None), Busiest(7 / 5, None))
    found.add(np.zeros(3, np.int64), np.array([3, 3, 1]), np.arange(4))
    assert found.steps == 2
    assert found.found() == (Busiest((1 + 10 / 8) / 2, None), Busiest((7 / 5 + 12 / 8) / 2, None))


def test_each_node_deals_its_rows_among_its_own_ranks() -> None:
    costs = np.array([[4, 4, 3, 3, 1, 1, 2, 2]])
    assert dealt_costs(costs, 4, 2).tolist() == [[4, 3, 4, 3, 2, 1, 2, 1]]
    assert dealt_costs(costs, 4, 4).tolist() == [[4, 1, 4, 1, 3, 2, 3, 2]]
    assert dealt_costs(np.array([[1, 4, 2, 3]]), 2, 1).tolist() == [[4, 1, 3, 2]], "by cost, on one rank too"
    assert costs.tolist() == [[4, 4, 3, 3, 1, 1, 2, 2]], "the caller's array is left alone"


@given(st.lists(st.integers(0, 60), min_size=1, max_size=90), st.integers(1, 3), st.integers(1, 3), st.integers(1, 4))
@example([0, 0, 0, 0, 40, 60], 1, 1, 3)  # only without dealing, a micro-batch has no cost
def test_it_follows_the_shares_of_all_ranks(lengths: list[int], nodes: int, node: int, rows: int) -> None:
    world = nodes * node
    size, balance = rows * world, (3, 1)
    groups = Groups(
        Order([len(lengths)], lanes=3),
        lengths,
        capacity=50,
        kind="concat",
        window=4,
        balance=balance,
        ranks_per_node=node,
    )
    found = BusiestRank(Dealing(Balance(*balance), node), lanes=3, size=size, world_size=world, micro_batch=2)
    for window in groups:
        found.add(window.lanes, window.sizes, window.edges)
    ratios: dict[tuple[bool, bool], list[float]] = {
        (dealt, part): [] for dealt in (True, False) for part in (True, False)
    }
    for step in groups.steps(size):
        if len(step) < size:
            break
        placed = reference_groups.places(listed(step), 3)
        of_ranks = {
            True: [listed(groups.share(step, rank, world)) for rank in range(world)],
            False: [placed[rank * rows : (rank + 1) * rows] for rank in range(world)],
        }
        for dealt, shares in of_ranks.items():
            costs = [[sum(3 * n + n * n for _, _, n in items) for _, items in share] for share in shares]
            for part, width in ((False, rows), (True, 2)):
                for first in range(0, rows, width):
                    sums = [sum(each[first : first + width]) for each in costs]
                    if sum(sums):
                        ratios[dealt, part].append(max(sums) * world / sum(sums))
    if not any(ratios.values()):
        assert found.found() is None
        return
    expected = [Busiest(*(float(np.mean(ratios[dealt, part])) for part in (False, True))) for dealt in (True, False)]
    for one, other in zip(found.found() or (), expected, strict=True):
        assert one == pytest.approx(other)


@pytest.mark.parametrize(("rows", "most"), [(4, 1.10), (8, 1.05)])
def test_the_busiest_rank_is_near_the_mean(rows: int, most: float) -> None:
    capacity, lanes, ranks, node, width = 32768, 64, 64, 8, 4096
    lengths = np.rint(np.random.default_rng(7).lognormal(np.log(1000), 1, 1_200_000)).astype(np.int64)
    window = default_window(capacity, float(lengths.mean()), kind="concat", lanes=lanes)
    dealing = Dealing(Balance(12 * width, 1), node)
    found = BusiestRank(dealing, lanes=lanes, size=rows * ranks, world_size=ranks, micro_batch=1)
    groups = Groups(Order([len(lengths)], lanes=lanes), lengths, capacity=capacity, kind="concat", window=window)
    for number in range(100 * rows * ranks // (window * lanes * 1600 // capacity) + 1):
        part = groups[number]
        found.add(part.lanes, part.sizes, part.edges)
    dealt, plain = found.found() or (Busiest(9, 9), Busiest(9, 9))
    assert dealt.step <= most < plain.step
    assert dealt.micro_batch is not None
    assert plain.micro_batch is not None
    assert dealt.micro_batch < plain.micro_batch - 0.1
    assert groups.grouping == Grouping("concat", capacity, window)
