"""Mixtures in training: tight in every batch, exact over kills, phases and any change of ranks, workers and batch."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest
import torch

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset

SIZES = {"wiki": 900, "web": 2000, "code": 60}
Seen = tuple[int, int]  # component, number of the sample in it


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Three datasets; a sample holds its number."""
    found = {}
    for name, size in SIZES.items():
        found[name] = str(tmp_path_factory.mktemp("mixture") / name)
        with mdsx.Writer(found[name], {"id": "int64", "text": "str"}, shard_size=2048) as out:
            for number in range(size):
                out.write({"id": number, "text": f"{name} {number}"})
    return found


def mixed(components: Any, **options: Any) -> mdsx.Mixture:
    return mdsx.Mixture(components, component_column="from", **options)


def weighted(urls: dict[str, str], **options: Any) -> mdsx.Mixture:
    return mixed({"wiki": (urls["wiki"], 0.5), "web": (urls["web"], 0.4), "code": (urls["code"], 0.1)}, **options)


def loaders(
    mixture: mdsx.Mixture, world: int, batch: int, workers: int = 0, lanes: int = 4, **options: Any
) -> list[StreamingDataLoader]:
    return [
        StreamingDataLoader(
            StreamingDataset(mixture, seed=5, shuffle=mdsx.Shuffle(lanes), rank=rank, world_size=world, **options),
            batch,
            num_workers=workers,
            drop_last=False,
        )
        for rank in range(world)
    ]


def global_batches(found: list[StreamingDataLoader], count: int | None = None) -> list[list[Seen]]:
    """Return the next `count` global batches (None: the rest of the epoch), each as a sorted list."""
    steps = zip(*(iter(loader) for loader in found), strict=True)
    return [
        sorted(pair for batch in step for pair in zip(batch["from"].tolist(), batch["id"].tolist(), strict=True))
        for step in (steps if count is None else itertools.islice(steps, count))
    ]


def test_every_batch_has_each_components_share(urls: dict[str, str]) -> None:
    (loader,) = loaders(weighted(urls), 1, 256)
    names = list(SIZES)
    for batch in itertools.islice(loader, len(loader) - 1):
        assert batch["from"].dtype == torch.int64
        for component, number, text in zip(batch["from"].tolist(), batch["id"].tolist(), batch["text"], strict=True):
            assert text == f"{names[component]} {number}"
        counts = Counter(batch["from"].tolist())
        for component, share in enumerate((0.5, 0.4, 0.1)):
            assert abs(counts[component] - share * len(batch["id"])) <= 3  # a random draw would often be off by 8


@pytest.mark.slow_if("workers == 2")
@pytest.mark.parametrize("workers", [0, 2])
def test_reweighting_starts_a_phase_that_resumes_exactly(urls: dict[str, str], workers: int) -> None:
    def changed(found: list[StreamingDataLoader]) -> list[list[Seen]]:
        batches = global_batches(found, 4)
        for loader in found:
            loader.reweight({"wiki": 0.1, "web": 0.1, "code": 0.8})
        return batches

    (steady,), (loader,) = loaders(weighted(urls), 1, 50), loaders(weighted(urls), 1, 50, workers)
    plain = global_batches([steady], 10)
    iterator = iter(loader)
    first = [next(iterator) for _ in range(4)]
    loader.reweight([0.1, 0.1, 0.8])  # in the middle of an epoch, with batches prepared ahead
    second = [next(iterator) for _ in range(6)]
    run = [sorted(zip(b["from"].tolist(), b["id"].tolist(), strict=True)) for b in first + second]
    assert run[:4] == plain[:4]
    for batch in run[4:]:
        assert abs(sum(component == 2 for component, _ in batch) - 40) <= 10

    state = loader.state_dict()
    assert [start for start, _ in state["phases"]] == [0, 200]
    rest = [sorted(zip(b["from"].tolist(), b["id"].tolist(), strict=True)) for b in iterator]

    for world, size in ((1, 50), (2, 25), (5, 10)):  # across the phase: stopped before it, in it
        before = loaders(weighted(urls), world, size)
        assert changed(before) == run[:4]
        after = loaders(weighted(urls), world, size)
        for resumed, saved in zip(after, before, strict=True):
            resumed.load_state_dict(saved.state_dict())
        assert global_batches(after) == run[4:] + rest
        late = loaders(weighted(urls), world, size)
        for resumed in late:
            resumed.load_state_dict(state)
        assert global_batches(late) == rest


SCHEDULE: dict[int, Any] = {0: [0.5, 0.4, 0.1], 200: [0.1, 0.1, 0.8], 400: [0.4, 0.5, 0.1]}


def test_a_schedule_equals_reweighting_during_the_run(urls: dict[str, str]) -> None:
    (loader,), (other,) = loaders(mixed(urls, schedule=SCHEDULE), 1, 50), loaders(weighted(urls), 1, 50)
    batches = global_batches([loader], 12)
    found = global_batches([other], 4)
    other.reweight([0.1, 0.1, 0.8])
    state = other.state_dict()
    (other,) = loaders(weighted(urls), 1, 50)
    other.load_state_dict(state)
    found += global_batches([other], 4)
    other.reweight([0.4, 0.5, 0.1])
    other.resume()
    assert found + global_batches([other], 4) == batches


def test_reweighting_holds_up_to_the_next_entry_of_the_schedule(urls: dict[str, str]) -> None:
    scheduled = mixed(urls, schedule=SCHEDULE)
    (loader,) = loaders(scheduled, 1, 50)
    first = global_batches([loader], 5)
    loader.reweight([0, 0, 1])
    loader.resume()
    states = [loader.state_dict()]
    for _ in range(7):
        first += global_batches([loader], 1)
        loader.resume()
        states.append(loader.state_dict())
    assert all({component for component, _ in batch} == {2} for batch in first[5:8])
    assert all({component for component, _ in batch} == {0, 1, 2} for batch in first[8:])
    assert [start for start, _ in states[-1]["phases"]] == [0, 200, 250, 400]
    for number, state in enumerate(states[:-1], 5):
        (resumed,) = loaders(scheduled, 1, 50)
        resumed.load_state_dict(state)
        assert global_batches([resumed], 12 - number) == first[number:]


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_as_long_as_a_run_have_one_component(urls: dict[str, str], workers: int) -> None:
    schedule = {0: [0.5, 0.4, 0.1], 1200: [0, 0.5, 0.5]}
    in_runs = mixed(urls, schedule=schedule, run=48)
    assert in_runs.epoch_samples == 2928  # of 2960 samples
    (loader,) = loaders(in_runs, 1, 48, workers)
    batches = global_batches([loader])
    components = [{component for component, _ in batch} for batch in batches]
    assert {len(found) for found in components} == {1}
    counts = Counter(component for (component,) in components[:25])
    assert all(abs(counts[component] - 25 * share) < 2 for component, share in enumerate(schedule[0]))
    assert set().union(*components[25:]) == {1, 2}
    if workers:
        return
    before = loaders(in_runs, 3, 16)
    assert global_batches(before, 7) == batches[:7]
    after = loaders(in_runs, 2, 12)
    for resumed in after:
        resumed.load_state_dict(before[0].state_dict())
    halves = global_batches(after)
    assert [sorted(a + b) for a, b in itertools.pairwise(halves)][::2] == batches[7:]
    with pytest.raises(mdsx.StateError, match="run=48"):
        loaders(mixed(urls, schedule=schedule, run=96, epoch_samples=2928 * 2), 1, 48)[0].load_state_dict(
            {**before[0].state_dict(), "epoch_samples": 2928 * 2}
        )
    with pytest.raises(mdsx.UsageError, match=r"run=52.*mdsx\.Shuffle"):
        loaders(mixed(urls, schedule=schedule, run=50, epoch_samples=2000), 1, 50)


def test_only_mixtures_with_proportions_can_be_reweighted(urls: dict[str, str]) -> None:
    with pytest.raises(mdsx.UsageError, match="only a mixture"):
        StreamingDataLoader(StreamingDataset(urls["wiki"]), 5).reweight([1])
    with pytest.raises(mdsx.UsageError, match="without proportions"):
        loaders(mixed(list(urls.values())), 1, 5)[0].reweight([1, 1, 1])
    with pytest.raises(mdsx.UsageError, match="shuffled"):
        StreamingDataset(weighted(urls), shuffle=False)


def test_a_plan_does_not_forget_that_the_dataset_was_reweighted(urls: dict[str, str]) -> None:
    data, plan = StreamingDataset(weighted(urls), seed=5), mdsx.Plan({0: mdsx.Phase(global_batch_size=8)})
    StreamingDataLoader(data, plan=plan)
    data = StreamingDataset(weighted(urls), seed=5)
    data.reweight([1, 1, 0])
    with pytest.raises(mdsx.UsageError, match=r"the dataset was reweighted.*first phase"):
        StreamingDataLoader(data, plan=plan)


def counted(batches: Any) -> dict[str, int]:
    """Return how many samples of each component the batches have, from the column that says so."""
    found: Counter[int] = Counter()
    for batch in batches:
        rows = batch["from"] if isinstance(batch["from"], list) else [batch["from"]]
        found.update(number for row in rows for number in (row if isinstance(row, list) else row.tolist()))
    return {name: found[number] for number, name in enumerate(SIZES)}


@pytest.mark.parametrize("way", ["plain", "once", "workers", "packed", "bounded", "numpy", "ranks"])
def test_statistics_count_the_samples_of_each_component(urls: dict[str, str], way: str) -> None:
    mixture = mixed(urls) if way == "once" else weighted(urls)
    data = StreamingDataset(mixture, seed=5, rank=int(way == "ranks"), world_size=1 + (way == "ranks"))
    options: dict[str, Any] = {"batch_size": 50, "num_workers": 2 * (way == "workers"), "drop_last": False}
    if way in ("packed", "bounded"):
        kind = mdsx.Pack if way == "packed" else mdsx.MaxTokens
        options |= {"batching": kind(200, length="text"), "batch_size": 4 if way == "packed" else None}
    loader: Any = mdsx.Loader(mixture, 50, seed=5) if way == "numpy" else StreamingDataLoader(data, **options)
    assert loader.stats().components == {"wiki": 0, "web": 0, "code": 0}
    batches = iter(loader)
    first = list(itertools.islice(batches, 7))
    assert loader.stats().components == counted(first)  # not those that are prepared ahead
    before = loader.stats()
    rest = list(batches)
    assert (loader.stats() - before).components == counted(rest)
    assert loader.stats().components == counted(first + rest)
    assert sum(loader.stats().components.values()) == loader.stats().samples
    shares = ", ".join(f"{name} {count / loader.stats().samples:.0%}" for name, count in counted(first + rest).items())
    assert str(loader.stats()).endswith(shares)


def test_statistics_of_components_follow_a_change_of_proportions(urls: dict[str, str]) -> None:
    (loader,) = loaders(weighted(urls), 1, 50)
    iterator = iter(loader)
    first = list(itertools.islice(iterator, 4))
    loader.reweight({"code": 5})
    rest = list(itertools.islice(iterator, 5))
    assert loader.stats().components == counted(first + rest)
    assert StreamingDataLoader(StreamingDataset(urls["wiki"]), 5).stats().components == {}


def test_proportions_that_are_not_named_stay(urls: dict[str, str]) -> None:
    (one,), (other,) = loaders(weighted(urls), 1, 50), loaders(weighted(urls), 1, 50)
    for changes, whole in (({"code": 0.5}, [0.5, 0.4, 0.5]), ({"web": 0, "wiki": 1}, [1, 0, 0.5])):
        global_batches([one], 4)
        global_batches([other], 4)
        one.resume()
        other.resume()
        one.reweight(changes)
        other.reweight(whole)
        assert one.state_dict() == other.state_dict()
    with pytest.raises(mdsx.UsageError, match=r"no such component \(expected wiki, web, code, found 'books'\)"):
        one.reweight({"books": 1})
    with pytest.raises(mdsx.UsageError, match="proportions need a number for each component"):
        one.reweight({})
    with pytest.raises(mdsx.UsageError, match="at least one component needs a proportion above 0"):
        one.reweight({"wiki": 0, "code": 0})
