"""`loader.plan()` of a run with a plan, and which samples its steps have: before anything is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mdsx
from mdsx.loader import PlannedRun

SIZES = {"web": 3000, "code": 1000}


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Samples of 10 to 49 tokens in "web", and of 100 in "code"."""
    root = tmp_path_factory.mktemp("planned")
    for name, samples in SIZES.items():
        with mdsx.Writer(root / name, {"tokens": "uint16[*]"}, shard_size="100kB", lengths=["tokens"]) as out:
            for number in range(samples):
                length = 100 if name == "code" else 10 + number * 7 % 40
                out.write({"tokens": np.full(length, number, np.uint16)})
    return {name: str(root / name) for name in SIZES}


@pytest.fixture(scope="module")
def mixture(urls: dict[str, str]) -> mdsx.Mixture:
    return mdsx.Mixture(urls)


LANES = mdsx.Shuffle(lanes=8)  # so that the run has many windows


def plan_of(**more: Any) -> mdsx.Plan:
    pack = mdsx.Pack(256, length="tokens", kind="concat", window=128)
    first = mdsx.Phase({"web": 0.75, "code": 0.25}, batching=pack, global_batch_size=8)
    second = mdsx.Phase({"web": 1}, global_batch_size=16)
    return mdsx.Plan({0: first, mdsx.Tokens(60_000): second}, proportions_of="tokens", **more)


def loader_of(mixture: mdsx.Mixture, world_size: int = 1, **more: Any) -> mdsx.Loader:
    return mdsx.Loader(mixture, plan=plan_of(**more), seed=3, shuffle=LANES, rank=0, world_size=world_size)


def test_the_plan_of_a_run_is_close_to_the_run(mixture: mdsx.Mixture) -> None:
    """Within the windows at its ends."""
    loader = loader_of(mixture)
    planned: Any = loader.plan()
    for _ in loader:
        pass
    consumed = loader.consumed
    assert planned.steps == pytest.approx(consumed.steps, rel=0.1)
    assert planned.samples == pytest.approx(sum(consumed.samples.values()) + consumed.dropped_samples, rel=0.01)
    assert consumed.tokens is not None
    web, code = consumed.tokens.values()
    assert planned.values == pytest.approx(web + code, rel=0.05)
    first, second = planned.phases
    assert (first.start, first.stop, first.global_batch_size, second.global_batch_size) == (0, 60_000, 8, 16)
    assert first.sources["code"].share == pytest.approx(0.25)
    assert first.sources["code"].tokens == pytest.approx(code, rel=0.2)
    assert first.sources["code"].epochs == pytest.approx(15_000 / 100_000)
    assert second.sources["web"].epochs > first.sources["web"].epochs
    assert "phase 1: 60,000 to" in str(planned)


def test_what_max_epochs_forbids_is_named_and_changes_nothing(mixture: mdsx.Mixture) -> None:
    loader, free = loader_of(mixture, max_epochs={"web": 2, "code": 0.2}), loader_of(mixture)
    planned = loader.plan(until=mdsx.Tokens("1M"))
    assert isinstance(planned, PlannedRun)
    epochs = planned.phases[1].sources["web"].epochs
    assert planned.exceeded == (f"web is read {epochs:.3f} times up to phase 1, at most 2 allowed",)
    assert next(iter(loader))["tokens"].tolist() == next(iter(free))["tokens"].tolist()
    with pytest.raises(mdsx.UsageError, match="max_epochs names no component"):
        loader_of(mixture, max_epochs={"wiki": 2}).plan()


def test_a_run_ends_after_its_last_phase_begins(mixture: mdsx.Mixture) -> None:
    with pytest.raises(mdsx.UsageError, match="ends before its last phase"):
        loader_of(mixture).plan(until=mdsx.Tokens(50_000))


def test_until_is_refused_for_an_epoch(mixture: mdsx.Mixture) -> None:
    without = mdsx.Loader(mixture, 8, batching=mdsx.Pack(256, length="tokens"), rank=0, world_size=1)
    with pytest.raises(mdsx.UsageError, match="until= is for a whole run"):
        without.plan(until=mdsx.Tokens("1M"))
    with pytest.raises(mdsx.UsageError, match="until= is for a whole run"):
        loader_of(mixture).plan(0, until=mdsx.Tokens("1M"))


@pytest.mark.parametrize("second", [{"web": 1.0}, {"web": 1.0, "code": 1.0}])
def test_an_epoch_is_counted_unless_a_phase_begins_in_it(urls: dict[str, str], second: dict[str, float]) -> None:
    """Also a phase that changes only the proportions changes how many steps the samples of an epoch fill."""
    pack = mdsx.Pack(256, length="tokens", window=128)
    mixture = mdsx.Mixture({"web": (urls["web"], 0.75), "code": (urls["code"], 0.25)})

    def changed(at: int) -> mdsx.Loader:
        loader = mdsx.Loader(mixture, 8, batching=pack, seed=3, shuffle=LANES, rank=0, world_size=1)
        loader.plan()
        loader.change(mdsx.Phase(second), mdsx.Tokens(at))
        return loader

    early, late = changed(60_000), changed(1_000_000)
    with pytest.raises(mdsx.UsageError, match=r"what epoch 0 has is unknown: a phase begins at 60,000; .*epoch_steps="):
        early.plan()
    with pytest.raises(mdsx.UsageError, match="what epoch 9 has is unknown: a phase begins at 1,000,000"):
        late.plan(9)
    for loader in (early, late):
        with pytest.raises(TypeError, match="unknown"):
            len(loader)
    second_epoch = late.plan(1).steps
    assert late.plan().steps == len(late) == len(list(late))
    assert second_epoch == late.plan().steps == len(late)
    for _ in early:
        pass
    assert early.plan().steps == len(early) == len(list(early))


def test_a_trace_names_the_samples_of_a_step(mixture: mdsx.Mixture) -> None:
    world = 2
    traced = list(loader_of(mixture).trace(5, world_size=world))
    for rank in range(world):
        options: Any = {"seed": 3, "shuffle": LANES, "rank": rank, "world_size": world, "info_column": "info"}
        batches = mdsx.Loader(mixture, plan=plan_of(), **options)
        batch = [next(it) for it in [iter(batches)] for _ in range(6)][-1]
        names = list(SIZES)
        found = [(names[info["dataset"]], info["sample"]) for row in batch["info"] for info in row]
        assert found == [(item.component, item.sample) for item in traced if item.rank == rank]
    assert {item.step for item in traced} == {5}
    assert sum(item.values or 0 for item in traced) == 8 * 256


def test_a_trace_finds_the_steps_of_a_sample(mixture: mdsx.Mixture) -> None:
    loader = loader_of(mixture)
    item = next(iter(loader.trace(9)))
    assert item in list(loader.trace_samples([(item.component, item.sample)], 20))
    batches = iter(loader)
    for _ in range(10):
        next(batches)
    with pytest.raises(mdsx.UsageError, match="the run is past that step"):
        next(loader.trace(9))


@pytest.mark.parametrize("suffix", [".json", ".toml"])
def test_a_plan_from_a_file_is_the_plan(mixture: mdsx.Mixture, tmp_path: Path, suffix: str) -> None:
    texts = {
        ".json": '{"proportions_of": "tokens", "skip": [[2, 3]], "phases": {"0": {"proportions": {"web": 0.75, "code": '
        '0.25}, "global_batch_size": 8, "batching": {"kind": "concat", "capacity": 256, "length": "tokens", "window": '
        '128}}, "60K": {"proportions": {"web": 1}, "global_batch_size": 16}}}',
        ".toml": 'proportions_of = "tokens"\nskip = [[2, 3]]\n[phases.0]\nproportions = {web = 0.75, code = 0.25}\n'
        'global_batch_size = 8\nbatching = {kind = "concat", capacity = 256, length = "tokens", window = 128}\n'
        "[phases.60K]\nproportions = {web = 1}\nglobal_batch_size = 16\n",
    }
    file = tmp_path / f"plan{suffix}"
    file.write_text(texts[suffix], encoding="utf-8")
    found = mdsx.Loader(mixture, plan=mdsx.Plan.from_json(file), seed=3, shuffle=LANES, rank=0, world_size=1)
    expected = loader_of(mixture, skip=[(2, 3)])
    assert [batch["tokens"].tolist() for batch in found] == [batch["tokens"].tolist() for batch in expected]
    assert found.state_dict() == expected.state_dict()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("{}", "the plan lacks phases"),
        ('{"phases": {"0": {"batch": 3}}}', "unknown field.*'batch'"),
        ('{"phases": {"0": {"batching": {"kind": "best"}}}}', "the batching lacks a kind"),
        ('{"phases": {"0": {"batching": {"kind": "pack"}}}}', "incomplete"),
        ('{"phases": {"x": {}}}', "not a number of tokens"),
        ('{"phases": {"1K": {}}}', "a phase at 0"),
        ('{"phases": {"0": {}, "1000": {}, "1K": {}}}', "two phases begin at the same threshold.*'1000', '1K'"),
        ('{"phases": {"0": {}, "00": {}}}', "two phases begin at the same threshold.*'0', '00'"),
        pytest.param(f'{{"phases": {{"0": {{}}, "{"1" * 5000}": {{}}}}}}', "is too large", id="5,000 digits"),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "plan.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(mdsx.UsageError, match=message):
        mdsx.Plan.from_json(file)


@pytest.mark.parametrize(
    ("text", "amount"), [("12T", 12 * 10**12), ("1.5B", 1_500_000_000), ("2 M", 2 * 10**6), ("7", 7), ("3G", 3 * 10**9)]
)
def test_tokens_have_units(text: str, amount: int) -> None:
    assert mdsx.Tokens(text) == amount


@pytest.mark.parametrize("wrong", ["1.5", "x", "-1", -1, True, 1.5, "1e9", "1P"])
def test_other_numbers_of_tokens_are_refused(wrong: Any) -> None:
    with pytest.raises(mdsx.UsageError, match="not a number of tokens"):
        mdsx.Tokens(wrong)
