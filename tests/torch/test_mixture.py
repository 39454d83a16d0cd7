"""Mixtures in training: tight in every batch, exact over kills, phases and any change of ranks, workers and batch."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
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


def chained(batches: list[list[Seen]]) -> list[Seen]:
    return list(itertools.chain.from_iterable(batches))


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


def test_each_component_has_its_own_epochs(urls: dict[str, str]) -> None:
    """No sample of a component repeats before all its others were read, whatever the length of the run's epochs."""
    (loader,) = loaders(weighted(urls, epoch_samples=777), 1, 32)
    seen = [pair for _ in range(8) for pair in chained(global_batches([loader]))]
    assert len(seen) == 8 * 777
    for component, size in enumerate(SIZES.values()):
        drawn = Counter(number for which, number in seen if which == component)
        assert sum(drawn.values()) > size  # more than an epoch of it
        assert max(drawn.values()) - min(drawn[number] for number in range(size)) <= 1


def test_without_proportions_an_epoch_is_every_sample_once(urls: dict[str, str]) -> None:
    found = loaders(mixed(list(urls.values())), 3, 7)
    expected = Counter((component, n) for component, size in enumerate(SIZES.values()) for n in range(size))
    for _ in range(2):
        assert Counter(chained(global_batches(found))) == expected


def test_repeat_and_samples_set_each_components_part(urls: dict[str, str]) -> None:
    mixture = mixed(
        [
            mdsx.Component(urls["wiki"], repeat=0.5),
            mdsx.Component(urls["web"], samples=1200),
            mdsx.Component(urls["code"], repeat=4),
        ]
    )
    assert mixture.epoch_samples == 450 + 1200 + 240
    (loader,) = loaders(mixture, 1, 90)
    totals: Counter[int] = Counter()
    for epoch in range(1, 9):
        drawn = Counter(component for component, _ in chained(global_batches([loader])))
        totals += drawn
        for component, share in enumerate((450, 1200, 240)):
            assert abs(totals[component] - epoch * share) <= 12  # also after any number of epochs


@pytest.mark.parametrize(
    "stops",
    [
        [(2, 48, 5), (3, 20, 4), (1, 30, None)],
        [(4, 8, 3), (1, 100, 2), (2, 33, 9), (8, 3, None)],
    ],
)
@pytest.mark.parametrize("lanes", [1, 4])  # with one lane the largest component is read lane by lane
def test_any_resume_continues_the_same_run(urls: dict[str, str], stops: Any, lanes: int) -> None:
    mixture = weighted(urls, epoch_samples=1500)
    (whole,) = loaders(mixture, 1, 1500, lanes=lanes)
    expected = [global_batches([whole])[0] for _ in range(2)]
    for epoch in range(2):
        read: list[Seen] = []
        state = None
        for world, batch, steps in stops:
            found = loaders(mixture, world, batch, lanes=lanes)
            for loader in found:
                if state is None:
                    loader.set_epoch(epoch)
                else:
                    loader.load_state_dict(state)
            read += chained(global_batches(found, steps))
            state = found[-1].state_dict()
        assert sorted(read) == expected[epoch]
        assert state is not None
        assert (state["epoch"], state["position"]) == (epoch + 1, 0)


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


def test_a_state_of_one_schedule_does_not_fit_another(urls: dict[str, str]) -> None:
    (loader,) = loaders(mixed(urls, schedule=SCHEDULE), 1, 50)
    global_batches([loader], 2)
    for other in (weighted(urls), mixed(urls, schedule={**SCHEDULE, 400: [1, 1, 1]})):
        with pytest.raises(mdsx.StateError, match="another schedule"):
            loaders(other, 1, 50)[0].load_state_dict(loader.state_dict())


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


def test_state_of_other_weights_raises(urls: dict[str, str]) -> None:
    (loader,) = loaders(weighted(urls), 1, 50)
    global_batches([loader], 2)
    other = mixed([(urls["wiki"], 0.4), (urls["web"], 0.5), (urls["code"], 0.1)])
    with pytest.raises(mdsx.StateError, match="other proportions") as caught:
        loaders(other, 1, 50)[0].load_state_dict(loader.state_dict())
    assert caught.value.place == "phases"
    swapped = mixed([(urls["web"], 0.5), (urls["wiki"], 0.4), (urls["code"], 0.1)])
    with pytest.raises(mdsx.StateError, match="component"):
        loaders(swapped, 1, 50)[0].load_state_dict(loader.state_dict())


@pytest.mark.slow
def test_a_mixture_streams_from_s3_through_one_small_cache(s3_url: str, tmp_path: Path) -> None:
    urls = {}
    for name, size in SIZES.items():
        urls[name] = f"{s3_url}/{name}"
        with mdsx.Writer(urls[name], {"id": "int64", "text": "str"}, shard_size=4096) as out:
            for number in range(size):
                out.write({"id": number, "text": f"{name} {number}"})
    mixture = mixed({name: (url, 1) for name, url in urls.items()}, epoch_samples=3000)
    options: dict[str, Any] = {"cache": mdsx.Cache(tmp_path / "cache", limit=32768)}
    with pytest.warns(UserWarning, match="the cache may hold"):
        seen = chained(global_batches(loaders(mixture, 2, 30, **options)))
    assert len(seen) == 3000
    code = Counter(number for component, number in seen if component == 2)
    assert set(code) == set(range(60))
    assert max(code.values()) - min(code.values()) <= 1
    assert any((tmp_path / "cache").rglob("*.mdsx"))


def test_only_mixtures_with_proportions_can_be_reweighted(urls: dict[str, str]) -> None:
    with pytest.raises(mdsx.UsageError, match="only a mixture"):
        StreamingDataLoader(StreamingDataset(urls["wiki"]), 5).reweight([1])
    with pytest.raises(mdsx.UsageError, match="without proportions"):
        loaders(mixed(list(urls.values())), 1, 5)[0].reweight([1, 1, 1])
    with pytest.raises(mdsx.UsageError, match="shuffled"):
        StreamingDataset(weighted(urls), shuffle=False)
