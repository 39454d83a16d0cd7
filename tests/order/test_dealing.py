"""Dealing by cost: the rows of a node, dealt to its ranks so that they have equally much work."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mdsx.errors import UsageError
from mdsx.order import Groups, GroupSequence, Order
from mdsx.order.dealing import Balance, Dealing, deal
from tests.order import reference_groups
from tests.order.test_concat import VECTORS
from tests.order.test_groups import CONCAT, listed


def step_of(sizes: list[list[int]], lanes: list[int] | None = None) -> GroupSequence:
    """Return a step of rows whose items have these sizes."""
    flat = np.array([size for row in sizes for size in row], np.int64)
    edges = np.cumsum([0, *map(len, sizes)])
    of_lanes = np.array(lanes or [0] * len(sizes), np.int64)
    return GroupSequence(of_lanes, edges, np.arange(len(flat)), np.zeros_like(flat), flat)


def balanced(linear: int, quadratic: int, node: int | None, lanes: int = 1, **options: Any) -> Groups:
    order = Order([1], lanes=lanes)
    kind = options.pop("kind", "concat")
    return Groups(
        order, [1], capacity=2000, kind=kind, balance=(linear, quadratic), ranks_per_node=node, window=1, **options
    )


DEALS = [*VECTORS["deal"], *CONCAT["deal"]]


@pytest.mark.parametrize("number", range(len(DEALS)))
def test_shares_follow_the_vectors(number: int) -> None:
    vector = DEALS[number]
    step, world = step_of(vector["sizes"]), vector["world"]
    groups = balanced(vector["linear"], vector["quadratic"], vector["node"])
    rows = listed(step)
    expected = [[rows[place] for place in places] for places in vector["value"]]
    assert [listed(groups.share(step, rank, world)) for rank in range(world)] == expected


rows_of_a_step = st.lists(
    st.tuples(st.integers(0, 4), st.lists(st.sampled_from([0, 0, 1, 1, 2, 30, 31, 300]), min_size=1, max_size=4)),
    max_size=60,
)


@given(
    rows_of_a_step, st.integers(1, 5), st.integers(1, 8), st.integers(0, 3), st.integers(0, 3), st.sampled_from("nj")
)
def test_shares_follow_the_specification(
    rows: list[tuple[int, list[int]]], nodes: int, node: int, linear: int, quadratic: int, over: str
) -> None:
    linear = linear or int(not quadratic)
    world = nodes * node
    step = step_of([sizes for _, sizes in rows], [lane for lane, _ in rows])
    groups = balanced(linear, quadratic, node, lanes=5, balance_over="job" if over == "j" else "node")
    placed = reference_groups.places(listed(step), 5)
    expected = reference_groups.dealt(placed, (linear, quadratic), world, world if over == "j" else node)
    for rank in range(world):
        assert listed(groups.share(step, rank, world)) == [placed[place] for place in expected[rank]]


@given(st.lists(st.lists(st.integers(0, 2**20), min_size=1, max_size=4), max_size=6), st.integers(0, 9))
@example([[2**20]], 2**22)
@example([], 1)
def test_a_row_costs_the_sum_of_its_items(rows: list[list[int]], quadratic: int) -> None:
    given_rows = step_of(rows)
    for linear in (0, 5):
        found = Balance(linear, quadratic).costs(given_rows.sizes, given_rows.edges)
        assert found.tolist() == [sum(linear * size + quadratic * size**2 for size in row) for row in rows]
        assert found.dtype == np.int64


steps_of_rows = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=3), min_size=1, max_size=40)


@given(steps_of_rows, st.integers(1, 20), st.integers(1, 3), st.integers(1, 3), st.integers(0, 2**32))
@example([[9], [1], [4], [6], [5, 2], [7], [7], [8, 8]], 3, 1, 2, 0)
@example([[9], [1], [4], [6], [5, 2], [7], [7], [8, 8]], 3, 2, 1, 0)
def test_each_of_successive_steps_is_dealt_by_its_own_rows(
    rows: list[list[int]], n: int, nodes: int, node: int, seed: int
) -> None:
    """Also if further groups follow."""
    steps, world, given_rows = len(rows) // n, nodes * node, step_of(rows)
    order = np.random.default_rng(seed).permuted(np.tile(np.arange(n), (steps, 1)), axis=1)
    dealing = Dealing(Balance(3, 2), node)
    for first in range(0, world, node):
        expected = order.tolist()
        for number, placed in enumerate(order.tolist()):
            items: list[reference_groups.Group] = [(0, [(0, 0, size) for size in rows[number * n + g]]) for g in placed]
            shares = reference_groups.dealt(items, (3, 2), world, node)[first : first + node]
            low, high = first * n // world, (first + node) * n // world
            expected[number][low:high] = [placed[place] for share in shares for place in share]
        for rank in range(first, first + node):
            assert dealing.reorder(order, given_rows.sizes, given_rows.edges, rank, world).tolist() == expected


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=6),
    st.sampled_from([0, 2**60]),
    st.sampled_from([1, 3, 2**40, 2**62]),
    st.integers(0, 2**32),
)
@example([2, 3], 0, 2**40, 0)  # rounds go wrong, and the last one has only one rank
@example([2, 3, 1, 2], 0, 3, 0)  # some rows cost nothing
@example([4, 4], 2**60, 3, 0)  # floats cannot tell these costs apart
@example([4, 4], 2**62, 2**40, 0)  # sums overflow
@example([3] * 40, 2**60, 1, 0)  # many ranks have had equally much
def test_many_steps_are_dealt_as_one_by_one(rooms: list[int], least: int, more: int, seed: int) -> None:
    costs = least + np.random.default_rng(seed).integers(0, more, (150, sum(rooms)), endpoint=True)
    found = deal(costs, np.array(rooms))
    for step, each in enumerate(costs):
        assert deal(each[None], np.array(rooms)).tolist() == [found[step].tolist()]


@pytest.mark.parametrize("steps", [1, 200])
def test_rows_without_cost_go_to_the_lowest_rank_until_it_is_full(steps: int) -> None:
    assert (deal(np.zeros((steps, 6), np.int64), np.full(2, 3)) == np.arange(6)).all()
    assert (deal(np.tile([5, 0, 0, 0, 0, 0], (steps, 1)), np.full(3, 2)) == [0, 5, 1, 2, 3, 4]).all()


@pytest.mark.parametrize("steps", [1, 200])
def test_a_full_rank_gets_no_further_row_even_if_it_has_least_to_do(steps: int) -> None:
    assert (deal(np.tile([9, 1, 1], (steps, 1)), np.array([2, 1])) == [0, 2, 1]).all()


@pytest.mark.parametrize("steps", [1, 200])
@pytest.mark.parametrize(("ranks", "rows"), [(40, 4), (3, 100)])
def test_rows_of_equal_cost_are_dealt_in_turn(ranks: int, rows: int, steps: int) -> None:
    by_cost = deal(np.tile(np.arange(200) % 2, (steps, 1)), np.array([200]))
    assert (by_cost == [*range(1, 200, 2), *range(0, 200, 2)]).all()  # ties by place
    found = deal(np.full((steps, ranks * rows), 7), np.full(ranks, rows))
    assert (found == np.arange(ranks * rows).reshape(rows, ranks).T.reshape(-1)).all()


def test_only_the_ranks_of_a_node_exchange_rows() -> None:
    lengths = np.arange(4000) * 37 % 900 + 1
    options: dict[str, Any] = {"capacity": 1024, "kind": "concat", "window": 64}
    plain = Groups(Order([4000], seed=3, lanes=8), lengths, **options)
    balanced = Groups(Order([4000], seed=3, lanes=8), lengths, **options, balance=(48, 1), ranks_per_node=4)
    for before, after in zip(plain.steps(40), balanced.steps(40), strict=True):
        assert listed(before) == listed(after)
        for first in range(0, 16, 4):
            ours = [
                sorted(row for rank in range(first, first + 4) for row in listed(groups.share(before, rank, 16)))
                for groups in (plain, balanced)
            ]
            assert ours[0] == ours[1]
        for rank in range(16):
            assert len(plain.share(before, rank, 16)) == len(balanced.share(after, rank, 16))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"balance": (1,)}, r"balance must be two integers.*balance=\(12 \* d, 1\)"),
        ({"balance": 5}, "balance must be two integers"),
        ({"balance": (1.5, 1)}, r"balance\[0\] must be an integer"),
        ({"balance": (1, -1)}, r"balance\[1\] is out of range"),
        ({"balance": (0, 0)}, "all rows cost nothing"),
        ({"balance": (0, 2**23)}, r"a row of 1048576 values could cost 2\^63 or more.*divide both"),
        ({"balance": (1, 2**23 - 1)}, None),
        ({"balance": [(2**63 - 1) // 7, 0], "capacity": 7}, None),
        ({"balance": ((2**63 - 1) // 7, 1), "capacity": 7}, r"a row of 7 values could cost 2\^63 or more"),
        ({"balance": (2**63, 0)}, r"balance\[0\] is out of range"),
        ({"balance": (0, 2**63)}, r"balance\[1\] is out of range"),
        ({"balance": (2**43, 0)}, r"could cost 2\^63"),
        ({"balance_over": "rack"}, "balance_over must be 'node' or 'job'"),
        ({"ranks_per_node": None}, "their number is unknown.*ranks_per_node="),
        ({"kind": "max_tokens"}, "balance is only for kind"),
        ({"ranks_per_node": 3}, r"ranks_per_node must divide .*expected a divisor of 8, found 3"),
        ({"ranks_per_node": 0}, "ranks_per_node is out of range"),
        ({"ranks_per_node": 3, "balance_over": "job"}, None),
        ({"ranks_per_node": None, "balance_over": "job"}, None),
    ],
)
def test_wrong_arguments_are_refused(options: dict[str, Any], says: str | None) -> None:
    given: dict[str, Any] = {"kind": "concat", "capacity": 2**20, "balance": (12, 1), "ranks_per_node": 2, **options}

    def share() -> None:
        groups = Groups(Order([3]), [1, 2, 3], **given)
        groups.share(groups[0], 0, 8)

    if says is None:
        share()
        return
    with pytest.raises(UsageError, match=says):
        share()
