"""Groups, version 1: which samples are handed out together, whatever the ranks, workers and batch sizes."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mdsx.order import GROUPS_VERSION, Grouping, group_window, step_order, windows

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors" / "groups-v1.json").read_text())


def test_the_version_is_that_of_the_vectors() -> None:
    assert VECTORS["groups_version"] == GROUPS_VERSION


@pytest.mark.parametrize("vector", VECTORS["groups"], ids=lambda vector: f"{vector['kind']}-{vector['capacity']}")
def test_groups_follow_the_vectors(vector: dict[str, Any]) -> None:
    rule = Grouping(vector["kind"], vector["capacity"], vector["window"], "error", vector["max_samples"])
    lengths, lanes, found = np.array(vector["lengths"]), vector["lanes"], []
    for number, (start, stop) in enumerate(windows(0, len(lengths), len(lengths), rule.window * lanes)):
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
