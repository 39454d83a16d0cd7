"""Runs with a plan: every step is what the reference computes, on any ranks, after any kill, with or without a plan in
the program that goes on."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mdsx
from mdsx.order import Grouping
from tests.conftest import Often
from tests.loader.reference import Accounts, Stage, planned_run

SIZES = {"web": 260, "code": 90, "math": 70}
LENGTHS = {
    0: np.arange(260) * 37 % 61,
    1: np.arange(90) * 29 % 50,
    2: np.arange(70) * 31 % 43 + 1,
}
LANES, BLOCK, E = 4, 64, 420


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three datasets. The values of sample n of component c are 1000 c + n."""
    root = tmp_path_factory.mktemp("plan")
    for number, (name, samples) in enumerate(SIZES.items()):
        with mdsx.Writer(root / name, {"tokens": "int32[*]"}, shard_size=2500, lengths=["tokens"]) as out:
            for sample, length in enumerate(LENGTHS[number].tolist()):
                out.write({"tokens": np.arange(length, dtype=np.int32) + (number * 1000 + sample) * 1000})
    return root


def mixture(root: Path) -> mdsx.Mixture:
    return mdsx.Mixture({name: str(root / name) for name in SIZES})


def counts_of(root: Path) -> list[list[int]]:
    return [list(json.loads((root / name / "index.json").read_text())["shards"]["samples"]) for name in SIZES]


def pack(capacity: int, window: int) -> mdsx.Pack:
    return mdsx.Pack(capacity, length="tokens", window=window)


WEIGHTS = [(0.8, 0.2, 0.0), (0.5, 0.25, 0.25), (0.0, 0.0, 1.0), (1.0, 0.0, 0.0)]


class Case:
    """A random plan of `seed`, and what the reference makes of it."""

    def __init__(self, root: Path, seed: int) -> None:
        chance = random.Random(seed)
        self.root, self.seed, self.chance = root, seed, chance
        self.drop_last, self.epochs = chance.random() < 0.5, chance.choice([1, 2])
        starts = [0, *sorted(chance.sample(range(400, 16_000, 37), chance.randrange(4)))]
        phases, stages = dict[int, mdsx.Phase](), list[Stage]()
        for at in starts:
            new = not stages
            weights = chance.choice(WEIGHTS) if new or chance.random() < 0.6 else None
            groups = chance.choice([(64, 4), (64, 8), (128, 8)]) if new or chance.random() < 0.5 else None
            size = chance.choice([4, 6, 9]) if new or chance.random() < 0.6 else None
            phases[mdsx.Tokens(at)] = mdsx.Phase(
                dict(zip(SIZES, weights, strict=True)) if weights else None,
                batching=pack(*groups) if groups else None,
                global_batch_size=size,
            )
            before = stages[-1] if stages else None
            stages.append(
                Stage(
                    at,
                    weights or (before.weights if before else ()),
                    Grouping("pack", *groups) if groups else before.rule if before else Grouping("pack", 1, 1),
                    size or (before.size if before else 0),
                )
            )
        start = chance.randrange(12)
        self.skip = [(start, start + chance.randrange(1, 5))] if chance.random() < 0.4 else []
        self.plan, self.stages = mdsx.Plan(phases, skip=self.skip), stages

    def expected(self) -> tuple[list[Any], Accounts]:
        steps, accounts = planned_run(
            LENGTHS,
            counts_of(self.root),
            self.stages,
            seed=self.seed,
            lanes=LANES,
            block=BLOCK,
            epoch_samples=E,
            epochs=self.epochs,
            drop_last=self.drop_last,
            skip=self.skip,
        )
        return [[values(row) for row in step] for step in steps], accounts

    def loader(self, rank: int, world_size: int, *, plan: mdsx.Plan | None = None, **more: Any) -> mdsx.Loader:
        return mdsx.Loader(
            mixture(self.root),
            plan=plan or self.plan,
            seed=self.seed,
            shuffle=mdsx.Shuffle(lanes=LANES, shuffle_block=BLOCK),
            epoch_samples=E,
            rank=rank,
            world_size=world_size,
            drop_last=self.drop_last,
            **more,
        )


def values(row: Any) -> tuple[int, ...]:
    """Return the values of a row, sample after sample."""
    found: list[int] = []
    for component, sample, first, size in row:
        found += range((component * 1000 + sample) * 1000 + first, (component * 1000 + sample) * 1000 + first + size)
    return tuple(found)


def rows(batch: Mapping[str, Any]) -> list[tuple[int, ...]]:
    tokens, segments = batch["tokens"], batch["segment_ids"]
    return [tuple(row[own > 0].tolist()) for row, own in zip(tokens, segments, strict=True)]


def steps_of(loaders: list[mdsx.Loader], epochs: int) -> Iterator[list[tuple[int, ...]]]:
    """Yield the rows of each step over all ranks, sorted, up to the end of so many epochs."""
    while loaders[0].epoch < epochs:
        for batches in zip(*loaders, strict=True):
            yield sorted(row for batch in batches for row in rows(batch))


def check_accounts(found: mdsx.Consumed, expected: Accounts) -> None:
    assert list(found.samples.values()) == expected.samples
    assert found.tokens is not None
    assert list(found.tokens.values()) == expected.tokens
    assert (found.steps, found.rows) == (expected.steps, expected.rows)
    assert [found.dropped_samples, found.dropped_tokens] == expected.dropped
    assert [found.skipped_samples, found.skipped_tokens] == expected.skipped
    assert found.complete


@pytest.mark.timeout(3600)  # with --long
def test_each_step_is_that_of_the_plan_on_any_ranks_after_any_kill(root: Path, often: Often) -> None:
    for seed in range(often(12, 400)):
        case = Case(root, seed)
        expected, accounts = case.expected()
        expected = [sorted(step) for step in expected]
        found, state = list[Any](), None
        while True:
            world = case.chance.choice([1, 2, 3, 5])
            loaders = [case.loader(rank, world) for rank in range(world)]
            for loader in loaders:
                if state is not None:
                    loader.load_state_dict(json.loads(json.dumps(state)))
            some = list(itertools.islice(steps_of(loaders, case.epochs), case.chance.randrange(1, 30)))
            found += some
            states = [loader.state_dict() for loader in loaders]
            assert all(each == states[0] for each in states), seed
            state = states[0]
            if state["epoch"] >= case.epochs:
                break
        assert found == expected, seed
        check_accounts(loaders[0].consumed, accounts)
