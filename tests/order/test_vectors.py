"""The test vectors of order version 1, and literal orders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mdsx.order import ORDER_VERSION, AllSamples, MixtureOrder, Order, bounds_of, select_fraction
from mdsx.order.hashing import key, mix64, mixed, permutation, sample_seeds
from tests.order.positions import draws_before, rank_positions
from tests.vectors import phases

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors" / "order-v1.json").read_text())


def test_the_version_is_that_of_the_vectors() -> None:
    assert VECTORS["order_version"] == ORDER_VERSION == Order.version


def test_mix64_follows_the_vectors() -> None:
    numbers = [int(vector["x"]) for vector in VECTORS["mix64"]]
    expected = [int(vector["value"]) for vector in VECTORS["mix64"]]
    assert [mix64(x) for x in numbers] == expected
    assert mixed(np.array(numbers, np.uint64)).tolist() == expected


def test_key_follows_the_vectors() -> None:
    for vector in VECTORS["key"]:
        assert key(*map(int, vector["parts"])) == int(vector["value"])


def test_the_seeds_of_samples_are_keys() -> None:
    epochs, positions = np.array([0, 3, 0, 3, 2**61]), np.array([0, 10**12, 5, 0, 1])
    seeds = sample_seeds(7, epochs, positions).tolist()
    assert seeds[:2] == [3169016854468226427, 10264389859409880846]
    assert seeds == [
        key(7, 8, epoch, position) for epoch, position in zip(epochs.tolist(), positions.tolist(), strict=True)
    ]


@pytest.mark.parametrize("vector", VECTORS["permutation"], ids=lambda vector: f"n={vector['n']}")
def test_permutation_follows_the_vectors(vector: dict[str, Any]) -> None:
    assert permutation(int(vector["key"]), vector["n"]).tolist() == vector["value"]


@pytest.mark.parametrize("number", range(len(VECTORS["order"])))
def test_orders_follow_the_vectors(number: int) -> None:
    vector = VECTORS["order"][number]
    counts = vector["counts"]
    if isinstance(counts, dict):
        counts = np.full(counts["times"], counts["repeat"])
    options = {name: vector[name] for name in ("epoch", "lanes", "shuffle_block", "shuffle")}
    located = Order(counts, seed=int(vector["seed"]), **options).locate(vector["positions"])
    assert np.stack(located, axis=1).tolist() == vector["value"]


@pytest.mark.parametrize("vector", VECTORS["rank_batch"], ids=lambda vector: f"{vector['world']} ranks")
def test_rank_batches_follow_the_vectors(vector: dict[str, Any]) -> None:
    for rank, expected in enumerate(vector["value"]):
        positions = rank_positions(
            vector["start"], vector["stop"], lanes=vector["lanes"], rank=rank, world_size=vector["world"]
        )
        assert positions.tolist() == expected


@pytest.mark.parametrize("vector", VECTORS["mixture"], ids=lambda vector: str(vector["weights"]))
def test_mixtures_follow_the_vectors(vector: dict[str, Any]) -> None:
    mixture = MixtureOrder(
        vector["counts"], vector["weights"], int(vector["seed"]), vector["lanes"], vector["shuffle_block"]
    )
    positions = vector["positions"]
    assert [str(bound) for bound in bounds_of(vector["weights"], mixture.sizes)] == vector["bounds"]
    assert draws_before(mixture, positions).tolist() == vector["draws_in_lane_before"]
    assert np.stack(mixture.locate(positions), axis=1).tolist() == vector["value"]


# The worked example of format-spec.md: an empty shard (1), one divided by a lane's start (0), chunks, short blocks.
EXAMPLE = Order([4, 0, 7, 3, 6], seed=7, epoch=1, lanes=2, shuffle_block=6)
EXAMPLE_PLACES = [
    *[(0, 0), (0, 1), (4, 3), (2, 2), (4, 4), (2, 3), (4, 0), (0, 2), (4, 5), (0, 3)],
    *[(4, 2), (2, 4), (3, 0), (2, 0), (4, 1), (2, 5), (3, 1), (2, 6), (3, 2), (2, 1)],
]


def test_the_order_follows_the_worked_example() -> None:
    shards, samples = EXAMPLE.locate(range(20))
    assert list(zip(shards.tolist(), samples.tolist(), strict=True)) == EXAMPLE_PLACES


def test_a_batch_follows_the_worked_example() -> None:
    ranks = [rank_positions(6, 14, lanes=2, rank=rank, world_size=3).tolist() for rank in range(3)]
    assert ranks == [[6, 8], [10, 12, 7], [9, 11, 13]]


def test_a_mixture_follows_the_worked_example() -> None:
    mixture = MixtureOrder([[3, 1], [2]], [3, 1], seed=5, lanes=2, shuffle_block=4)
    components, shards, samples = (found.tolist() for found in mixture.locate(range(8)))
    assert components == [0, 0, 0, 1, 1, 0, 0, 0]
    assert shards == [0, 0, 1, 0, 0, 0, 1, 0]
    assert samples == [1, 0, 0, 1, 0, 2, 0, 0]


def test_far_positions_of_a_large_dataset_never_change() -> None:
    order = Order(np.full(1000, 10**9), seed=2**64 - 1, epoch=3, lanes=8)  # 10^12 samples
    assert order.shuffle_block == 262144
    shards, samples = order.locate([0, 1, 8, 10**11, 5 * 10**11 + 7, 10**12 - 1])
    assert shards.tolist() == [112, 558, 112, 890, 4, 719]
    assert samples.tolist() == [2472, 3212, 1997, 500008440, 500002679, 999994393]


PHASES: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors" / "phases-v1.json").read_text())


@pytest.mark.parametrize("vector", PHASES["phases"], ids=lambda vector: str(vector["phases"]))
def test_phases_follow_the_vectors(vector: dict[str, Any]) -> None:
    (_, weights), *later = vector["phases"]
    options = {name: vector[name] for name in ("lanes", "shuffle_block")}
    mixture = MixtureOrder(vector["counts"], weights, int(vector["seed"]), phases=later, **options)
    assert np.stack(mixture.locate(vector["positions"]), axis=1).tolist() == vector["value"]


@pytest.mark.parametrize("vector", PHASES["selection"], ids=lambda vector: f"{vector['start']} to {vector['stop']}")
def test_selections_follow_the_vectors(vector: dict[str, Any]) -> None:
    counts = np.array(vector["counts"])
    chosen = select_fraction(AllSamples(counts), counts, vector["start"], vector["stop"], int(vector["seed"]))
    firsts = np.cumsum(counts) - counts
    parts = [firsts[k] + chosen.samples(k, np.arange(count)) for k, count in enumerate(chosen.counts.tolist())]
    assert np.concatenate(parts).tolist() == vector["value"]


def test_phases_vectors_follow_the_specification() -> None:
    assert phases.text() == (Path(__file__).parents[1] / "vectors" / "phases-v1.json").read_text()
