"""What would lose, repeat or miscount samples in the middle of a run is refused, or continues right."""

from __future__ import annotations

import warnings
from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import mdsx
from mdsx.loader import agreement

SIZES = {"web": 120, "code": 80}
PACK = mdsx.Pack(16, length="tokens", window=20)
FRAMED = mdsx.Pack(16, length="tokens", window=20, begin=1, end=2)


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("refused")
    for place, (name, size) in enumerate(SIZES.items()):
        with mdsx.Writer(root / name, {"id": "int64", "tokens": "int32[*]", "few": "int32[*]"}, shard_size=2000) as out:
            for number in range(size):
                tokens = np.full(number % 9 + 1, number, np.int32)
                out.write({"id": 1000 * place + number, "tokens": tokens, "few": tokens[:1]})
    return {name: str(root / name) for name in SIZES}


def loader_of(data: Any, batching: Any = None, size: int | None = 2, lanes: int = 2, **options: Any) -> mdsx.Loader:
    options |= {"columns": ["id", "tokens"], "seed": 3, "shuffle": mdsx.Shuffle(lanes), "drop_last": False}
    return mdsx.Loader(data, size, batching=batching, **options)


def mixed(urls: dict[str, str], **options: Any) -> mdsx.Mixture:
    return mdsx.Mixture({name: (url, 1) for name, url in urls.items()}, epoch_samples=200, **options)


def ids(loader: mdsx.Loader) -> list[int]:
    return [int(number) for batch in loader for number in np.ravel(batch["id"])]


def test_lanes_cannot_change_within_the_first_window(urls: dict[str, str]) -> None:
    """Its position is 0, as that of a run that has read nothing."""
    loader = loader_of(urls["web"], PACK)
    loader_of(urls["web"], PACK, lanes=4).load_state_dict(loader.state_dict())
    next(iter(loader))
    state = loader.state_dict()
    assert state["position"] == 0
    with pytest.raises(mdsx.StateError, match=r"^lanes: .*another order"):
        loader_of(urls["web"], PACK, lanes=4).load_state_dict(state)


@pytest.mark.parametrize(("before", "after"), [(FRAMED, PACK), (PACK, FRAMED)])
def test_added_tokens_cannot_change_within_a_window(urls: dict[str, str], before: mdsx.Pack, after: mdsx.Pack) -> None:
    loader = loader_of(mixed(urls), before)
    next(iter(loader))
    with pytest.raises(mdsx.StateError, match="in the middle of a window of groups with other parameters"):
        loader_of(mixed(urls), after).load_state_dict(loader.state_dict())


def test_proportions_cannot_change_within_a_step(urls: dict[str, str]) -> None:
    loader = loader_of(mixed(urls), size=None, global_batch_size=8, micro_batch=2)
    batches = iter(loader)
    next(batches)
    assert not loader.step_complete
    before = loader.state_dict()
    with pytest.raises(mdsx.UsageError, match="between two micro-batches of a step"):
        loader.reweight([3, 1])
    assert loader.state_dict() == before
    while not loader.step_complete:
        next(batches)
    loader.reweight([3, 1])


@pytest.mark.parametrize("batching", [mdsx.Pack(20, length="tokens", window=20), mdsx.MaxTokens(20, length="tokens")])
def test_a_change_that_no_program_could_resume_is_refused(urls: dict[str, str], batching: Any) -> None:
    loader = loader_of(mixed(urls), FRAMED)
    next(iter(loader))
    with pytest.raises(mdsx.UsageError, match="a program could not resume this change"):
        loader.change(mdsx.Phase(batching=batching))


def test_an_outer_exclusion_keeps_those_of_an_inner_mixture(urls: dict[str, str]) -> None:
    inner = mdsx.Mixture({"web": (urls["web"], 1)}, exclude={"web": [1]})
    outer = mdsx.Mixture({"x": (inner, 3), "code": (urls["code"], 2)}, exclude={"x/web": [2, 1]}, epoch_samples=200)
    assert {number for number in ids(loader_of(outer, size=10)) if number < 120} == {0, *range(3, 120)}


def test_shares_of_values_are_those_of_each_components_own_column(urls: dict[str, str]) -> None:
    """Both components are of one dataset, and give one name to two of its columns."""
    components = [
        mdsx.Component(urls["web"], proportion=1, columns={"tokens": stored, "id": "id"})
        for stored in ("tokens", "few")
    ]
    mixture = mdsx.Mixture(components, proportions_of="tokens", epoch_samples=200)
    many, few = sum(number % 9 + 1 for number in range(120)), 120
    (_, (one, other)), *_ = mixture.phases
    assert one / other == pytest.approx(few / many)


def test_steps_to_skip_are_those_of_the_run(urls: dict[str, str]) -> None:
    """After an epoch that was left, the plan would skip others."""
    plan = mdsx.Plan({0: mdsx.Phase(global_batch_size=2)}, skip=[(7, 8)])
    loader = loader_of(urls["web"], PACK, size=None, plan=plan, epoch_steps=5)
    next(iter(loader))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(mdsx.UsageError, match=r"call loader\.resume"):
            next(iter(loader))
    loader.resume()
    assert sum(1 for _ in loader) == 4
    assert sum(1 for _ in loader) == 4  # steps 5 to 9 without 7


def test_a_repeated_comparison_is_not_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that disagrees must not get past the check by trying again."""
    kept: dict[str, str] = {}
    store: Any = SimpleNamespace(compare_set=lambda key, _, text: kept.setdefault(key, text).encode())
    monkeypatch.setattr(agreement, "_begun", Counter[str]())
    agreement.compare_change(store, [1])
    monkeypatch.setattr(agreement, "_begun", Counter[str]())  # of another rank
    for _ in range(2):
        with pytest.raises(mdsx.UsageError, match="the ranks ask for different changes"):
            agreement.compare_change(store, [2])
