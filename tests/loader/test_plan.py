"""Runs with a plan: every step is what the reference computes, on any ranks, after any kill, with or without a plan in
the program that continues."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mdsx
from mdsx.order import MAX_PHASES
from tests.conftest import Often
from tests.order.reference_groups import Rule
from tests.order.reference_plans import Accounts, PlannedRun, Stage

SIZES = {"web": 260, "code": 90, "math": 70}
LENGTHS = [np.arange(260) * 37 % 61, np.arange(90) * 29 % 50, np.arange(70) * 31 % 43 + 1]
LANES, BLOCK, E = 4, 64, 420


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three datasets. The values of sample n of component c are 1000 c + n."""
    root = tmp_path_factory.mktemp("plan")
    for number, name in enumerate(SIZES):
        with mdsx.Writer(root / name, {"tokens": "int32[*]"}, shard_size=2500, lengths=["tokens"]) as out:
            for sample, length in enumerate(LENGTHS[number].tolist()):
                out.write({"tokens": np.arange(length, dtype=np.int32) + (number * 1000 + sample) * 1000})
    return root


def mixture(root: Path) -> mdsx.Mixture:
    return mdsx.Mixture({name: str(root / name) for name in SIZES})


def counts_of(root: Path) -> list[list[int]]:
    return [list(json.loads((root / name / "index.json").read_text())["shards"]["samples"]) for name in SIZES]


def pack(capacity: int, window: int, kind: Any = "pack") -> mdsx.Pack:
    return mdsx.Pack(capacity, length="tokens", window=window, kind=kind)


RULES = [Rule("pack", 64, 4), Rule("pack", 64, 8), Rule("pack", 128, 8), Rule("concat", 64, 8, None)]
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
            keeps = [bool(stages) and chance.random() < 0.4 for _ in range(3)]
            new = Stage(at, chance.choice(WEIGHTS), chance.choice(RULES), chance.choice([4, 6, 9]))
            before = stages[-1] if stages else new
            weights, rule, size = new.weights, new.rule, new.size
            phases[mdsx.Tokens(at)] = mdsx.Phase(
                None if keeps[0] else dict(zip(SIZES, weights, strict=True)),
                batching=None if keeps[1] else pack(rule.capacity, rule.window, rule.kind),
                global_batch_size=None if keeps[2] else size,
            )
            stages.append(
                Stage(
                    at,
                    before.weights if keeps[0] else weights,
                    before.rule if keeps[1] else rule,
                    before.size if keeps[2] else size,
                )
            )
        start = chance.randrange(12)
        self.skip = [(start, start + chance.randrange(1, 5))] if chance.random() < 0.4 else []
        self.plan, self.stages = mdsx.Plan(phases, skip=self.skip), stages

    def expected(self) -> tuple[list[Any], Accounts]:
        run = PlannedRun(
            [lengths.tolist() for lengths in LENGTHS],
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
        return [[values(row) for row in step] for step in run.steps], run.accounts

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
    """Yield the rows of each step over all ranks, sorted, up to the end of `epochs`."""
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
    for seed in range(often(8, 700)):
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


def two_phases(**more: Any) -> mdsx.Plan:
    """Longer rows, other proportions and a larger step from 6,000 tokens on."""
    return mdsx.Plan(
        {
            0: mdsx.Phase({"web": 0.8, "code": 0.2}, batching=pack(64, 4), global_batch_size=6),
            mdsx.Tokens("6K"): mdsx.Phase({"math": 1}, batching=pack(128, 8), global_batch_size=9),
        },
        **more,
    )


def whole(loader: mdsx.Loader) -> list[Any]:
    return [rows(batch) for batch in loader]


@pytest.fixture
def make(root: Path) -> Any:
    def make(**given: Any) -> mdsx.Loader:
        shuffle = mdsx.Shuffle(lanes=LANES, shuffle_block=BLOCK)
        given = {"rank": 0, "world_size": 1, "epoch_samples": E, "shuffle": shuffle, **given}
        return mdsx.Loader(given.pop("data", None) or mixture(root), **given)

    return make


@pytest.mark.parametrize("how", [{"num_threads": 3}, {"num_workers": 2}], ids=["threads", "workers"])
def test_threads_and_workers_hand_out_the_same_steps(make: Any, how: dict[str, int]) -> None:
    plan = two_phases(skip=[(3, 5), (20, 22)])
    expected = make(plan=plan)
    found = make(plan=plan, **how)
    for _ in range(2):
        assert whole(found) == whole(expected)
        assert found.consumed == expected.consumed
        assert found.state_dict() == expected.state_dict()


def test_epochs_with_a_fixed_number_of_steps_change_in_mid_epoch(make: Any) -> None:
    plan = two_phases()
    one, many = make(plan=plan, epoch_steps=200), make(plan=plan, epoch_steps=7)
    expected = list(itertools.islice(one, 60))
    found = list[Any]()
    while len(found) < 60:
        found += list(many)
        assert many.epoch == len(found) // 7
        other = make(plan=plan, epoch_steps=7)
        other.load_state_dict(many.state_dict())
        many = other
    assert [rows(batch) for batch in found[:60]] == [rows(batch) for batch in expected]


def test_a_change_begins_at_the_end_of_the_window_and_outlives_a_restart(make: Any) -> None:
    """As if it had been planned for there."""
    start = two_phases().phases[0]
    loader = make(plan=mdsx.Plan({0: start}))
    batches = iter(loader)
    found = [rows(next(batches)) for _ in range(5)]
    planned = loader.state_dict()["groups"]["planned"]
    assert loader.state_dict()["groups"]["taken"]
    phase = mdsx.Phase({"math": 1}, batching=pack(128, 8), global_batch_size=9)
    loader.change(phase)
    state = loader.state_dict()
    expected = whole(make(plan=mdsx.Plan({0: start, mdsx.Tokens(planned + 1): phase})))
    assert found + [rows(batch) for batch in batches] == expected
    again = make(plan=mdsx.Plan({0: start}))  # the program still has the old arguments
    again.load_state_dict(json.loads(json.dumps(state)))
    assert found + whole(again) == expected
    assert again.state_dict() == loader.state_dict()
    renewed = make(plan=mdsx.Plan({0: phase}))  # now it has the new ones
    renewed.load_state_dict(again.state_dict())
    assert whole(renewed) == whole(again)


def test_after_a_change_of_groups_the_length_is_what_the_plan_counts(make: Any) -> None:
    """Both count from the first window of the new groups on."""
    loader = make(batching=pack(64, 4), batch_size=2, drop_last=False)
    batches = iter(loader)
    for _ in range(12):
        next(batches)
    loader.change(mdsx.Phase(batching=pack(128, 8)))
    first = next(batch for batch in batches if batch["tokens"].shape == (2, 128))
    again = make(batching=pack(128, 8), batch_size=2, drop_last=False)
    again.load_state_dict(loader.state_dict())
    plan = loader.plan()
    assert again.plan() == plan
    assert len(loader) == len(again) == plan.steps
    assert loader.remaining == again.remaining == plan.steps - 1
    rest = list(batches)
    assert len(rest) == sum(1 for _ in again) == plan.steps - 1
    assert sum(batch["global_samples"] for batch in [first, *rest]) == plan.samples


def test_a_change_keeps_prepared_batches_that_it_does_not_affect(make: Any) -> None:
    """Its threshold lies ahead: no sample before it is made again."""
    made = Counter[int]()

    def transform(sample: Any) -> Any:
        made[int(sample["tokens"][0]) if len(sample["tokens"]) else -1] += 1
        return sample

    loader = make(plan=mdsx.Plan({0: two_phases().phases[0]}), transform=transform, epoch_samples=200)  # each once
    batches = iter(loader)
    found = [next(batches) for _ in range(3)]
    loader.change(mdsx.Phase(global_batch_size=3), at=mdsx.Tokens("3K"))
    found += batches
    before = [batch for batch in found if len(batch["tokens"]) == 6]
    firsts = [int(tokens[0]) for batch in before[:-1] for row in rows(batch) for tokens in [row] if row]
    assert len(before) > 8
    assert len(before) < len(found)
    assert {made[first] for first in firsts} == {1}


def test_samples_change_with_the_next_step(make: Any) -> None:
    plan = mdsx.Plan(
        {0: mdsx.Phase({"web": 1}, global_batch_size=10), 95: mdsx.Phase({"code": 1}, global_batch_size=4)}
    )
    loader, found = make(plan=plan), list[Any]()
    for batch in loader:
        found.append([int(tokens[0]) // 1_000_000 for tokens in batch["tokens"] if len(tokens)])
    assert [len(each) for each in found[:12]] != []
    sizes = [len(batch["tokens"]) for batch in make(plan=plan)]
    assert sizes[:10] == [10] * 10
    assert set(sizes[10:]) == {4}
    assert {component for each in found[:10] for component in each} == {0}
    assert {component for each in found[10:] for component in each} == {1}
    consumed = loader.consumed
    assert consumed.samples == {"web": 100, "code": 320, "math": 0}
    assert consumed.tokens is None


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_micro_batches_are_equally_many_on_every_rank(make: Any, world_size: int) -> None:
    """Those of a step are its rows, in order; a state in mid-step names the step's beginning."""
    given = {"batching": pack(64, 8), "global_batch_size": 10}
    steps = [sorted(step) for step in whole(make(**given))]
    ranks = [make(**given, micro_batch=2, rank=rank, world_size=world_size) for rank in range(world_size)]
    parts = math.ceil(math.ceil(10 / world_size) / 2)
    batches = [list(each) for each in ranks]
    assert {len(each) for each in batches} == {len(steps) * parts}
    for number, step in enumerate(steps):
        own = [each[number * parts : (number + 1) * parts] for each in batches]
        assert all(batch["tokens"].shape == (2, 64) for each in own for batch in each)
        assert sorted(row for each in own for batch in each for row in rows(batch) if row) == [r for r in step if r]
    loader = make(**given, micro_batch=2, rank=0, world_size=world_size)
    it = iter(loader)
    for _ in range(parts):
        next(it)
    state = loader.state_dict()
    for _ in range(parts - 1):
        next(it)
        assert loader.state_dict() == state
    if parts > 1:
        assert loader.consumed.steps == 1
    again = make(**given, micro_batch=5, rank=0, world_size=world_size)
    again.load_state_dict(state)
    assert again.consumed.steps == 1


def test_micro_batches_of_samples(make: Any) -> None:
    given = {"global_batch_size": 10, "drop_last": False}
    expected = [[tokens.tolist() for tokens in batch["tokens"]] for batch in make(**given)]
    loader = make(**given, micro_batch=3)
    found = [[tokens.tolist() for tokens in batch["tokens"]] for batch in loader]
    assert [len(each) for each in found[:4]] == [3, 3, 3, 1]
    assert [tokens for each in found for tokens in each] == [tokens for each in expected for tokens in each]
    assert loader.consumed.steps == len(expected)
    assert len(found) == len(make(**given, micro_batch=3))


def test_skipped_steps_are_accounted_apart(make: Any) -> None:
    everything = make(plan=two_phases())
    steps = whole(everything)
    loader = make(plan=two_phases(skip=[(0, 2), (5, 6), (len(steps) - 1, len(steps) + 3)]))
    found = whole(loader)
    assert found == [*steps[2:5], *steps[6 : len(steps) - 1]]
    every, rest = everything.consumed, loader.consumed
    assert rest.steps == every.steps
    assert sum(rest.samples.values()) + rest.skipped_samples == sum(every.samples.values())
    assert rest.tokens is not None
    assert every.tokens is not None
    assert sum(rest.tokens.values()) + (rest.skipped_tokens or 0) == sum(every.tokens.values())


@pytest.mark.parametrize("batching", [None, pack(64, 4)], ids=["samples", "packed"])
@pytest.mark.parametrize("threads", [1, 3])
def test_no_sample_is_read_for_a_skipped_step(make: Any, batching: Any, threads: int) -> None:
    made = list[int]()

    def transform(sample: Any) -> Any:
        made.append(sample["info"]["position"])
        return {"tokens": sample["tokens"], "at": sample["info"]["position"]}

    first = mdsx.Phase({"web": 0.8, "code": 0.2}, batching=batching, global_batch_size=10)
    plan = mdsx.Plan({0: first}, skip=[(0, 1), (4, 7), (41, 50)])
    loader = make(plan=plan, transform=transform, info_column="info", num_threads=threads)
    found = [int(at) for batch in loader for row in batch["at"] for at in np.ravel(row)]
    assert loader.consumed.skipped_samples > 0
    assert sorted(made) == sorted(found)


def refusing(sample: Any) -> Any:
    """Raise for the samples of the steps 2 and 3, of 10 samples each."""
    if 20 <= sample["info"]["position"] < 40:
        raise ValueError("a spike")
    return {"at": sample["info"]["position"]}


def refusing_together(samples: list[Any]) -> Any:
    return {"at": [refusing(sample)["at"] for sample in samples]}


@pytest.mark.parametrize("how", [{"num_threads": 3}, {"num_workers": 2}], ids=["threads", "workers"])
@pytest.mark.parametrize(("name", "function"), [("transform", refusing), ("collate_fn", refusing_together)])
def test_a_step_that_fails_can_be_skipped(make: Any, how: dict[str, int], name: str, function: Any) -> None:
    plan = mdsx.Plan({0: mdsx.Phase({"web": 1}, global_batch_size=10)}, skip=[(2, 4)])
    loader = make(plan=plan, info_column="info", **{name: function}, **how)
    assert sorted(int(at) for batch in loader for at in batch["at"]) == [*range(20), *range(40, E)]


def test_a_restart_from_an_older_state_skips_the_steps_too(make: Any) -> None:
    loader = make(plan=two_phases())
    batches = iter(loader)
    steps = [rows(next(batches)) for _ in range(2)]
    state = loader.state_dict()
    steps += [rows(batch) for batch in batches]
    spike = make(plan=two_phases(skip=[(4, 7)]))
    spike.load_state_dict(state)
    assert whole(spike) == [*steps[2:4], *steps[7:]]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"batch_size": 4}, "batch_size"),
        ({"global_batch_size": 4}, "global_batch_size is given twice"),
        ({"batching": pack(64, 4)}, "batching is given twice"),
    ],
)
def test_what_the_plan_has_is_not_given_again(make: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises(mdsx.UsageError, match=message):
        make(plan=two_phases(), **given)


def test_a_plan_has_no_more_phases_than_a_state_can_record(make: Any) -> None:
    phases = {at: mdsx.Phase({"web": 1}, global_batch_size=10) for at in range(MAX_PHASES)}
    make(plan=mdsx.Plan(phases))
    with pytest.raises(mdsx.UsageError, match=f"too many phases.*at most {MAX_PHASES}"):
        make(plan=mdsx.Plan({**phases, MAX_PHASES: mdsx.Phase()}))


def test_thresholds_count_what_the_run_counts(make: Any) -> None:
    with pytest.raises(mdsx.UsageError, match=r"count tokens.*write mdsx.Tokens\(500\)"):
        make(plan=mdsx.Plan({0: two_phases().phases[0], 500: mdsx.Phase(global_batch_size=2)}))
    with pytest.raises(mdsx.UsageError, match="count samples"):
        make(plan=mdsx.Plan({0: mdsx.Phase({"web": 1}, global_batch_size=2), mdsx.Tokens(9): mdsx.Phase()}))


def test_a_state_of_another_plan_names_what_differs(make: Any) -> None:
    loader = make(plan=two_phases())
    for _ in itertools.islice(loader, 50):
        pass
    state = loader.state_dict()
    first, second = two_phases().phases.values()
    other = mdsx.Plan(
        {0: mdsx.Phase({"web": 1}, batching=first.batching, global_batch_size=6), mdsx.Tokens("6K"): second}
    )
    with pytest.raises(mdsx.StateError, match="the phase from 0 on, proportions"):
        make(plan=other).load_state_dict(state)
    with pytest.raises(mdsx.StateError, match="lacks a phase of the plan"):
        make(plan=mdsx.Plan({0: first, mdsx.Tokens("5K"): second})).load_state_dict(state)
    later = mdsx.Plan({**two_phases().phases, mdsx.Tokens("1B"): first})
    make(plan=later).load_state_dict(state)  # the future may differ


def test_a_run_begun_without_a_plan_goes_on_with_one(make: Any) -> None:
    """As long as only its first phase has begun."""
    first = mdsx.Phase(batching=pack(64, 4), global_batch_size=6)
    loader = make(batching=first.batching, global_batch_size=6)
    before = [rows(batch) for batch in itertools.islice(loader, 4)]
    plan = mdsx.Plan({0: first, mdsx.Tokens("6K"): mdsx.Phase(global_batch_size=9)})
    again = make(plan=plan)
    again.load_state_dict(loader.state_dict())
    assert before + whole(again) == whole(make(plan=plan))


def test_states_saved_without_accounts_count_from_there(make: Any) -> None:
    loader = make(batching=pack(64, 4), global_batch_size=6)
    for _ in itertools.islice(loader, 4):
        pass
    state = loader.state_dict()
    old = {name: value for name, value in state.items() if name != "consumed"}
    old["groups"] = {name: value for name, value in state["groups"].items() if name != "planned"}
    again = make(batching=pack(64, 4), global_batch_size=6)
    again.load_state_dict(old)
    assert not again.consumed.complete
    assert again.consumed.steps == 0
    loader.resume()
    assert whole(again) == whole(loader)
    planned = make(plan=two_phases())
    with pytest.raises(mdsx.StateError, match=r"loader\.change"):
        planned.load_state_dict(old)
