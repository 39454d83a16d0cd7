"""Runs with a plan: other data in mid-run, micro-batches, and how many batches an epoch has."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mdsx

PACK = mdsx.Pack(64, length="tokens", kind="concat", window=4, component_ids=True)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sources")
    for number, name in enumerate(("web", "code", "books")):
        with mdsx.Writer(root / name, {"tokens": "int32[*]"}, lengths=["tokens"]) as out:
            for sample in range(200):
                out.write({"tokens": np.full(sample * (number + 2) % 47 + 1, number, np.int32)})
    return root


def mixture(root: Path, *names: str) -> mdsx.Mixture:
    return mdsx.Mixture({name: str(root / name) for name in names})


def plan(**later: Any) -> mdsx.Plan:
    phases = {0: mdsx.Phase({"web": 3, "code": 1}, batching=PACK, global_batch_size=6, micro_batch=2)}
    if later:
        phases[mdsx.Tokens("15K")] = mdsx.Phase(**later)
    return mdsx.Plan(phases, proportions_of="tokens")


def loader(data: mdsx.Mixture, plan: mdsx.Plan, **more: Any) -> mdsx.Loader:
    shuffle = mdsx.Shuffle(lanes=4)
    return mdsx.Loader(
        data, plan=plan, seed=7, shuffle=shuffle, **{"rank": 0, "world_size": 1, "epoch_steps": 20, **more}
    )


def read(found: mdsx.Loader, steps: int) -> list[bytes]:
    """Return what a loader reads in some steps."""
    values = list[bytes]()
    end = found.consumed.steps + steps
    while found.consumed.steps < end:
        for batch in found:
            values.append(batch["tokens"].tobytes())
            if found.consumed.steps >= end and found.step_complete:
                break
        found.resume()
    return values


def test_a_new_source_is_read_from_a_later_phase_on(root: Path) -> None:
    old, more = mixture(root, "web", "code"), mixture(root, "web", "code", "books")
    first, whole = loader(old, plan()), loader(old, plan())
    read(first, 11)
    state = json.loads(json.dumps(first.state_dict()))
    changed = mdsx.change(state, more)
    run = loader(more, plan(proportions={"web": 1, "books": 1}), rank=0, world_size=1)
    run.load_state_dict(changed)
    assert run.consumed.tokens == {**(first.consumed.tokens or {}), "books": 0}
    same = read(run, 12)
    assert same == read(whole, 23)[-len(same) :]  # nothing has changed yet
    read(run, 60)
    tokens = run.consumed.tokens
    assert tokens is not None
    assert tokens["books"] > 0
    assert tokens["code"] < tokens["web"]


def test_a_source_that_is_read_cannot_be_removed(root: Path) -> None:
    run = loader(mixture(root, "web", "code"), plan())
    read(run, 3)
    with pytest.raises(mdsx.UsageError, match=r"reads a component that the mixture lacks.*loader\.change"):
        mdsx.change(run.state_dict(), mixture(root, "web", "books"))


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_a_step_is_complete_with_its_last_micro_batch(root: Path, world_size: int) -> None:
    run = loader(mixture(root, "web", "code"), plan(), world_size=world_size)
    assert run.step_complete
    parts = -(-6 // (world_size * 2))
    found = [run.step_complete for _ in run]
    assert found == [number % parts == parts - 1 for number in range(20 * parts)]


def test_a_skipped_range_does_not_complete_a_step(root: Path) -> None:
    skipping = mdsx.Plan(plan().phases, proportions_of="tokens", skip=[(3, 5), (4, 5), (30, 40)])
    run = loader(mixture(root, "web", "code"), skipping)
    assert len(run) == 18 * 3
    found = [run.step_complete for _ in run]
    assert found == [number % 3 == 2 for number in range(18 * 3)]


def test_epochs_have_a_known_length_unless_steps_change(root: Path) -> None:
    data = mixture(root, "web", "code")
    run = loader(data, plan(proportions={"code": 1}))
    assert len(run) == len(list(run)) == 20 * 3
    with pytest.raises(TypeError, match="the plan changes the steps in it"):
        len(loader(data, plan(global_batch_size=12)))


def test_the_torch_loader_takes_a_plan_and_epoch_steps(root: Path) -> None:
    torch = importlib.import_module("mdsx.torch")
    data = torch.StreamingDataset(
        mixture(root, "web", "code"), seed=7, shuffle=mdsx.Shuffle(lanes=4), rank=0, world_size=1
    )
    run = torch.StreamingDataLoader(data, plan=plan(), epoch_steps=20)
    assert [batch["tokens"].numpy().tobytes() for batch in run] == read(
        loader(mixture(root, "web", "code"), plan()), 20
    )
