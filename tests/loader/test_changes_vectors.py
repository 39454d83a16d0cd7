"""The vectors of `changes-v1.json`: which component has which number, and what a run reads after a change."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mdsx.datasets import Listed, checked_numbers, extended, fingerprint_of, matched
from mdsx.order import Excluded, LeftOut, MixtureOrder, Weight
from tests.vectors import changes

FILE = Path(changes.__file__).parent / "changes-v1.json"
VECTORS: dict[str, Any] = json.loads(FILE.read_text())


def test_the_file_is_that_of_the_reference() -> None:
    assert changes.text() == FILE.read_text()


def test_components_are_matched_by_fingerprint_then_name_then_order() -> None:
    for vector in VECTORS["matched"]:
        old, given = ([Listed(*pair) for pair in vector[name]] for name in ("old", "given"))
        assert matched(old, given) == vector["value"]
    for vector in VECTORS["fingerprints"]:
        assert fingerprint_of(vector["listed"]) == vector["value"]


@pytest.mark.parametrize("vector", VECTORS["runs"], ids=lambda vector: f"{vector['lanes']} lanes, run {vector['run']}")
def test_a_run_that_changes_follows_the_vectors(vector: dict[str, Any]) -> None:
    counts, many = vector["counts"], len(vector["counts"])
    phases: list[tuple[int, list[Weight]]] = [
        (at, [*map(Fraction, weights), *[Fraction(0)] * (many - len(weights))])
        for at, weights in vector["begins_with"] + vector["changes"]
    ]
    (_, first), *later = phases
    options = {name: vector[name] for name in ("lanes", "shuffle_block", "run")}
    order = MixtureOrder(counts, first, int(vector["seed"]), phases=later, **options)
    places = order.locate(vector["ticks"])
    assert np.stack(places, axis=1).tolist() == vector["value"]
    firsts = np.cumsum([0, *map(len, counts)])
    left_out = {
        component: LeftOut(np.array(numbers), np.full(len(numbers), since))
        for component, since, numbers in vector["exclude"]
    }
    excluded = Excluded(np.concatenate(counts), firsts, left_out)
    ticks = np.array(vector["ticks"])
    kept = excluded.kept(ticks, firsts[places[0]] + places[1], places[2])
    assert ticks[~kept].tolist() == vector["left_out"]
    for (component, since, numbers), expected in zip(vector["exclude"], vector["hashes"], strict=True):
        (held,) = extended((), component, "web", checked_numbers(numbers, "web", None), since)
        assert held == (component, since, len(numbers), expected)


def test_what_comes_before_a_change_needs_no_later_component() -> None:
    """With the components and phases that the run began with, the ticks before the first change are the same."""
    for vector in VECTORS["runs"]:
        (_, first), *later = [(at, list(map(Fraction, weights))) for at, weights in vector["begins_with"]]
        options = {name: vector[name] for name in ("lanes", "shuffle_block", "run")}
        order = MixtureOrder(vector["counts"][: len(first)], first, int(vector["seed"]), phases=later, **options)
        before = [tick for tick in vector["ticks"] if tick < vector["changes"][0][0]]
        assert np.stack(order.locate(before), axis=1).tolist() == vector["value"][: len(before)]


def test_shares_of_tokens_are_exact() -> None:
    for vector in VECTORS["shares_of_tokens"]:
        found = [
            Fraction(share) * samples / total if total else Fraction(0)
            for share, samples, total in zip(vector["proportions"], vector["samples"], vector["sums"], strict=True)
        ]
        assert list(map(str, found)) == vector["value"]
