"""Groups, version 1: which samples are handed out together, whatever the ranks, workers and batch sizes."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mdsx.errors import UsageError
from mdsx.order import (
    GROUPS_VERSION,
    Grouping,
    Groups,
    GroupSequence,
    MixtureOrder,
    Order,
    WindowGroups,
    Windows,
    default_window,
    group_window,
    step_order,
)
from mdsx.order.course import MAX_WORLD_SIZE
from tests.order import reference, reference_groups
from tests.order.reference_groups import Rule
from tests.order.strategies import uint64
from tests.vectors import concat, group_epochs

FILES = Path(__file__).parents[1] / "vectors"
VECTORS: dict[str, Any] = json.loads((FILES / "groups-v1.json").read_text())
EPOCHS: dict[str, Any] = json.loads((FILES / "group-epochs-v1.json").read_text())

CONCAT: dict[str, Any] = json.loads((FILES / "concat-v1.json").read_text())
ALL_EPOCHS = [*EPOCHS["epochs"], *CONCAT["epochs"]]


def listed(groups: GroupSequence) -> list[reference_groups.Group]:
    """Return the groups as the reference has them."""
    items = list(zip(groups.positions.tolist(), groups.firsts.tolist(), groups.sizes.tolist(), strict=True))
    edges = pairwise(groups.edges.tolist())
    return [(lane, items[first:last]) for lane, (first, last) in zip(groups.lanes.tolist(), edges, strict=True)]


# --- the vectors


def test_the_version_is_that_of_the_vectors() -> None:
    assert VECTORS["groups_version"] == GROUPS_VERSION


@pytest.mark.parametrize("vector", VECTORS["groups"], ids=lambda vector: f"{vector['kind']}-{vector['capacity']}")
def test_groups_follow_the_vectors(vector: dict[str, Any]) -> None:
    rule = Grouping(vector["kind"], vector["capacity"], vector["window"], "error", vector["max_samples"])
    lengths, lanes, found = np.array(vector["lengths"]), vector["lanes"], []
    for number, (start, stop) in enumerate(Windows(0, len(lengths), len(lengths), rule.window * lanes)):
        groups = group_window(
            rule,
            lengths[start:stop],
            np.arange(start, stop) % lanes,
            seed=int(vector["seed"]),
            epoch=vector["epoch"],
            window=number,
            shuffle=vector["shuffle"],
            lane_count=lanes,
        )
        positions = np.split(groups.items + start, groups.edges[1:-1])
        found += [[lane, group.tolist()] for lane, group in zip(groups.lanes.tolist(), positions, strict=True)]
    assert found == vector["value"]


@pytest.mark.parametrize("number", range(len(VECTORS["rank_groups"])))
def test_rank_shares_follow_the_vectors(number: int) -> None:
    vector = VECTORS["rank_groups"][number]
    step, world = vector["step"], vector["world"]
    order = step_order(np.array([[lane for lane, _ in step]]), vector["lanes"])[0].tolist()
    places = [rank * len(step) // world for rank in range(world + 1)]
    shares = [[step[i] for i in order[first:last]] for first, last in pairwise(places)]
    assert shares == vector["value"]


@pytest.mark.parametrize("number", range(len(ALL_EPOCHS)))
def test_groups_of_epochs_follow_the_vectors(number: int) -> None:
    vector = dict(ALL_EPOCHS[number])
    counts, seed, expected = vector.pop("counts"), int(vector.pop("seed")), vector.pop("value")
    options = {name: vector.pop(name) for name in ("lanes", "shuffle_block")}
    order: Order | MixtureOrder
    if "weights" in vector:
        order = MixtureOrder(counts, vector.pop("weights"), seed, **options)
    else:
        order = Order(counts, seed=seed, shuffle=vector.pop("shuffle"), **options)
    found = [listed(window) for window in Groups(order, vector.pop("lengths"), **vector)]
    assert json.loads(json.dumps(found)) == expected


@pytest.mark.parametrize(
    "vector", EPOCHS["default_window"], ids=lambda vector: f"{vector['capacity']}-{vector['mean']}"
)
def test_default_windows_follow_the_vectors(vector: dict[str, Any]) -> None:
    assert default_window(vector["capacity"], vector["mean"]) == vector["value"]


def test_default_windows_are_exact() -> None:
    assert default_window(48, Fraction(9, 3)) == 2048
    assert default_window(49, Fraction(9, 3)) == 4096
    assert default_window(16, Fraction(2**60 - 1, 2**60)) == 4096  # as a binary64 number, the mean would be 1
    assert default_window(16, Fraction(2**60, 2**60 - 1)) == 2048
    assert default_window(2**32 - 1, Fraction(1, 2**40)) == 2**31
    thirds = Groups(Order([3], seed=7), [3, 3, 4], capacity=160, kind="max_tokens")  # 160 * 3 / 10 is 48
    assert thirds.grouping.window == 8192


def test_vectors_of_epochs_follow_the_specification() -> None:
    assert group_epochs.text() == (FILES / "group-epochs-v1.json").read_text()
    assert concat.text() == (FILES / "concat-v1.json").read_text()


# --- the specification

rules = st.one_of(
    st.builds(
        Rule,
        st.just("pack"),
        st.integers(1, 40),
        st.integers(1, 12),
        st.sampled_from(["error", "truncate", "split"]),
        st.none(),
    ),
    st.builds(
        Rule,
        st.just("max_tokens"),
        st.integers(1, 90),
        st.integers(1, 12),
        st.sampled_from(["error", "truncate"]),
        st.one_of(st.none(), st.integers(1, 5)),
    ),
    st.builds(Rule, st.just("concat"), st.integers(1, 60), st.integers(1, 12), st.none(), st.none()),
)


@given(rules, st.lists(st.integers(0, 50), min_size=1, max_size=80), st.data())
def test_groups_follow_the_specification(rule: Rule, lengths: list[int], data: st.DataObject) -> None:
    if rule.oversize == "error":
        lengths = [min(length, rule.capacity) for length in lengths]
    shards = data.draw(st.integers(1, min(5, len(lengths))))
    counts = [len(lengths) // shards] * (shards - 1)
    counts.append(len(lengths) - sum(counts))
    shuffle, seed, block = data.draw(st.booleans()), data.draw(uint64), data.draw(st.integers(1, 60))
    lanes = data.draw(st.integers(1, 6)) if shuffle else 1
    samples = data.draw(st.one_of(st.none(), st.integers(1, 3 * len(lengths))))
    epoch = data.draw(st.integers(0, 3))
    order = Order(counts, seed=seed, epoch=epoch, shuffle=shuffle, lanes=lanes, shuffle_block=block)
    groups = Groups(order, lengths, epoch_samples=samples, **rule._asdict())

    n, size = len(lengths), samples or len(lengths)
    firsts = np.cumsum([0, *counts])

    known = {}
    for of_order in range(epoch * size // n, (epoch + 1) * size // n + 1):
        for p, (shard, sample) in enumerate(reference.whole_order(counts, seed, of_order, lanes, block, shuffle)):
            known[of_order * n + p] = lengths[int(firsts[shard]) + sample]
    expected = reference_groups.epoch_windows(epoch * size, (epoch + 1) * size, n, rule.window * lanes)
    assert list(groups.windows) == [(window[0], window[-1] + 1) for window in expected]
    sequence = []
    for number, positions in enumerate(expected):
        found = reference_groups.window_groups(
            rule,
            positions,
            known.__getitem__,
            lambda p: p % n % lanes,
            seed=seed,
            epoch=epoch,
            window=number,
            lanes=lanes,
            shuffle=shuffle,
        )
        assert listed(groups[number]) == found
        sequence += found

    step_size, world = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 5))
    for number, step in enumerate(groups.steps(step_size)):
        placed = reference_groups.places(sequence[number * step_size :][:step_size], lanes)
        for rank in range(world):
            share = placed[rank * len(placed) // world : (rank + 1) * len(placed) // world]
            assert listed(groups.share(step, rank, world)) == share


@given(st.integers(2, 60), st.integers(1, 5), st.integers(1, 9), st.integers(1, 50), st.integers(0, 3))
def test_groups_of_a_mixture_follow_the_specification(
    samples: int, lanes: int, window: int, epoch_samples: int, epoch: int
) -> None:
    components = [[samples - samples // 2], [samples // 2]]
    lengths = [1 + 7 * number % 13 for number in range(samples)]
    rule = Rule("pack", 16, window)
    order = MixtureOrder(components, [2, 1], seed=5, lanes=lanes, shuffle_block=20)
    groups = Groups(order, lengths, epoch=epoch, epoch_samples=epoch_samples, **rule._asdict())
    start, stop = epoch * epoch_samples, (epoch + 1) * epoch_samples
    read = reference.Mixture(components, [2, 1], 5, lanes, 20).positions(stop)
    known = [lengths[component * components[0][0] + sample] for component, _, sample in read]
    for number, positions in enumerate(reference_groups.epoch_windows(start, stop, None, window * lanes)):
        assert listed(groups[number]) == reference_groups.window_groups(
            rule,
            positions,
            known.__getitem__,
            lambda p: p % lanes,
            seed=5,
            epoch=epoch,
            window=number,
            lanes=lanes,
            shuffle=True,
        )


def test_groups_follow_the_worked_example() -> None:
    lengths = np.array([7, 2, 12, 5, 3, 4, 0, 6, 9, 1, 10, 3, 8, 2])
    sequence: list[tuple[int, list[tuple[int, int]]]] = []
    for number, (start, stop) in enumerate(Windows(0, 14, 14, 8)):
        found = group_window(
            Grouping("pack", 10, 4, "split"),
            lengths[start:stop],
            np.arange(start, stop) % 2,
            seed=7,
            epoch=0,
            window=number,
            shuffle=True,
            lane_count=2,
        )
        items = list(zip((found.items + start).tolist(), found.firsts.tolist(), strict=True))
        edges = pairwise(found.edges.tolist())
        sequence += [(lane, items[a:b]) for lane, (a, b) in zip(found.lanes.tolist(), edges, strict=True)]
    rows = [[(2, 10), (6, 0)], [(1, 0), (3, 0)], [(2, 0)], [(5, 0), (7, 0)], [(0, 0), (4, 0)]]
    rows += [[(12, 0)], [(10, 0)], [(9, 0), (11, 0), (13, 0)], [(8, 0)]]
    assert [row for _, row in sequence] == rows
    order = step_order(np.array([[lane for lane, _ in sequence[4:8]]]), 2)[0].tolist()
    assert [sequence[4 + place][1] for place in order] == [rows[4], rows[5], rows[7], rows[6]]


# --- promises


def lognormal(samples: int, capacity: int) -> NDArray[np.int64]:
    """Return lengths of a fixed log-normal mix: median 600, sigma 1, at most `capacity`."""
    u = (np.arange(samples) * 0.6180339887498949 + 0.3) % 1, (np.arange(samples) * 0.7548776662466927 + 0.7) % 1
    normal = np.sqrt(-2 * np.log(1 - u[0])) * np.cos(2 * np.pi * u[1])  # Box and Muller's method
    lengths: NDArray[np.int64] = np.clip(np.rint(600 * np.exp(normal)), 1, capacity).astype(np.int64)
    return lengths


@pytest.mark.parametrize("oversize", ["truncate", "split"])
def test_every_sample_is_in_one_group(oversize: Any) -> None:
    order = Order([700, 300, 505], seed=3, lanes=4)
    lengths = lognormal(1505, 4096)
    groups = Groups(order, lengths, capacity=900, window=64, oversize=oversize)
    whole = list(groups)
    numbers = np.concatenate([window.positions[window.firsts == 0] for window in whole])
    assert sorted(numbers.tolist()) == list(range(1505))
    if oversize == "split":
        pieces: dict[int, set[tuple[int, int]]] = {}
        for window in whole:
            for position, first, size in zip(window.positions, window.firsts, window.sizes, strict=True):
                pieces.setdefault(int(position), set()).add((int(first), int(size)))
        shards, samples = order.locate(np.arange(1505))
        stored = lengths[np.array([0, 700, 1000])[shards] + samples].tolist()
        for position, length in enumerate(stored):
            assert pieces[position] == {(first, min(900, length - first)) for first in range(0, length, 900)}


@pytest.mark.parametrize("size", [1, 8, 24, 1000])
def test_the_groups_are_the_same_for_every_step_size(size: int) -> None:
    groups = Groups(Order([2000], seed=9, lanes=4), lognormal(2000, 900), capacity=900, window=128)
    sequence = [group for window in groups for group in listed(window)]
    steps = list(groups.steps(size))
    assert [group for step in steps for group in listed(step)] == sequence
    assert {len(step) for step in steps[:-1]} <= {size}
    assert sorted(
        listed(groups.share(steps[0], 1, 3))
        + listed(groups.share(steps[0], 0, 3))
        + listed(groups.share(steps[0], 2, 3))
    ) == sorted(listed(steps[0]))


def test_steps_continue_from_any_place() -> None:
    groups = Groups(Order([2000], seed=9, lanes=4), lognormal(2000, 900), capacity=900, window=128)
    sequence = [group for window in groups for group in listed(window)]
    before = len(groups[0]) + len(groups[1])
    rest = [group for step in groups.steps(8, window=2, taken=5) for group in listed(step)]
    assert rest == sequence[before + 5 :]


def test_windows_can_be_sliced() -> None:
    windows = Windows(3, 50, 20, 6)
    whole = list(windows)
    assert whole == [(3, 9), (9, 15), (15, 20), (20, 26), (26, 32), (32, 38), (38, 40), (40, 46), (46, 50)]
    assert windows[1:6:2] == whole[1:6:2]
    assert windows[-2:] == whole[-2:]
    groups = Groups(Order([20], lanes=2), [1] * 20, capacity=2, window=3)
    assert [listed(window) for window in groups[1:3]] == [listed(groups[1]), listed(groups[2])]
    assert listed(groups[-1]) == listed(groups[3])


def test_an_epoch_of_one_window_has_it_at_both_ends() -> None:
    groups = Groups(Order([5], lanes=1), [1] * 5, capacity=2, window=5)
    assert listed(groups[-1]) == listed(groups[0])
    with pytest.raises(IndexError, match="window 1 of 1"):
        groups[1]
    with pytest.raises(IndexError, match="window -1 of 1"):
        groups[-2]


def test_groups_at_the_same_place_are_in_the_order_of_their_lanes() -> None:
    counts = np.array([50002, 50003])  # 2^31 // 50002 is 2^31 // 50003, though lane 1 would be first on a finer line
    ones = np.ones(counts.sum(), np.int64)
    lanes = np.repeat([0, 1], counts)
    found = group_window(
        Grouping("pack", 1, 2**17), ones, lanes, seed=1, epoch=0, window=0, shuffle=False, lane_count=2
    )
    assert found.lanes[:2].tolist() == [0, 1]


@given(st.integers(1, 5), st.integers(1, 6), st.integers(1, 9), st.data())
def test_many_steps_are_ordered_like_each_alone(lanes: int, steps: int, size: int, data: st.DataObject) -> None:
    row = st.lists(st.integers(0, lanes - 1), min_size=size, max_size=size)
    of_steps = data.draw(st.lists(row, min_size=steps, max_size=steps))
    expected = [
        [items[0][0] for _, items in reference_groups.places([(c, [(i, 0, 1)]) for i, c in enumerate(step)], lanes)]
        for step in of_steps
    ]
    assert step_order(np.array(of_steps), lanes).tolist() == expected


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "pack", "oversize": "split"},
        {"kind": "pack", "oversize": "truncate"},
        {"kind": "max_tokens", "oversize": "truncate"},
        {"kind": "concat"},
    ],
)
def test_all_numbers_of_groups_are_int64(options: dict[str, Any]) -> None:
    groups = Groups(Order([9], lanes=2), np.arange(9, dtype=np.uint8), capacity=4, window=3, **options)
    for found in [*groups, *groups.steps(2), groups.share(groups[0], 0, 2)]:
        fields = (found.lanes, found.edges, found.positions, found.firsts, found.sizes)
        assert [field.dtype for field in fields] == [np.int64] * 5


def test_a_batch_has_at_most_max_samples() -> None:
    groups = Groups(Order([9], lanes=1), [1] * 9, capacity=100, kind="max_tokens", max_samples=4)
    assert np.diff(groups[0].edges).tolist().count(4) == 2
    assert sorted(np.diff(groups[0].edges).tolist()) == [1, 4, 4]


def test_rows_are_dealt_to_the_ranks_of_a_node_by_default() -> None:
    arguments: dict[str, Any] = {"capacity": 20, "balance": (1, 0)}
    with pytest.raises(UsageError, match=r"the ranks of a node.*give ranks_per_node=, or balance_over='job'"):
        Groups(Order([3], lanes=1), [1, 10, 2], **arguments)
    Groups(Order([3], lanes=1), [1, 10, 2], balance_over="job", **arguments)
    with pytest.raises(UsageError, match="only for kind 'pack' or 'concat'"):
        Groups(Order([3], lanes=1), [1, 10, 2], kind="max_tokens", balance_over="job", **arguments)


def first_window(rule: Grouping, lengths: NDArray[np.int64], lanes: int) -> WindowGroups:
    """Return the shuffled groups of samples that are one window."""
    of_lanes = np.arange(len(lengths)) % lanes
    return group_window(rule, lengths, of_lanes, seed=1, epoch=0, window=0, shuffle=True, lane_count=lanes)


@pytest.mark.parametrize("lanes", [8, 512])
def test_packed_rows_are_full(lanes: int) -> None:
    lengths = lognormal(2048 * lanes, 4096)
    rows = first_window(Grouping("pack", 4096, 2048), lengths, lanes)
    assert lengths.sum() / (4096 * len(rows.lanes)) >= 0.995


@pytest.mark.parametrize("lanes", [8, 512])
def test_length_bounded_batches_have_little_padding(lanes: int) -> None:
    window = 16384 if lanes == 8 else 2048  # what the default window is, and an eighth of it
    lengths = lognormal(window * lanes, 4096)
    batches = first_window(Grouping("max_tokens", 65536, window), lengths, lanes)
    longest = np.maximum.reduceat(batches.sizes, batches.edges[:-1])
    places = (longest * np.diff(batches.edges)).sum()
    assert 1 - lengths.sum() / places <= 0.06


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ({"kind": "rows"}, "unknown kind"),
        ({"kind": "max_tokens", "oversize": "split"}, "invalid oversize"),
        ({"capacity": 0}, "capacity is out of range"),
        ({"window": 0}, "window is out of range"),
        ({"max_samples": 3}, "max_samples"),
        ({"capacity": 9}, r"lengths\[1\]: a sample is longer .*expected at most 9, found 10"),
        ({"lengths": [1, 2]}, "expected one length per sample"),
        ({"lengths": [1, -2, 3]}, "out of range"),
        ({"lengths": [1.5, 2, 3]}, "lengths must be a 1-D array"),
    ],
)
def test_wrong_arguments_are_refused(rule: dict[str, Any], says: str) -> None:
    lengths = rule.pop("lengths", [1, 10, 2])
    with pytest.raises(UsageError, match=says):
        list(Groups(Order([3], shuffle=False), lengths, **{"capacity": 20, **rule}))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"kind": "rows"}, "unknown kind of groups (expected 'pack', 'concat' or 'max_tokens', found 'rows'"),
        ({"capacity": 0}, "capacity is out of range (expected 1 to 4294967295, found 0"),
        ({"capacity": 2**32}, "capacity is out of range (expected 1 to 4294967295, found 4294967296"),
        ({"window": 0}, "window is out of range (expected 1 to 2147483648, found 0"),
        ({"window": 2**31 + 1}, "window is out of range (expected 1 to 2147483648, found 2147483649"),
        ({"kind": "max_tokens", "max_samples": 0}, "max_samples is out of range (expected 1 to 2147483648, found 0"),
        ({"kind": "max_tokens", "max_samples": 2**31 + 1}, "max_samples is out of range (expected 1 to 2147483648"),
        ({"oversize": "cut"}, "invalid oversize for kind pack (expected 'error' or 'truncate' or 'split', found 'cut'"),
    ],
)
def test_a_field_of_a_grouping_out_of_its_range_is_named(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        Grouping(**{"kind": "pack", "capacity": 20, "window": 4, **fields})
    assert str(caught.value).startswith(says)


def test_the_least_and_the_largest_fields_of_a_grouping_are_taken() -> None:
    assert Grouping("max_tokens", 1, 1, max_samples=1).fields == {
        "kind": "max_tokens",
        "capacity": 1,
        "positions": 1,
        "oversize": "error",
        "max_samples": 1,
    }
    largest = Grouping("max_tokens", 2**32 - 1, 2**31, max_samples=2**31)
    assert (largest.capacity, largest.window, largest.max_samples) == (2**32 - 1, 2**31, 2**31)
    fields = Grouping("max_tokens", np.uint8(7), np.uint8(5), max_samples=np.uint8(3)).fields  # type: ignore[arg-type]
    assert json.loads(json.dumps(fields))["max_samples"] == 3  # a state has plain integers


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda groups: next(groups.steps(0)), r"^size is out of range \(expected 1 to 4611686018427387904"),
        (lambda groups: next(groups.steps(2**62 + 1)), r"^size is out of range"),
        (lambda groups: next(groups.steps(window=-1)), r"^window is out of range \(expected 0 to 3, found -1"),
        (lambda groups: next(groups.steps(window=4)), r"^window is out of range"),
        (lambda groups: next(groups.steps(window=2, taken=-1)), r"^taken is out of range \(expected 0 to 1, found -1"),
        (lambda groups: next(groups.steps(window=2, taken=2)), r"^taken is out of range"),
        (lambda groups: groups.share(groups[0], 0, 0), r"^world_size is out of range \(expected 1 to "),
        (lambda groups: groups.share(groups[0], 0, MAX_WORLD_SIZE + 1), r"^world_size is out of range"),
        (lambda groups: groups.share(groups[0], -1, 3), r"^rank is out of range \(expected 0 to 2, found -1"),
        (lambda groups: groups.share(groups[0], 3, 3), r"^rank is out of range"),
    ],
)
def test_a_number_out_of_its_range_is_named(call: Callable[[Groups], object], says: str) -> None:
    groups = Groups(Order([5], shuffle=False), [1] * 5, capacity=2, window=2)
    with pytest.raises(UsageError, match=says):
        call(groups)


def test_the_ends_of_each_range_are_taken() -> None:
    groups = Groups(Order([5], shuffle=False), [1] * 5, capacity=2, window=2)
    assert list(groups.steps(window=3)) == list(groups.steps(window=2, taken=1)) == []
    assert [len(step) for step in groups.steps()] == [1, 1, 1]
    assert [len(step) for step in groups.steps(2**62)] == [3]
    assert len(groups.share(groups[0], MAX_WORLD_SIZE - 1, MAX_WORLD_SIZE)) == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"capacity": None}, "^capacity is missing"),
        ({"capacity": 0}, r"^capacity is out of range \(expected 1 to 4294967295, found 0"),
        ({"capacity": 2**32}, "^capacity is out of range"),
        ({"kind": "buckets", "capacity": None, "max_samples": 3}, "^max_samples is not for kind 'buckets'"),
        ({"global_batch_size": 4}, "^global_batch_size is not for kind 'pack'"),
        ({"epoch": -1}, r"^epoch is out of range \(expected 0 to 1537228672809129300, found -1"),
        ({"epoch": 1537228672809129301}, "^epoch is out of range"),
        ({"lengths": [[1, 2, 3]]}, r"^lengths must be a 1-D array of integers \(found 2-D int64"),
        ({"lengths": [1, 2]}, r"^expected one length per sample \(expected 3, found 2"),
        ({"lengths": [0, 2**32, 1]}, r"^lengths are out of range \(expected 0 to 4294967295, found 0 to 4294967296"),
    ],
)
def test_a_wrong_argument_is_named(options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        Groups(Order([3], lanes=1), options.pop("lengths", [1, 2, 3]), **{"capacity": 9, **options})


def test_the_last_epoch_and_the_longest_lengths_are_taken() -> None:
    groups = Groups(Order([3], lanes=1), [2**32 - 1, 0, 1], capacity=2**32 - 1, epoch=2**62 // 3 - 1)
    assert groups.epoch == 2**62 // 3 - 1
    assert [len(window) for window in groups] == [2]


def test_a_dataset_of_one_sample_has_its_mean_and_all_epochs() -> None:
    groups = Groups(Order([1], lanes=1), [3], capacity=48, epoch=2**62 - 1)
    assert (groups.epoch, groups.grouping.window) == (2**62 - 1, 2048)


def test_the_first_sample_longer_than_a_group_is_named() -> None:
    groups = Groups(Order([4], shuffle=False), [9, 3, 10, 11], capacity=9)
    with pytest.raises(UsageError, match=r"^lengths\[2\]: a sample is longer than a group \(.*found 10"):
        groups[0]


def test_the_default_epoch_is_that_of_the_order() -> None:
    assert Groups(Order([3], lanes=1, epoch=5), [1, 2, 3], capacity=4).epoch == 5
    assert Groups(MixtureOrder([[2], [1]], [1, 1], 7, lanes=1), [1, 2, 3], capacity=4).epoch == 0


def test_the_samples_of_a_bucket_are_divided_among_the_ranks() -> None:
    order = Order([7], shuffle=False)
    groups = Groups(order, [3] * 7, kind="buckets", sizes=[3], global_batch_size=7)
    (step,) = groups.steps()
    shares = [groups.share(step, rank, 3) for rank in range(3)]
    assert [share.edges.tolist() for share in shares] == [[0, 2], [0, 2], [0, 3]]
    assert [share.positions.tolist() for share in shares] == [[0, 1], [2, 3], [4, 5, 6]]
    assert [len(share.firsts) for share in shares] == [len(share.sizes) for share in shares] == [2, 2, 3]
    with pytest.raises(UsageError, match=r"^size is out of range \(expected 1 to 1, found 2\)"):
        next(groups.steps(2))


def test_a_dataset_without_samples_has_no_windows() -> None:
    empty: list[Any] = [[], np.zeros(0, np.float32), np.zeros(0, np.str_)]
    for lengths in empty:
        groups = Groups(Order([0, 0], lanes=1), lengths, capacity=9)
        assert list(groups) == list(groups.steps(4)) == []
        assert groups.grouping.window == 2048


def test_groups_need_an_order() -> None:
    with pytest.raises(UsageError, match=r"expected an mdsx\.Order, found 'data'"):
        Groups("data", [1], capacity=20)  # type: ignore[arg-type]
