"""Random runs whose data change: sources, shares, samples left out, ranks, batch sizes, threads and packing, with kills
between. Nothing is lost or repeated, and what does not change continues where it was.

Hypothesis prints the seed of a failure: `pytest --hypothesis-seed=N` repeats it. With `--long`, 1,000 runs.
"""

from __future__ import annotations

import itertools
import json
import warnings
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mdsx
from mdsx.datasets import excerpt_of
from tests.loader.changing import ChangingRun, Sample, Sources

SIZES = [37, 90, 150, 61, 2100]  # the last one is read lane by lane
SHARD = 16
ID = 4096  # a value is ID * dataset + number
Expected = list[tuple[int, int, int] | None]
Draw = Callable[[st.SearchStrategy[Any]], Any]


def length_of(dataset: int, number: int) -> int:
    return 1 + (number * 7 + dataset * 3) % 12


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    root = tmp_path_factory.mktemp("changing")
    for dataset, size in enumerate(SIZES):
        tokens = [[dataset * ID + number] * length_of(dataset, number) for number in range(size)]
        with mdsx.Writer(root / str(dataset), {"tokens": "int32[*]"}, shard_size=SHARD * 80) as out:
            for number in range(size):
                out.write({"tokens": np.array(tokens[number], np.int32)})
    return [str(root / str(dataset)) for dataset in range(len(SIZES))]


@pytest.fixture(scope="module")
def sources(urls: list[str]) -> Sources:
    return Sources([excerpt_of(mdsx.Dataset(url)).subset.counts.tolist() for url in urls])


class Shape:
    """What a run keeps."""

    def __init__(self, draw: Draw, packed: bool) -> None:
        self.lanes = draw(st.integers(1, 3))
        self.shuffle_block = draw(st.integers(4, 60))
        self.seed = draw(st.integers(0, 2**64 - 1))
        self.run = None if packed or not draw(st.booleans()) else self.lanes * draw(st.integers(1, 9))
        self.epoch = (self.run or 1) * (draw(st.integers(150, 400)) // (self.run or 1))
        self.packed = packed


def loaders(
    urls: list[str],
    shape: Shape,
    shares: dict[int, Fraction],
    left_out: dict[int, list[int]],
    world: int,
    size: int,
    batching: mdsx.Pack | None,
    threads: int = 1,
) -> list[mdsx.Loader]:
    """Return a program as it is started again: a mixture, and a loader for each rank."""
    mixture = mixture_of(urls, shape, shares, left_out)
    return [
        mdsx.Loader(
            mixture,
            size,
            seed=shape.seed,
            shuffle=mdsx.Shuffle(shape.lanes, shape.shuffle_block),
            rank=rank,
            world_size=world,
            batching=batching,
            drop_last=False,
            num_threads=threads,
        )
        for rank in range(world)
    ]


def mixture_of(
    urls: list[str], shape: Shape, shares: dict[int, Fraction], left_out: dict[int, list[int]]
) -> mdsx.Mixture:
    return mdsx.Mixture(
        {f"d{dataset}": (urls[dataset], share) for dataset, share in shares.items()},
        epoch_samples=shape.epoch,
        run=shape.run,
        component_column=None if shape.packed else "from",
        exclude={f"d{dataset}": numbers for dataset, numbers in left_out.items() if dataset in shares},
    )


def new_shares(draw: Draw, keep: set[int], before: dict[int, Fraction]) -> dict[int, Fraction]:
    """Return other shares, by dataset in any order; those of `keep` are there, maybe with 0."""
    order = draw(st.permutations(range(len(SIZES))))
    chosen = {dataset: Fraction(draw(st.integers(0, 4)), draw(st.integers(1, 3))) for dataset in order[:3]}
    if draw(st.booleans()):
        chosen = {**before, **chosen}  # some only change their share
    found = {dataset: share for dataset, share in chosen.items() if share or dataset in keep}
    found |= {dataset: Fraction(0) for dataset in keep if dataset not in found}
    if not any(found.values()):
        found[order[0]] = Fraction(1)
    return found


def values_of(batch: dict[str, Any], shape: Shape) -> list[Sample]:
    """Return the samples of a batch."""
    if not shape.packed:
        return [divmod(int(value[0]), ID) for value in batch["tokens"]]
    found = []
    for tokens, segments in zip(batch["tokens"], batch["segment_ids"], strict=True):
        for segment in range(1, int(segments.max(initial=0)) + 1):
            mine = tokens[segments == segment]
            assert len(set(mine.tolist())) == 1
            sample = divmod(int(mine[0]), ID)
            assert len(mine) == length_of(*sample)
            found.append(sample)
    return found


def step_of(iterators: list[Any], shape: Shape, expected_from: Counter[tuple[int, int]]) -> list[Sample] | None:
    """Return the samples of the next step over all ranks; None at the epoch's end."""
    batches = [batch for iterator in iterators for batch in itertools.islice(iterator, 1)]
    if len(batches) < len(iterators):
        assert not batches
        return None
    found = []
    for batch in batches:
        here = values_of(batch, shape)
        if not shape.packed:
            numbers = batch["from"].tolist()
            expected_from.update((number, dataset) for number, (dataset, _) in zip(numbers, here, strict=True))
        found += here
    return found


@pytest.mark.timeout(7200)
@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], print_blob=True)
def test_nothing_is_lost_or_repeated(urls: list[str], sources: Sources, data: st.DataObject) -> None:
    draw = data.draw
    packed = draw(st.booleans())
    shape = Shape(draw, packed)
    shares = new_shares(draw, set(), {})
    left_out: dict[int, list[int]] = {}
    model = ChangingRun(
        sources,
        shape.seed,
        shape.lanes,
        shape.shuffle_block,
        shape.run,
        list(shares),
        [(0, list(shares.values()))],
    )
    batching = (
        mdsx.Pack(draw(st.integers(12, 40)), length="tokens", window=draw(st.integers(2, 40))) if packed else None
    )
    steps: list[tuple[int, int, list[Sample]]] = []  # first tick, last tick, samples; in groups: of windows, at the end
    handed_out = Counter[Sample]()
    numbered = Counter[tuple[int, int]]()
    state: dict[str, Any] | None = None
    for _ in range(draw(st.integers(2, 5))):
        world, size, threads = draw(st.integers(1, 3)), draw(st.integers(1, 9)), draw(st.sampled_from([1, 1, 2]))
        job = loaders(urls, shape, shares, left_out, world, size, batching, threads)
        if state is not None:
            for loader in job:
                loader.load_state_dict(json.loads(json.dumps(state)))
        iterators = [iter(loader) for loader in job]
        for _step in range(draw(st.integers(0, 12))):
            before = job[0].state_dict()
            if (found := step_of(iterators, shape, numbered)) is None:
                iterators = [iter(loader) for loader in job]
                continue
            handed_out.update(found)
            if not packed:
                start = before["epoch"] * shape.epoch + before["position"]
                stop = min(start + world * size, (before["epoch"] + 1) * shape.epoch)
                steps.append((start, stop, found))
        states = [json.dumps(loader.state_dict(), sort_keys=True) for loader in job]
        assert len(set(states)) == 1
        state = json.loads(states[0])
        assert sum(state["consumed"]["samples"]) == sum(handed_out.values())
        del job, iterators  # killed
        if draw(st.integers(0, 3)):
            state, shares, left_out = changed(draw, urls, shape, model, state, shares, left_out)
        if packed and not state["groups"]["taken"]:
            batching = mdsx.Pack(draw(st.integers(12, 40)), length="tokens")
    assert state is not None
    expected: Expected = model.samples(max(state["epoch"] + 1, 2) * shape.epoch)
    if packed:
        job = loaders(urls, shape, shares, left_out, 1, 3, batching)
        job[0].load_state_dict(state)
        for batch in job[0] if state["position"] or state["groups"]["taken"] else ():
            handed_out.update(values_of(batch, shape))
        stop = job[0].state_dict()["epoch"] * shape.epoch
        assert handed_out == Counter(each[1:] for each in expected[:stop] if each is not None)
        return
    for start, stop, found in steps:
        assert sorted(found) == sorted(each[1:] for each in expected[start:stop] if each is not None)
    assert [start for start, _, _ in steps[1:]] == [stop for _, stop, _ in steps[:-1]]
    stop = steps[-1][1] if steps else 0
    assert numbered == Counter((each[0], each[1]) for each in expected[:stop] if each is not None)


def changed(
    draw: Draw,
    urls: list[str],
    shape: Shape,
    model: ChangingRun,
    state: dict[str, Any],
    shares: dict[int, Fraction],
    left_out: dict[int, list[int]],
) -> tuple[dict[str, Any], dict[int, Fraction], dict[int, list[int]]]:
    """Change a run at random, and its model. Return the new state, and what a program has to give from now on."""
    start = state["epoch"] * shape.epoch + state["position"]
    tick, taken = start, shape.packed and state["groups"]["taken"]
    if taken:
        tick = min(start + state["groups"]["positions"] * shape.lanes, (state["epoch"] + 1) * shape.epoch)
    what = draw(st.sampled_from(["shares", "samples", "both"]))
    after, lists = shares, left_out
    if what != "shares":
        dataset = draw(st.sampled_from(sorted(shares)))
        more = draw(st.sets(st.integers(0, min(SIZES[dataset], 200) - 1), min_size=1, max_size=15))
        own = left_out.get(dataset, [])
        lists = {**left_out, dataset: [*own, *(number for number in sorted(more) if number not in own)]}
    if what != "samples":
        # what is read up to the change stays in the mixture: in the middle of a window, or of a run of one component
        inside = taken or (shape.run is not None and start % shape.run)
        after = new_shares(draw, {each for each in shares if inside or each in lists}, shares)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if what == "samples":
            state = mdsx.change(state, exclude={f"d{each}": lists[each] for each in lists if each in shares})
        else:
            state = mdsx.change(state, mixture_of(urls, shape, after, lists))
    if what != "samples":
        model.change(tick, after)
    for dataset, numbers in lists.items():
        if dataset in after:
            model.exclude(tick, model.components.index(dataset), numbers)
    return state, after, lists
