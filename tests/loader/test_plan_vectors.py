"""The vectors of runs with a plan, through a loader that reads lengths only."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mdsx
from tests.vectors import plans

FILE = Path(__file__).parents[1] / "vectors" / "plans-v1.json"


def test_the_vectors_are_those_of_the_reference() -> None:
    assert plans.text() == FILE.read_text(encoding="utf-8")


@pytest.mark.parametrize("vector", json.loads(FILE.read_text(encoding="utf-8"))["runs"])
def test_each_step_is_that_of_the_vector(vector: dict[str, Any], tmp_path: Path) -> None:
    names = [str(number) for number in range(len(vector["lengths"]))]
    for name, lengths in zip(names, vector["lengths"], strict=True):
        with mdsx.Writer(tmp_path / name, {"tokens": "uint8[*]"}, lengths=["tokens"]) as out:
            for length in lengths:
                out.write({"tokens": np.zeros(length, np.uint8)})
    phases: dict[int, mdsx.Phase] = {
        mdsx.Tokens(phase["at"]): mdsx.Phase(
            phase["proportions"],
            batching=mdsx.Pack(phase["capacity"], length="tokens", window=phase["window"], kind=phase["kind"]),
            global_batch_size=phase["groups"],
        )
        for phase in vector["phases"]
    }
    loader = mdsx.Loader(
        mdsx.Mixture({name: str(tmp_path / name) for name in names}),
        plan=mdsx.Plan(phases, skip=vector["skip"]),
        seed=vector["seed"],
        shuffle=mdsx.Shuffle(lanes=vector["lanes"], shuffle_block=vector["shuffle_block"]),
        epoch_samples=vector["epoch_samples"],
        drop_last=vector["drop_last"],
        rank=0,
        world_size=1,
    )
    found = list[list[Any]]()
    for _, items in itertools.groupby(loader.trace(0, vector["consumed"]["steps"]), lambda item: item.step):
        rows = itertools.groupby(items, lambda item: item.row)
        found.append(
            sorted([[int(item.component), item.sample, item.first, item.values] for item in row] for _, row in rows)
        )
    assert found == [sorted(step) for step in vector["value"]]
    while loader.epoch < vector["epochs"]:
        for _ in loader:
            pass
    consumed, expected = loader.consumed, vector["consumed"]
    assert list(consumed.samples.values()) == expected["samples"]
    assert consumed.tokens is not None
    assert list(consumed.tokens.values()) == expected["tokens"]
    assert [consumed.dropped_samples, consumed.dropped_tokens] == expected["dropped"]
    assert [consumed.skipped_samples, consumed.skipped_tokens] == expected["skipped"]
    assert (consumed.steps, consumed.rows) == (expected["steps"], expected["rows"])
    assert [tick for tick, _ in loader.state_dict()["phases"]] == vector["ticks"]
