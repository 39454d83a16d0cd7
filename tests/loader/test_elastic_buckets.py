"""Random runs in batches of one shape, stopped and resumed on other ranks: every batch is what `mdsx.Groups` computes.

Hypothesis prints the seed of a failure: `pytest --hypothesis-seed=N` repeats it. With `--long`, 1,000 runs.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice, pairwise, takewhile
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mdsx
from mdsx.order import MixtureCourse

SIZES = [(8, 8), (9, 7), (7, 9), (12, 5)]
FIRST_OF_B = 1000  # the number of b's first sample
Data = dict[str, tuple[Any, list[mdsx.Dataset]]]


def size_of(number: int) -> tuple[int, int]:
    return 3 + number * 37 % 17, 2 + number * number % 13


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Data:
    """What can be read, and the datasets that it is made of, by name."""
    root = tmp_path_factory.mktemp("elastic")
    columns = {"id": "int64", "height": "uint16", "width": "uint16", "text": "str"}
    for name, numbers in (("a", range(150)), ("b", range(FIRST_OF_B, FIRST_OF_B + 60))):
        with mdsx.Writer(root / name, columns, shard_size=700) as out:
            for number in numbers:
                height, width = size_of(number)
                out.write({"id": number, "height": height, "width": width, "text": "x" * (number % 9)})
    with mdsx.Writer(root / "scores", {"score": "float32"}, shard_size=200) as out:
        out.write_batch({"score": np.arange(150, dtype=np.float32)})
    a, b = mdsx.Dataset(root / "a"), mdsx.Dataset(root / "b")
    some = a.select(range(50))
    return {
        "dataset": (a, [a]),
        "selection": (selected := a.select(range(3, 150, 2)), [selected]),
        "split": (split := a.split(0.6, 0.4, seed=1)[1], [split]),
        "zip": (zipped := mdsx.zip(a, str(root / "scores")), [zipped]),
        "mixture": (mdsx.Mixture({"a": (a, 2), "b": (b, 1)}, epoch_samples=130), [a, b]),
        "mixture of a selection": (mdsx.Mixture({"a": (some, 1), "b": (b, 1)}), [some, b]),
        "mixture with a schedule": (
            mdsx.Mixture({"a": a, "b": b}, schedule={0: [2, 1], 70: [0, 1], 300: [1, 1]}, epoch_samples=97),
            [a, b],
        ),
        "both": (mdsx.Mixture([a, b]), [a, b]),
        "one sample": (alone := a.select(7, 8), [alone]),
    }


@dataclass
class Setup:
    """What stays the same through a run."""

    data: Any
    parts: list[mdsx.Dataset]  # of a mixture
    batching: mdsx.Buckets
    shuffle: bool | mdsx.Shuffle
    epoch_steps: int | None
    fails: bool  # the transform, for each seventh sample, which is skipped

    def loaders(self, world: int, micro: int | None, state: Any) -> list[mdsx.Loader]:
        found = []
        for rank in range(world):
            found.append(
                mdsx.Loader(
                    self.data,
                    batching=self.batching,
                    seed=3,
                    shuffle=self.shuffle,
                    rank=rank,
                    world_size=world,
                    micro_batch=micro,
                    epoch_steps=self.epoch_steps,
                    transform=failing if self.fails else None,
                    on_error="skip" if self.fails else "raise",
                )
            )
            if state is not None:
                found[-1].load_state_dict(state)
        return found

    def steps(self, loader: mdsx.Loader) -> Iterator[tuple[int, int, list[int]]]:
        """Yield the epoch of the order, the bucket and the samples of each step, as `mdsx.Groups` says."""
        course, view = loader._reading.course, loader._reading.view
        firsts = np.cumsum(view.counts) - view.counts
        numbers = np.array([sample["id"] for part in self.parts for sample in part], np.int64)
        order: Any = course.order if isinstance(course, MixtureCourse) else None
        lanes, block = course.lanes, course.shuffle_block
        order = order or mdsx.Order(view.counts, seed=3, shuffle=bool(self.shuffle), lanes=lanes, shuffle_block=block)
        sizes: Any = self.batching.sizes
        for epoch in count():
            groups = mdsx.Groups(
                order,
                [size_of(number) for number in numbers.tolist()],
                kind="buckets",
                sizes=sizes,
                global_batch_size=self.batching.global_batch_size,
                window=self.batching.window,
                epoch=epoch,
                epoch_samples=course.epoch_samples,
            )
            for window in groups:
                shards, samples = course.locate(window.positions)
                found = numbers[firsts[shards] + samples].tolist()
                for bucket, (first, last) in zip(window.lanes.tolist(), pairwise(window.edges.tolist()), strict=True):
                    yield epoch, bucket, found[first:last]

    def handed_out(self, bucket: int, samples: list[int]) -> bool:
        sizes: Any = self.batching.global_batch_size
        return self.batching.tails == "keep" or len(samples) == sizes[bucket]


def failing(sample: dict[str, Any]) -> dict[str, Any]:
    if sample["id"] % 7 == 3:
        raise ValueError(sample["id"])
    return sample


@st.composite
def setups(draw: Any, datasets: Data) -> Setup:
    name = draw(st.sampled_from(sorted(datasets)))
    data, parts = datasets[name]
    sizes = SIZES[: draw(st.integers(1, 4))]
    tails: Any = "keep" if name == "one sample" else draw(st.sampled_from(["keep", "drop"]))
    batching = mdsx.Buckets(
        by=("height", "width"),
        sizes=sizes,
        global_batch_size=[draw(st.integers(1, 5 if tails == "drop" else 13)) for _ in sizes],
        tails=tails,
        window=draw(st.sampled_from([None, 16] if tails == "drop" else [None, 1, 4, 16])),
    )
    shuffles = [True, mdsx.Shuffle(3, 20), *([] if "mixture" in name else [False])]
    steps, shuffle = draw(st.sampled_from([None, None, 1, 5])), draw(st.sampled_from(shuffles))
    return Setup(data, parts, batching, shuffle, steps, draw(st.integers(0, 3)) == 0)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(draws=st.data())
def test_every_batch_of_a_shape_is_as_predicted(datasets: Data, draws: st.DataObject) -> None:
    run_in_lives(draws.draw(setups(datasets)), draws)


def run_in_lives(setup: Setup, draws: st.DataObject) -> None:
    """Compare a run that is stopped and resumed on other ranks with `mdsx.Groups`, and its accounts with a count."""
    predicted = setup.steps(setup.loaders(1, None, None)[0])
    begun = list(islice(predicted, 99))  # more than all lives have
    state: Any = None
    place = taken = dropped = 0  # in `begun`, and samples
    lives = st.tuples(st.integers(1, 5), st.sampled_from([None, None, 1, 3]), st.integers(0, 9), st.booleans())
    for world, micro, steps, copied in draws.draw(st.lists(lives, min_size=2, max_size=4)):
        loaders = setup.loaders(world, micro, state)
        if copied:
            loaders = [pickle.loads(pickle.dumps(each)) for each in loaders]
        iterators = [iter(each) for each in loaders]
        for _ in range(steps):
            while not setup.handed_out(*begun[place][1:]):
                dropped += len(begun[place][2])
                place += 1
            _, bucket, samples = begun[place]
            place, n = place + 1, len(samples)
            parts = 1 if micro is None else -(-n // (world * micro))
            for part in range(parts):
                for rank, iterator in enumerate(iterators):
                    batch = next(iterator, None)
                    if batch is None:  # another epoch
                        iterators[rank] = iterator = iter(loaders[rank])
                        batch = next(iterator)
                    share = samples[rank * n // world : (rank + 1) * n // world]
                    if micro is not None:
                        share = share[part * micro : (part + 1) * micro]
                    assert batch["id"].tolist() == [each for each in share if not (setup.fails and each % 7 == 3)]
                    assert batch["bucket"] == setup.batching.sizes[bucket]
                    assert loaders[rank].step_complete == (part == parts - 1)
            taken += n
            states = [each.state_dict() for each in loaders]
            assert all(each == states[0] for each in states)
            consumed = loaders[0].consumed
            assert sum(consumed.samples.values()) == taken
            assert consumed.rows == taken
            assert consumed.steps == sum(setup.handed_out(*each[1:]) for each in begun[:place])
            following = takewhile(lambda each: not setup.handed_out(*each[1:]), begun[place:])
            assert dropped <= consumed.dropped_samples <= dropped + sum(len(each[2]) for each in following)
        state = json.loads(json.dumps(loaders[-1].state_dict()))


@pytest.mark.parametrize("tails", ["keep", "drop"])
@pytest.mark.parametrize("name", ["dataset", "mixture", "zip"])
def test_samples_that_are_taken_and_dropped_are_those_of_the_epoch(datasets: Data, name: str, tails: Any) -> None:
    batching = mdsx.Buckets(
        by=("height", "width"), sizes=SIZES, global_batch_size=[7, 5, 6, 20], tails=tails, window=16
    )
    setup = Setup(*datasets[name], batching, mdsx.Shuffle(3, 20), None, False)
    (loader,) = setup.loaders(1, None, None)
    for epoch in range(3):
        for _ in loader:
            pass
        consumed = loader.consumed
        samples = loader._reading.course.epoch_samples * (epoch + 1)
        assert sum(consumed.samples.values()) + consumed.dropped_samples == samples
        assert (consumed.dropped_samples > 0) == (tails == "drop")
        assert loader.epoch == epoch + 1
