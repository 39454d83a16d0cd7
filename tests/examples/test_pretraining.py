"""The pretraining examples: killed in mid-phase and resumed on other ranks, each step has the documents of the plan."""

from __future__ import annotations

import importlib
import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.examples.runs import Followed, Programs, Start, killed

RAMP_UP, LONGER, ANNEALING = 40, 110, 220  # a step in the middle of each phase


def check(found: Followed) -> None:
    """Check that each start but the last was killed, and that each step has what the plan says, in this order."""
    *first, last = found.statuses
    assert all(map(killed, first))
    assert set(last) == {0}
    assert list(found.steps) == list(range(1, len(found.steps) + 1))
    assert [sorted(numbers) for numbers, _ in found.steps.values()] == found.expected
    assert all(len(losses) == 1 for _, losses in found.steps.values())  # each rank has the loss of all


def read_on_changing_ranks(url: str, kind: str) -> tuple[list[list[int]], list[list[int]], int]:
    """Return the ids of 100 steps, with another number of ranks after each 20 of them, and those of the plan."""
    pretraining: Any = importlib.import_module("pretraining")
    torch: Any = importlib.import_module("mdsx.torch")
    plan, found, state = pretraining.plan(kind), list[list[int]](), None
    for ranks in (2, 3, 1, 4, 3):
        loaders = []
        for rank in range(ranks):
            data = pretraining.dataset(url, rank=rank, world_size=ranks)
            loaders.append(torch.StreamingDataLoader(data, plan=plan, epoch_steps=100))
            if state is not None:
                loaders[-1].load_state_dict(json.loads(json.dumps(state)))
        runs = [itertools.islice(pretraining.steps(loader), 20) for loader in loaders]
        for step in zip(*runs, strict=True):
            assert len({len(parts) for parts in step}) == 1  # as many micro-batches on every rank
            found.append(sorted(number for parts in step for number in pretraining.ids(parts)))
        states = [loader.state_dict() for loader in loaders]
        assert all(each == states[0] for each in states)
        state = states[0]
    return found, pretraining.expected(url, plan, len(found)), loaders[0].consumed.steps


@pytest.mark.parametrize("kind", ["concat", "pack"])
def test_steps_have_the_documents_of_the_plan_on_any_ranks(programs: Programs, corpus: str, kind: str) -> None:
    found, expected, steps = programs.call(read_on_changing_ranks, corpus, kind)
    assert found == expected
    assert steps == len(found) == 100


def masks() -> tuple[float, float]:
    """Return how much the two kinds of attention differ, and how much a token changes another document's."""
    torch: Any = importlib.import_module("torch")
    pretraining: Any = importlib.import_module("pretraining")
    torch.manual_seed(0)
    segments = torch.tensor([[1] * 7 + [2] * 20 + [3] * 5, [1] * 32])
    query, key, value = (torch.randn(2, 2, 32, 16) for _ in range(3))
    other = value.clone()
    other[0, :, :7] += 1
    with torch.no_grad():
        masked = pretraining.sdpa(query, key, value, segments)
        differ = (masked - pretraining.flex(query, key, value, segments)).abs().max()
        leaks = (masked - pretraining.sdpa(query, key, other, segments))[0, :, 7:].abs().max()
    return differ.item(), leaks.item()


def test_both_kinds_of_attention_keep_documents_apart(programs: Programs) -> None:
    differ, leaks = programs.call(masks)
    assert differ < 1e-5
    assert leaks == 0


def flat_and_rows() -> tuple[float, list[int]]:
    """Return how much the model differs between rows and the same tokens in one flat batch."""
    torch: Any = importlib.import_module("torch")
    pretraining: Any = importlib.import_module("pretraining")
    torch.manual_seed(0)
    model = pretraining.GPT()
    tokens = torch.randint(pretraining.TOKENS, (2, 64))
    positions = torch.cat([torch.arange(30), torch.arange(34), torch.arange(64)]).view(2, 64)
    with torch.no_grad():
        rows, flat = model(tokens, positions), model(tokens.flatten(), positions.flatten())
    return (rows.flatten(0, 1) - flat).abs().max().item(), list(flat.shape)


def test_the_model_sees_the_same_in_rows_and_in_a_flat_batch(programs: Programs) -> None:
    differ, shape = programs.call(flat_and_rows)
    assert differ < 1e-5
    assert shape == [128, 257]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "step"), [("concat", ANNEALING), ("pack", LONGER)])
def test_losses_are_the_same_on_as_many_ranks(
    programs: Programs, corpus: str, tmp_path: Path, kind: str, step: int
) -> None:
    found = programs.compare("pretrain_gpt.py", corpus, tmp_path, Start(2, killed_in=step), 3, kind)
    finished, first, *resumed = found.statuses
    assert killed(first)
    assert {status for statuses in (finished, *resumed) for status in statuses} == {0}
    assert all(len(losses) == 1 for _, losses in found.whole.values())  # each rank has the loss of all
    assert found.same == found.whole  # float.hex(): to the last bit

    assert found.other.keys() == found.whole.keys()
    for (numbers, (loss,)), (expected, (near,)) in zip(found.other.values(), found.whole.values(), strict=True):
        assert sorted(numbers) == sorted(expected)
        assert float.fromhex(loss) == pytest.approx(float.fromhex(near), rel=1e-2)
    losses = [float.fromhex(loss) for _, (loss,) in found.whole.values()]
    assert sum(losses[-5:]) < 0.2 * sum(losses[:5])  # it learns


@pytest.mark.slow
def test_a_run_killed_in_each_phase_follows_the_plan(programs: Programs, corpus: str, tmp_path: Path) -> None:
    starts = [Start(2, RAMP_UP), Start(3, LONGER), Start(1, ANNEALING), Start(2)]
    found = programs.follow("pretrain_gpt.py", corpus, tmp_path / "run", starts, {})
    check(found)
    assert "phase 3: 56,000 to 160,000 tokens" in found.printed


@pytest.mark.slow
def test_a_megatron_style_iterator_resumes_on_other_ranks(programs: Programs, corpus: str, tmp_path: Path) -> None:
    starts = [Start(2, RAMP_UP), Start(3, ANNEALING), Start(2)]
    found = programs.follow("megatron_iterator.py", corpus, tmp_path / "run", starts, {})
    check(found)
    assert f"{len(found.steps)} iterations" in found.printed


STEADY = {"steady": True}
TITAN = {**STEADY, "static": True}
FRAMEWORKS: list[tuple[str, list[Start], Mapping[str, Any]]] = [
    ("huggingface_trainer.py", [Start(2, 60), Start(3, 125), Start(1)], STEADY),
    ("trl_sft.py", [Start(2, 60), Start(3, 125), Start(1)], {**STEADY, "kind": "pack"}),
    ("torchtitan_loader.py", [Start(2, 60), Start(1, 130), Start(2)], {**TITAN, "layout": "rows"}),
    ("torchtitan_loader.py", [Start(2, 60), Start(1)], {**TITAN, "layout": "flat"}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("program", "starts", "plan"), FRAMEWORKS, ids=["transformers", "trl", "titan", "titan-flat"])
def test_frameworks_resume_a_plan_on_other_ranks(
    frameworks: None,
    programs: Programs,
    corpus: str,
    tmp_path: Path,
    program: str,
    starts: list[Start],
    plan: Mapping[str, Any],
) -> None:
    found = programs.follow(program, corpus, tmp_path / "run", starts, plan)
    check(found)
