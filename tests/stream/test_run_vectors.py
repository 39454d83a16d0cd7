"""The vectors of runs: what a dataset, a batch size and a world size determine, and the form of a state."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
from numpy.typing import NDArray

import mdsx
from mdsx.datasets import excerpt_of
from mdsx.format import Schema
from mdsx.order import (
    AllSamples,
    DatasetCourse,
    Order,
    Subset,
    bounds_of,
    exact_weight,
    select_between,
    select_chosen,
    select_fraction,
)
from mdsx.order.order import default_shuffle_block
from mdsx.shards.value_hashes import value_hashes
from mdsx.stream import Cursor, OrderIdentity, SampleSteps
from mdsx.stream.phase_state import weight_of
from tests.vectors import runs

HALF = "0000000000000000-8000000000000000"
FILE = Path(runs.__file__).parent / "runs-v1.json"
VECTORS: dict[str, Any] = json.loads(FILE.read_text())


def test_the_vectors_follow_the_specification() -> None:
    assert runs.text() == FILE.read_text()


def test_the_default_block_follows_the_vectors() -> None:
    for vector in VECTORS["default_block"]:
        assert default_shuffle_block(vector["samples"], vector["shards"]) == vector["value"]


@pytest.mark.parametrize("vector", VECTORS["weights"], ids=lambda vector: str(vector["weights"]))
def test_weights_are_exact_numbers_or_the_nearest_binary64(vector: dict[str, Any]) -> None:
    weights = list(map(weight_of, vector["weights"]))
    assert list(map(str, bounds_of(weights, [1] * len(weights)))) == vector["bounds"]


def test_fractions_are_binary64_numbers() -> None:
    for vector in VECTORS["fractions"]:
        bounds = [int(exact_weight(vector[name], name) * 2**64) for name in ("start", "stop")]
        assert list(map(str, bounds)) == vector["bounds"]


def test_the_name_of_a_selection_follows_the_vectors() -> None:
    for vector in VECTORS["selection_fingerprint"]:
        counts = np.array([600, 700])
        subset: Subset = AllSamples(counts)
        for step in vector["steps"]:
            if "seed" in step:
                subset = select_fraction(subset, counts, step["start"], step["stop"], int(step["seed"]))
            else:
                subset = select_between(subset, counts, step["start"], step["stop"])
        assert subset.name == vector["text"]


def test_the_step_of_a_list_follows_the_vectors() -> None:
    for vector in VECTORS["list_step"]:
        stored = np.array([1, vector["samples"] - 1])
        subset = select_chosen(AllSamples(stored), stored, partial(_between, vector))
        assert subset.name == vector["value"]


def _between(vector: dict[str, Any], start: int, stop: int) -> NDArray[np.int64]:
    return np.array([number for number in vector["numbers"] if start <= number < stop], np.int64)


def test_the_hash_of_a_value_follows_the_vectors() -> None:
    for vector in VECTORS["value_hash"]:
        (column,) = Schema.from_columns({"value": vector["type"]}).columns
        kind, given = column.type, vector["given"]
        dtype = np.bool_ if kind.base == "bool" else kind.item_dtype if kind.scalar else None
        value: Any = given.encode() if kind.base == "bytes" else given
        if dtype is not None and given is not None:
            value = np.array(given).astype(dtype)[()]
        values = np.array([value]) if kind.fixed_size else [value]
        assert f"{int(value_hashes(column, values)[0]):016x}" == vector["value"]


@pytest.mark.parametrize("vector", VECTORS["ends"], ids=lambda vector: f"{vector['samples']} by {vector['batch']}")
def test_the_ends_of_an_epoch_follow_the_vectors(vector: dict[str, Any]) -> None:
    world = vector["world"]
    course = DatasetCourse(Order([vector["samples"]], lanes=vector["lanes"]))
    batching = SampleSteps(
        vector["samples"], 1, vector["batch"], vector["drop_last"]
    )  # the global batch is what counts
    found = []
    for task in batching.tasks(Cursor()):
        ends = np.array([task.start]), np.array([task.stop])
        ranks = [course.rank_ticks(*ends, rank, world)[0].tolist() for rank in range(world)]
        found.append({"ranks": ranks, "after": list(task.after[:2])})
    assert found == vector["value"]


@pytest.mark.parametrize("vector", VECTORS["epochs"], ids=lambda vector: f"{vector['epoch_samples']} samples")
def test_epochs_of_another_length_follow_the_vectors(vector: dict[str, Any]) -> None:
    world, length = vector["world"], vector["epoch_samples"]
    order = Order(
        vector["counts"], seed=int(vector["seed"]), lanes=vector["lanes"], shuffle_block=vector["shuffle_block"]
    )
    course, batching = DatasetCourse(order, length), SampleSteps(length, 1, vector["batch"], False)
    found = []
    for epoch in range(3):
        for task in batching.tasks(Cursor(epoch)):
            ends = np.array([task.start]), np.array([task.stop])
            ranks = [course.locate(course.rank_ticks(*ends, rank, world)[0]) for rank in range(world)]
            found.append([np.stack(places, axis=1).tolist() for places in ranks])
    assert found == vector["value"]


def identity(vector: dict[str, Any]) -> OrderIdentity:
    phases = tuple((start, tuple(map(weight_of, weights))) for start, weights in vector["phases"])
    fields = {name: vector[name] for name in ("lanes", "shuffle_block", "shuffle", "fingerprint", "epoch_samples")}
    samples = vector["epoch_samples"]
    return OrderIdentity(order_version=1, seed=int(vector["seed"]), samples=samples, phases=phases, **fields)


@pytest.mark.parametrize("vector", VECTORS["state"], ids=lambda vector: f"epoch {vector['value']['epoch']}")
def test_a_state_is_written_and_read(vector: dict[str, Any]) -> None:
    state = vector["value"]
    run = identity(vector)
    assert run.state(state["epoch"], state["position"]) == state
    assert run.check(state)[:2] == (state["epoch"], state["position"])


def test_fingerprints_follow_the_vectors() -> None:
    data = mdsx.Dataset(FILE.parent / "good" / "plain")
    whole = excerpt_of(data).fingerprint
    for chosen, name in (
        (data.select(1, 4), "1:4"),
        (data.select(1, 4).select_share(0.0, 0.5, seed=9), f"1:4 {HALF}@9"),
    ):
        assert excerpt_of(chosen).fingerprint == xxhash.xxh3_128_hexdigest(f"{whole}\n{name}".encode())
    for vector in VECTORS["selection_fingerprint"]:
        line = f"{vector['fingerprint']}\n{vector['text']}"
        assert xxhash.xxh3_128_hexdigest(line.encode()) == vector["value"]
    for vector in VECTORS["zip_fingerprint"]:
        lines = "\n".join(["zip", *vector["fingerprints"]])
        assert xxhash.xxh3_128_hexdigest(lines.encode()) == vector["value"]
    mixture = mdsx.Mixture([data, data.select(1, 4)])
    lines = f"mixture\n{whole}\n{excerpt_of(data.select(1, 4)).fingerprint}"
    assert mixture.fingerprint == xxhash.xxh3_128_hexdigest(lines.encode())


def test_the_fingerprint_of_a_schedule_follows_the_vectors() -> None:
    data = mdsx.Dataset(FILE.parent / "good" / "plain")
    names = [
        excerpt_of(data).fingerprint,
        excerpt_of(data.select(1, 4)).fingerprint,
        excerpt_of(data.select(0, 3)).fingerprint,
    ]
    for vector in json.loads((FILE.parent / "mixtures-v1.json").read_text())["schedule_fingerprint"]:
        assert xxhash.xxh3_128_hexdigest(vector["text"].encode()) == vector["value"]
        components = [data, data.select(1, 4), data.select(0, 3)][: len(vector["fingerprints"])]
        found = mdsx.Mixture(components, schedule=dict(vector["schedule"])).fingerprint
        text = vector["text"]
        for given, name in zip(vector["fingerprints"], names, strict=False):
            text = text.replace(given, name)
        assert found == xxhash.xxh3_128_hexdigest(text.encode())


def test_an_unweighted_unshuffled_mixture_is_read_in_order() -> None:
    for vector in VECTORS["unshuffled_mixture"]:
        counts = [count for component in vector["counts"] for count in component]
        firsts = np.cumsum([0, *map(len, vector["counts"])])
        shards, samples = Order(counts, shuffle=False).locate(range(sum(counts)))
        components = np.searchsorted(firsts, shards, side="right") - 1
        assert np.stack([components, shards - firsts[components], samples], axis=1).tolist() == vector["value"]
