"""Batches of one shape: which bucket a sample is in, and which samples are handed out together."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import pairwise
from math import isqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from mdsx.errors import UsageError
from mdsx.order import GROUPS_VERSION, Bucketing, Groups, GroupSequence, MixtureOrder, Order
from mdsx.order.bucketing import bucket_groups, bucket_values, checked_batch_sizes, checked_sizes, rank_edges
from tests.order import reference, reference_buckets, reference_groups
from tests.order.reference_buckets import BucketGroup, Size
from tests.order.strategies import uint64
from tests.vectors import buckets

FILE = Path(__file__).parents[1] / "vectors" / "buckets-v1.json"
VECTORS: dict[str, Any] = json.loads(FILE.read_text())


def listed(groups: GroupSequence) -> list[BucketGroup]:
    """Return the groups as the reference has them."""
    positions, edges = groups.positions.tolist(), pairwise(groups.edges.tolist())
    return [(bucket, positions[first:last]) for bucket, (first, last) in zip(groups.lanes.tolist(), edges, strict=True)]


def sizes_of(given: list[Any]) -> list[Any]:
    return [tuple(size) if isinstance(size, list) else size for size in given]


def buckets_of(sizes: list[Any], samples: list[Any]) -> list[int | None]:
    rule = Bucketing.of(sizes, 1, None, 1)
    found = rule.buckets_of(np.array(samples, np.int64).reshape((-1, 2) if rule.of_pairs else -1))
    return [None if bucket < 0 else bucket for bucket in found.tolist()]


# --- the vectors


@pytest.mark.parametrize("number", range(len(VECTORS["bucket"])))
def test_buckets_of_samples_follow_the_vectors(number: int) -> None:
    vector = VECTORS["bucket"][number]
    assert buckets_of(sizes_of(vector["sizes"]), vector["samples"]) == vector["value"]


@pytest.mark.parametrize("number", range(len(VECTORS["epochs"])))
def test_epochs_of_buckets_follow_the_vectors(number: int) -> None:
    vector = dict(VECTORS["epochs"][number])
    counts, seed, expected = vector.pop("counts"), int(vector.pop("seed")), vector.pop("value")
    options = {name: vector.pop(name) for name in ("lanes", "shuffle_block")}
    order: Order | MixtureOrder
    if "weights" in vector:
        order = MixtureOrder(counts, vector.pop("weights"), seed, **options)
    else:
        order = Order(counts, seed=seed, shuffle=vector.pop("shuffle"), **options)
    sizes, batch_sizes = sizes_of(vector.pop("sizes")), vector.pop("batch_sizes")
    groups = Groups(order, vector.pop("samples"), kind="buckets", sizes=sizes, global_batch_size=batch_sizes, **vector)
    found = []
    for window in groups:
        whole = [len(positions) == batch_sizes[bucket] for bucket, positions in listed(window)]
        split = whole.index(False) if False in whole else len(whole)
        assert not any(whole[split:])
        found.append([listed(window)[:split], listed(window)[split:]])
    assert json.loads(json.dumps(found)) == expected


@pytest.mark.parametrize("vector", VECTORS["default_window"], ids=lambda vector: f"{vector['lanes']} lanes")
def test_the_default_window_of_buckets_follows_the_vectors(vector: dict[str, int]) -> None:
    assert Bucketing.of([1], 1, None, vector["lanes"]).window == vector["value"]


def test_vectors_of_buckets_follow_the_specification() -> None:
    assert VECTORS["groups_version"] == GROUPS_VERSION
    assert buckets.text() == FILE.read_text()


# --- the specification

sides = st.one_of(st.integers(1, 9), st.integers(1, 4096), st.integers(1, 2**32 - 1))


def ratio(size: tuple[int, int]) -> Fraction:
    return Fraction(*size)


ratios = st.lists(st.tuples(sides, sides), min_size=1, max_size=12, unique_by=ratio)


@given(ratios, st.lists(st.tuples(st.one_of(st.just(0), sides), sides), max_size=30))
def test_a_sample_is_in_the_bucket_of_the_nearest_ratio(
    sizes: list[tuple[int, int]], samples: list[tuple[int, int]]
) -> None:
    samples += sizes
    samples += [(a[0] * b[0], a[1] * b[1]) for a, b in pairwise(sizes) if max(a[0] * b[0], a[1] * b[1]) < 2**32]
    assert buckets_of(sizes, samples) == [reference_buckets.bucket_of(each, sizes) for each in samples]


@given(st.integers(1, 2000), st.integers(1, 2000), st.integers(-1, 1), st.booleans())
def test_a_sample_near_the_middle_is_decided_exactly(height: int, width: int, off: int, swapped: bool) -> None:
    assume(height * width > 1)
    sizes = [(height**2, 1), (1, width**2)][:: -1 if swapped else 1]  # the middle is height / width
    sample = height * 10**6 + off, width * 10**6
    assert buckets_of(sizes, [sample]) == [reference_buckets.bucket_of(sample, sizes)]


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=2, max_size=6, unique_by=ratio))
@example([(2, 1), (1, 1)])
@example([(1, 1), (3, 1), (5, 1)])
def test_samples_nearer_to_a_middle_than_floats_can_tell_are_decided_exactly(sizes: list[tuple[int, int]]) -> None:
    samples = []
    for low, high in pairwise(sorted(sizes, key=ratio)):
        middle = ratio(low) * ratio(high)
        root = Fraction(isqrt(middle.numerator * middle.denominator << 128), middle.denominator << 64)
        near = [root.limit_denominator(10**7 * k) for k in (1, 3, 5, 7, 9)]  # some above it, some below
        samples += [(each.numerator, each.denominator) for each in near]
    assert buckets_of(sizes, samples) == [reference_buckets.bucket_of(each, sizes) for each in samples]


@given(st.data(), st.lists(st.integers(0, 8), min_size=1, max_size=80))
def test_groups_of_buckets_follow_the_specification(data: st.DataObject, samples: list[int]) -> None:
    classes: list[Size] = data.draw(st.permutations(sorted(set(samples))))
    batch_sizes = data.draw(st.lists(st.integers(1, 12), min_size=len(classes), max_size=len(classes)))
    counts = [len(samples) - len(samples) // 3, len(samples) // 3]
    shuffle, seed, block = data.draw(st.booleans()), data.draw(uint64), data.draw(st.integers(1, 60))
    lanes, window = data.draw(st.integers(1, 6)) if shuffle else 1, data.draw(st.integers(1, 30))
    n, epoch = len(samples), data.draw(st.integers(0, 3))
    size = data.draw(st.one_of(st.just(n), st.integers(1, 3 * n)))
    order = Order(counts, seed=seed, epoch=epoch, shuffle=shuffle, lanes=lanes, shuffle_block=block)
    options: dict[str, Any] = {"sizes": classes, "global_batch_size": batch_sizes, "epoch_samples": size}
    groups = Groups(order, samples, kind="buckets", window=window, **options)

    known = {}
    for of_order in range(epoch * size // n, (epoch + 1) * size // n + 1):
        for p, (shard, sample) in enumerate(reference.whole_order(counts, seed, of_order, lanes, block, shuffle)):
            known[of_order * n + p] = classes.index(samples[shard * counts[0] + sample])
    expected = reference_groups.epoch_windows(epoch * size, (epoch + 1) * size, n, window * lanes)
    assert list(groups.windows) == [(each[0], each[-1] + 1) for each in expected]
    sequence = list[BucketGroup]()
    for number, positions in enumerate(expected):
        whole, short = reference_buckets.window_groups(positions, known.__getitem__, batch_sizes)
        placed = [reference_buckets.by_place(each, lambda p: p % n % lanes, lanes) for each in whole + short]
        assert listed(groups[number]) == placed
        sequence += placed

    world = data.draw(st.integers(1, 9))
    steps = list(groups.steps())
    assert [listed(step) for step in steps] == [[group] for group in sequence]
    for step, group in zip(steps, sequence, strict=True):
        shares = [listed(groups.share(step, rank, world))[0][1] for rank in range(world)]
        assert shares == [reference_buckets.share(group, rank, world) for rank in range(world)]


@given(st.integers(2, 60), st.integers(1, 5), st.integers(1, 9), st.integers(1, 50), st.integers(0, 3))
def test_buckets_of_a_mixture_follow_the_specification(
    samples: int, lanes: int, window: int, epoch_samples: int, epoch: int
) -> None:
    components = [[samples - samples // 2], [samples // 2]]
    classes = [7 * number % 4 for number in range(samples)]
    order = MixtureOrder(components, [2, 1], seed=5, lanes=lanes, shuffle_block=20)
    options: dict[str, Any] = {"sizes": range(4), "global_batch_size": 3, "epoch_samples": epoch_samples}
    groups = Groups(order, classes, kind="buckets", window=window, epoch=epoch, **options)
    start, stop = epoch * epoch_samples, (epoch + 1) * epoch_samples
    read = reference.Mixture(components, [2, 1], 5, lanes, 20).positions(stop)
    known = [classes[component * components[0][0] + sample] for component, _, sample in read]
    for number, positions in enumerate(reference_groups.epoch_windows(start, stop, None, window * lanes)):
        whole, short = reference_buckets.window_groups(positions, known.__getitem__, [3] * 4)
        placed = [reference_buckets.by_place(each, lambda p: p % lanes, lanes) for each in whole + short]
        assert listed(groups[number]) == placed


def test_buckets_follow_the_worked_example() -> None:
    sizes = [(512, 512), (576, 448), (448, 576)]
    samples = [(600, 500), (480, 640), (512, 512), (300, 400), (640, 480)]
    samples += [(500, 510), (90, 120), (768, 1024), (800, 900), (1000, 100)]
    assert buckets_of(sizes, samples) == [1, 2, 0, 2, 1, 0, 2, 2, 0, 1]
    rule = Bucketing.of(sizes, [3, 2, 2], 5, 2)
    found = bucket_groups(rule, rule.buckets_of(np.array(samples)), np.arange(10) % 2, 2)
    groups = [items.tolist() for items in np.split(found.items, found.edges[1:-1])]
    assert list(zip(found.lanes.tolist(), groups, strict=True)) == [
        (2, [3, 1]),
        (1, [0, 4]),
        (2, [6, 7]),
        (0, [2, 5, 8]),
        (1, [9]),
    ]


# --- promises


def test_a_window_of_a_million_positions_is_grouped_at_once() -> None:
    """Each sample is in one group, and no whole group has samples of two buckets."""
    count, lanes = 2**20, 64
    samples = np.stack((200 + np.arange(count) * 7919 % 1000, 200 + np.arange(count) * 104729 % 900), axis=1)
    sizes = [(64 * (8 + k), 64 * (24 - k)) for k in range(16)]
    options: dict[str, Any] = {"sizes": sizes, "global_batch_size": [256] * 8 + [512] * 8}
    groups = Groups(Order([count], seed=1, lanes=lanes), samples, kind="buckets", **options)
    assert len(groups) == 1
    (found,) = groups
    assert np.array_equal(np.sort(found.positions), np.arange(count))
    assert (found.sizes == 1).all()
    whole = np.diff(found.edges) == np.repeat([256, 512], 8)[found.lanes]
    assert (~whole).sum() <= 16
    assert not (np.diff(whole.astype(int)) > 0).any()  # short ones come last


def test_arguments_of_buckets_may_have_any_form_and_become_plain_integers() -> None:
    plain = Bucketing(((512, 512), (576, 448)), (4, 4), 10)
    window: Any = np.int64(10)
    rule = Bucketing.of(np.array([[512, 512], [576, 448]], np.uint16), np.int32(4), window, 1)
    assert rule == plain
    assert hash(rule) == hash(plain)
    assert json.dumps(rule.fields) == json.dumps(plain.fields)
    assert Bucketing.of(range(3), [5, 6, 7], 10, 1) == Bucketing((0, 1, 2), (5, 6, 7), 10)


def test_buckets_are_allowed_up_to_their_limits() -> None:
    assert checked_sizes([(1, 2**32 - 1), (2**32 - 1, 1)]) == ((1, 2**32 - 1), (2**32 - 1, 1))
    assert checked_sizes([0, 2**32 - 1]) == (0, 2**32 - 1)
    assert checked_sizes(range(2**16)) == tuple(range(2**16))
    assert checked_batch_sizes(1, 2) == (1, 1)
    assert checked_batch_sizes([1, 2**36], 2) == (1, 2**36)
    assert [Bucketing.of([1], 2**36, window, 1).window for window in (1, 2**31)] == [1, 2**31]
    numbers = [0, 2**32 - 1]
    assert bucket_values(numbers, Bucketing.of(numbers, 1, None, 1), 2).tolist() == numbers


def test_the_product_of_sides_of_few_bits_does_not_overflow() -> None:
    rule = Bucketing.of([(200, 100), (100, 200)], 1, None, 1)
    values = bucket_values(np.array([(250, 200), (200, 250), (200, 200)], np.uint8), rule, 3)
    assert values.dtype == np.int64
    assert rule.buckets_of(values).tolist() == [0, 1, 0]


def test_a_group_is_short_if_it_has_fewer_samples_than_its_bucket_asks_for() -> None:
    rule = Bucketing.of([7, 8, 9], [4, 1, 6], None, 1)
    buckets = np.array([2, 0, 1, 0, 2])
    assert rule.short(buckets, np.array([0, 6, 10, 11, 14, 19])).tolist() == [False, False, False, True, True]
    assert rule.places(buckets) == 6 + 4 + 1 + 4 + 6
    assert rule.group_samples == 11 / 3


@given(st.lists(st.integers(0, 20), min_size=1, max_size=6), st.integers(1, 9))
def test_each_rank_has_its_share_of_each_group(sizes: list[int], world: int) -> None:
    edges = np.cumsum([0, *sizes])
    groups = [(0, list(range(first, last))) for first, last in pairwise(edges.tolist())]
    for rank in range(world):
        begins, stops = rank_edges(edges, rank, world)
        shares = [list(range(begin, stop)) for begin, stop in zip(begins.tolist(), stops.tolist(), strict=True)]
        assert shares == [reference_buckets.share(group, rank, world) for group in groups]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"sizes": [(512, 512), (576, 448), (512, 512)]}, "two buckets have the same size"),
        ({"sizes": [(512, 512), (1024, 1024)]}, "same aspect ratio.*remove one of them"),
        ({"sizes": [3, 4, 3], "lengths": [3, 4, 3]}, "two buckets have the same size"),
        ({"sizes": [(512, 512), (1024, 1024)]}, r"found \(512, 512\) and \(1024, 1024\)"),
        ({"sizes": []}, r"invalid sizes of buckets.*found \[\]"),
        ({"sizes": None}, "invalid sizes of buckets.*found None"),
        ({"sizes": "ab"}, "invalid sizes of buckets.*found 'ab'"),
        ({"sizes": range(2**16 + 1)}, "invalid sizes of buckets.*found 65537"),
        ({"sizes": [(512, 512), 3]}, "sizes of one kind"),
        ({"sizes": [(512, 512, 3)]}, "sizes of one kind"),
        ({"sizes": [(512, 512), (512, 3, 4)]}, "sizes of one kind"),
        ({"sizes": [(512, 0)]}, "a width is out of range.*1 to 4294967295"),
        ({"sizes": [(512, 2**32)]}, "a width is out of range"),
        ({"sizes": [(0, 7)]}, "a height is out of range.*1 to 4294967295"),
        ({"sizes": [(2**32, 7)]}, "a height is out of range"),
        ({"sizes": [(512.0, 7)]}, "a height must be an integer"),
        ({"sizes": [-1]}, "a number of a bucket is out of range"),
        ({"sizes": [2**32]}, "a number of a bucket is out of range"),
        ({"global_batch_size": 0}, "global_batch_size is out of range"),
        ({"global_batch_size": [4, 0]}, "global_batch_size of bucket 1 is out of range"),
        ({"global_batch_size": [4]}, "must be one number, or one for each bucket.*expected 2, found 1"),
        ({"global_batch_size": None}, "global_batch_size must be an integer"),
        ({"global_batch_size": 2**36 + 1}, "global_batch_size is out of range"),
        ({"global_batch_size": [4, 2**36 + 1]}, "global_batch_size of bucket 1 is out of range"),
        ({"window": 0}, "window is out of range"),
        ({"window": 2**31 + 1}, "window is out of range"),
        ({"capacity": 9}, "capacity is not for kind 'buckets'"),
        ({"oversize": "error"}, "oversize is not for kind 'buckets'"),
        ({"balance": (1, 1)}, "balance is not for kind 'buckets'"),
        ({"balance_over": "rack"}, "balance_over must be 'node' or 'job'"),
        ({"kind": "pack", "capacity": 9}, "sizes is not for kind 'pack'"),
        ({"lengths": [1, 2, 3]}, r"a height and a width for each sample"),
        ({"lengths": [(1, 2), (3, 4), (0, -1)]}, "a size is out of range.*found -1"),
        ({"lengths": [(1, 2), (3, 4), (0, 2**32)]}, "a size is out of range.*found 4294967296"),
        ({"lengths": [(1, 2), (3, 4), (0, 1)]}, r"lengths\[2\]: a sample has no bucket"),
        ({"sizes": [5, 3], "lengths": [3, 5, 6]}, r"lengths\[2\]: a sample has no bucket"),
    ],
)
def test_a_bad_argument_of_buckets_is_refused(options: dict[str, Any], says: str) -> None:
    given: dict[str, Any] = {"sizes": [(512, 512), (576, 448)], "global_batch_size": 4, "kind": "buckets", **options}
    with pytest.raises(UsageError, match=says):
        list(Groups(Order([3], shuffle=False), given.pop("lengths", [(1, 1), (2, 1), (1, 2)]), **given))
