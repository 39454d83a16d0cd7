"""The vectors of `more-v1.json`, `states-v1.json` and `strata-v1.json`."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

from mdsx.errors import StateError
from mdsx.format import Schema, numpy_values, value_decoder
from mdsx.format.filenames import runs_of
from mdsx.order import (
    AllSamples,
    DatasetCourse,
    Grouping,
    Groups,
    MixtureOrder,
    Order,
    Subset,
    sample_seeds,
    select_between,
    select_fraction,
    share_edges,
    shares_of,
    step_order,
    stratified_shares,
)
from mdsx.shards.value_hashes import value_hashes
from mdsx.stream import OrderIdentity
from mdsx.stream.group_state import GroupIdentity
from mdsx.stream.phase_state import weight_of
from tests.order.test_groups import listed
from tests.vectors import more, states, strata

FOLDER = Path(more.__file__).parent
MORE: dict[str, Any] = json.loads((FOLDER / "more-v1.json").read_text())
STATES: dict[str, Any] = json.loads((FOLDER / "states-v1.json").read_text())
STRATA: dict[str, Any] = json.loads((FOLDER / "strata-v1.json").read_text())


def test_the_files_are_those_of_the_reference() -> None:
    assert more.text() == (FOLDER / "more-v1.json").read_text()
    assert states.text() == (FOLDER / "states-v1.json").read_text()
    assert strata.text() == (FOLDER / "strata-v1.json").read_text()


@pytest.mark.parametrize("vector", MORE["phases"], ids=lambda vector: f"{vector['lanes']} lanes {vector['phases']}")
def test_mixtures_at_their_limits_follow_the_vectors(vector: dict[str, Any]) -> None:
    (_, weights), *later = vector["phases"]
    options = {name: vector[name] for name in ("lanes", "shuffle_block")}
    mixture = MixtureOrder(vector["counts"], weights, int(vector["seed"]), phases=later, **options)
    assert np.stack(mixture.locate(vector["positions"]), axis=1).tolist() == vector["value"]


def test_without_shuffle_ranks_divide_one_lane() -> None:
    for vector in MORE["unshuffled_ranks"]:
        course = DatasetCourse(Order([vector["samples"]], lanes=vector["lanes"], shuffle=False))
        ends, world = (np.array([vector["start"]]), np.array([vector["stop"]])), vector["world"]
        found = [course.rank_ticks(*ends, rank, world)[0].tolist() for rank in range(world)]
        assert found == vector["value"]


def test_rank_shares_follow_the_vectors() -> None:
    for vector in MORE["rank_groups"]:
        step, world = vector["step"], vector["world"]
        order = step_order(np.array([[lane for lane, _ in step]]), vector["lanes"])[0].tolist()
        places = [rank * len(step) // world for rank in range(world + 1)]
        assert [[step[i] for i in order[first:last]] for first, last in pairwise(places)] == vector["value"]


@pytest.mark.parametrize("vector", MORE["value_hash"], ids=lambda vector: f"{vector['type']} {vector['bytes']}")
def test_the_hash_of_stored_bytes_follows_the_vectors(vector: dict[str, Any]) -> None:
    (column,) = Schema.from_columns({"value": vector["type"]}).columns
    data, kind = bytes.fromhex(vector["bytes"]), column.type
    if kind.fixed_size:
        shape = (1, *(size or 0 for size in kind.shape or ()))
        values = numpy_values(kind, np.frombuffer(data, kind.item_dtype).reshape(shape))
    else:
        values = [value_decoder(kind, "value")(memoryview(data))]
    assert f"{int(value_hashes(column, values)[0]):016x}" == vector["value"]


def test_the_seeds_of_samples_follow_the_vectors() -> None:
    for vector in MORE["seed"]:
        found = sample_seeds(int(vector["seed"]), np.array([vector["epoch"]]), np.array([vector["position"]]))
        assert str(int(found[0])) == vector["value"]


def test_splits_follow_the_vectors() -> None:
    for vector in MORE["split"]:
        edges = share_edges(list(map(weight_of, vector["shares"])))
        assert [str(int(edge * 2**64)) for edge in edges] == vector["bounds"]
        found = shares_of(np.array(vector["h"], np.uint64), edges, int(vector["seed"])).tolist()
        assert [None if share == len(edges) - 1 else share for share in found] == vector["value"]


def test_stratified_splits_follow_the_vectors() -> None:
    for vector in STRATA["stratified_split"]:
        edges = share_edges(list(map(weight_of, vector["shares"])))
        numbers = np.array([number for number, _ in vector["samples"]], np.int64)
        strata = np.array([int(h or 0) for _, h in vector["samples"]], np.uint64)
        nulls = np.array([h is None for _, h in vector["samples"]], np.bool_)
        found = stratified_shares(strata, nulls, numbers, edges, int(vector["seed"])).tolist()
        assert [None if share == len(edges) - 1 else share for share in found] == vector["value"]


def test_the_name_of_a_selection_of_selections_follows_the_vectors() -> None:
    for vector in MORE["selection_fingerprint"]:
        stored = np.array([600, vector["samples"] - 600])
        subset: Subset = AllSamples(stored)
        for step in vector["steps"]:
            if "seed" in step:
                subset = select_fraction(subset, stored, step["start"], step["stop"], int(step["seed"]))
            else:
                subset = select_between(subset, stored, step["start"], step["stop"])
        assert subset.name == vector["text"]
        line = f"{vector['fingerprint']}\n{subset.name}".encode()
        expected = xxhash.xxh3_128_hexdigest(line) if subset.name else vector["fingerprint"]
        assert expected == vector["value"]


def test_selections_of_selections_follow_the_vectors() -> None:
    for vector in MORE["selection"]:
        stored = np.array([9, 0, vector["samples"] - 9])
        subset: Subset = AllSamples(stored)
        for step in vector["steps"]:
            if "seed" in step:
                subset = select_fraction(subset, stored, step["start"], step["stop"], int(step["seed"]))
            else:
                subset = select_between(subset, stored, step["start"], step["stop"])
        firsts = np.cumsum(stored) - stored
        parts = [firsts[k] + subset.samples(k, np.arange(count)) for k, count in enumerate(subset.counts.tolist())]
        assert np.concatenate(parts).tolist() == vector["value"]


def test_the_ranges_of_names_follow_the_vectors() -> None:
    for vector in MORE["name_ranges"]:
        assert [list(found) for found in runs_of(vector["names"])] == vector["value"]


@pytest.mark.parametrize("number", range(len(MORE["epochs"])))
def test_groups_of_mixtures_without_proportions_follow_the_vectors(number: int) -> None:
    vector = dict(MORE["epochs"][number])
    counts = [count for component in vector.pop("counts") for count in component]
    seed, expected = int(vector.pop("seed")), vector.pop("value")
    options = {name: vector.pop(name) for name in ("lanes", "shuffle_block", "shuffle")}
    found = [listed(window) for window in Groups(Order(counts, seed=seed, **options), vector.pop("lengths"), **vector)]
    assert json.loads(json.dumps(found)) == expected


# --- states


def outcome(check: Any, expected: Any) -> Any:
    """Return what `check` returns, or the key that it refuses."""
    try:
        return json.loads(json.dumps(check()))[: len(expected)] if isinstance(expected, list) else check()
    except StateError as error:
        return (error.place or "").strip("'").removeprefix("groups.")


@pytest.mark.parametrize("vector", STATES["states"] + STATES["phases"], ids=lambda vector: vector["about"])
def test_a_state_is_taken_or_refused_by_its_key(vector: dict[str, Any]) -> None:
    run = dict(vector["run"])
    schedule = tuple((start, tuple(weights)) for start, weights in run.pop("schedule", ()))
    seed, samples = int(run.pop("seed")), run["epoch_samples"]
    identity = OrderIdentity(order_version=1, seed=seed, samples=samples, phases=schedule, schedule=schedule, **run)
    assert outcome(lambda: identity.check(vector["state"])[:2], vector["value"]) == vector["value"]


@pytest.mark.parametrize("vector", STATES["groups"], ids=lambda vector: vector["about"])
def test_a_state_of_groups_is_taken_or_refused_by_its_key(vector: dict[str, Any]) -> None:
    run = vector["run"]
    rule = Grouping(run["kind"], run["capacity"], run["positions"], run["oversize"], run["max_samples"])
    identity = GroupIdentity(rule, run["lengths"], run["epoch_steps"])
    assert outcome(lambda: identity.check(vector["groups"]), vector["value"]) == vector["value"]
