"""Random runs of samples, interrupted and resumed in random shapes: every batch is what the order says it is.

Hypothesis prints the seed of a failure: `pytest --hypothesis-seed=N` repeats it. With `--long`, 1,000 runs.
"""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset

SIZES = {"a": 150, "b": 60, "c": 7}
FIRSTS = {"a": 0, "b": 1000, "c": 2000}  # the numbers of their first samples
SEED = 3


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What can be read. Sample n has the tokens 100 n, 100 n + 1, ..."""
    root = tmp_path_factory.mktemp("elastic")
    for name, first in FIRSTS.items():
        with mdsx.Writer(root / name, {"id": "int64", "tokens": "int32[*]"}, shard_size=900) as out:
            for number in range(first, first + SIZES[name]):
                out.write({"id": number, "tokens": tokens_of(number)})
    with mdsx.Writer(root / "scores", {"score": "float32"}, shard_size=200) as out:
        out.write_batch({"score": np.arange(150, dtype=np.float32)})
    a, b, c = (mdsx.Dataset(root / name) for name in FIRSTS)
    return {
        "dataset": a,
        "selection": a.select(range(3, 150, 2)),
        "split": a.split(0.6, 0.4, seed=1)[1],
        "filter": a.select([0, 5, 61, 122]),
        "zip": mdsx.zip(a, str(root / "scores")),
        "each once": mdsx.Mixture([a, b, c]),
        "mixture": mdsx.Mixture({"a": (a, 2), "b": (b, 1)}, epoch_samples=130),
        "mixture of repeats": mdsx.Mixture(
            [mdsx.Component(a.select(range(50)), repeat=0.7), mdsx.Component(c, repeat=9)]
        ),
        "mixture of a selection": mdsx.Mixture({"a": (a.select(range(50)), 1), "c": (c, 1)}),
        "schedule": mdsx.Mixture({"a": a, "b": b}, schedule={0: [2, 1], 70: [0, 1], 300: [1, 1]}, epoch_samples=97),
        "runs": mdsx.Mixture({"a": (a, 2), "b": (b, 1)}, run=24, epoch_samples=240),
    }


def tokens_of(number: int) -> np.ndarray[Any, Any]:
    return (number * 100 + np.arange(number * 37 % 61)).astype(np.int32)


@dataclass
class Setup:
    """What stays the same through a run."""

    data: Any
    shuffle: bool | mdsx.Shuffle
    epoch_samples: int | None
    drop_last: bool
    fails: bool  # the transform, for each seventh sample, which is skipped

    def loaders(self, world: int, size: int, way: str, state: Any) -> list[Any]:
        """Return a loader for each rank."""
        found = [self._loader(rank, world, size, way) for rank in range(world)]
        for loader in found if state is not None else []:
            loader.load_state_dict(state)
        return found

    def _loader(self, rank: int, world: int, size: int, way: str) -> Any:
        options: dict[str, Any] = {"drop_last": self.drop_last, "on_error": "skip" if self.fails else "raise"}
        data: dict[str, Any] = {
            "seed": SEED,
            "shuffle": self.shuffle,
            "epoch_samples": self.epoch_samples,
            "transform": failing if self.fails else None,
            "rank": rank,
            "world_size": world,
        }
        if way.startswith("threads"):
            return mdsx.Loader(self.data, size, num_threads=int(way[-1]), **data, **options)
        return StreamingDataLoader(StreamingDataset(self.data, **data), size, num_workers=int(way[-1]), **options)


def failing(sample: dict[str, Any]) -> dict[str, Any]:
    if sample["id"] % 7 == 3:
        raise ValueError(sample["id"])
    return sample


class Order:
    """The samples of a run, one after the other: of a dataset by `mdsx.Order`; of a mixture by a run of single samples
    that nothing interrupts."""

    def __init__(self, setup: Setup) -> None:
        whole = Setup(setup.data, setup.shuffle, setup.epoch_samples, drop_last=False, fails=False)
        (self._loader,) = whole.loaders(1, 1, "threads 1", None)
        course, view = self._loader._reading.course, self._loader._reading.view
        self.epoch_samples: int = course.epoch_samples
        self._mixture = isinstance(setup.data, mdsx.Mixture)
        self._place, self._batches = (0, 0), iter(self._loader)
        if not self._mixture:
            self._numbers = np.array([sample["id"] for sample in setup.data], np.int64)
            self._firsts, self._counts = np.cumsum(view.counts) - view.counts, view.counts
            self._options = {"lanes": course.lanes, "shuffle_block": course.shuffle_block, "seed": SEED}
            self._shuffle, self._orders = bool(setup.shuffle), dict[int, mdsx.Order]()

    def take(self, epoch: int, start: int, stop: int) -> list[int]:
        """Return the numbers of the samples at positions [start, stop) of an epoch, which come after all before."""
        if not self._mixture:
            return self._at(np.arange(start, stop) + epoch * self.epoch_samples)
        self.reach(epoch, start)
        self._place = (epoch, stop)
        return [int(next(self._batches)["id"][0]) for _ in range(start, stop)]

    def reach(self, epoch: int, start: int) -> None:
        if self._place != (epoch, start):
            assert start in (0, self._place[1])
            self._loader.set_epoch(epoch)
            self._place, self._batches = (epoch, start), iter(self._loader)

    def reweight(self, epoch: int, start: int, proportions: list[int]) -> None:
        self.reach(epoch, start)
        self._loader.reweight(proportions)

    def _at(self, ticks: np.ndarray[Any, np.dtype[np.int64]]) -> list[int]:
        found: list[int] = []
        epochs, positions = np.divmod(ticks, len(self._numbers))
        for epoch in np.unique(epochs).tolist():
            if epoch not in self._orders:
                self._orders[epoch] = mdsx.Order(self._counts, epoch=epoch, shuffle=self._shuffle, **self._options)
            shards, samples = self._orders[epoch].locate(positions[epochs == epoch])
            found += self._numbers[self._firsts[shards] + samples].tolist()
        return found


@st.composite
def setups(draw: Any, datasets: dict[str, Any]) -> Setup:
    name = draw(st.sampled_from(sorted(datasets)))
    mixture = isinstance(datasets[name], mdsx.Mixture)
    return Setup(
        datasets[name],
        draw(st.sampled_from([True, mdsx.Shuffle(3, 20), *([] if mixture else [False])])),
        None if mixture else draw(st.sampled_from([None, None, 37, 400])),
        draw(st.booleans()),
        draw(st.integers(0, 3)) == 0,
    )


WAYS = ["threads 1"] * 30 + ["threads 2", "threads 3"] * 5 + ["workers 0"] * 30 + ["workers 1"]
STRETCHES = st.lists(
    st.tuples(
        st.integers(1, 5),  # ranks
        st.integers(1, 9),  # samples of a batch
        st.integers(0, 25),  # steps
        st.sampled_from(WAYS),
        st.booleans(),  # whether the loaders are copied by pickle
        st.sampled_from([None, None, [1, 3], [5, 1]]),  # new proportions at the end
    ),
    min_size=2,
    max_size=5,
)


def check(batches: list[Any], wanted: list[int], *, fails: bool) -> None:
    """Check what the ranks got of a step."""
    world, size = len(batches), len(wanted)
    found: list[int] = []
    for rank, batch in enumerate(batches):
        numbers = [int(number) for number in batch["id"]]
        assert fails or len(numbers) == (rank + 1) * size // world - rank * size // world
        assert all(
            np.array_equal(tokens, tokens_of(number)) for number, tokens in zip(numbers, batch["tokens"], strict=True)
        )
        found += numbers
    assert Counter(found) == Counter(number for number in wanted if not (fails and number % 7 == 3))


@pytest.mark.timeout(3600)  # with --long
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(draws=st.data())
@pytest.mark.filterwarnings("ignore:the global batch of")
def test_every_batch_is_as_predicted(datasets: dict[str, Any], draws: st.DataObject) -> None:
    setup = draws.draw(setups(datasets))
    order, state = Order(setup), None
    length, epoch, position = order.epoch_samples, 0, 0
    for world, size, steps, way, copied, proportions in draws.draw(STRETCHES):
        if setup.drop_last and length < world * size:
            continue  # no epoch has a batch
        loaders = setup.loaders(world, size, way, state)
        if copied:
            loaders = [pickle.loads(pickle.dumps(loader)) for loader in loaders]
        least = world * size if setup.drop_last else 1
        iterators: list[Iterator[Any]] = [iter(loader) for loader in loaders]
        for _ in range(steps):
            if length - position < least:  # resumed in a tail that is dropped
                assert all(next(iterator, None) is None for iterator in iterators)
                epoch, position, iterators = epoch + 1, 0, [iter(loader) for loader in loaders]
            stop = min(position + world * size, length)
            check([next(iterator) for iterator in iterators], order.take(epoch, position, stop), fails=setup.fails)
            position = stop
            if length - position < least:
                assert all(next(iterator, None) is None for iterator in iterators)
                epoch, position, iterators = epoch + 1, 0, [iter(loader) for loader in loaders]
            states = [loader.state_dict() for loader in loaders]
            assert all(each == states[0] for each in states)
            assert (states[0]["epoch"], states[0]["position"]) == (epoch, position)
        if proportions is not None and isinstance(setup.data, mdsx.Mixture) and setup.data.weighted:
            for loader in loaders:
                loader.reweight(proportions)
            order.reweight(epoch, position, proportions)
        state = json.loads(json.dumps(loaders[-1].state_dict()))
        if not steps:
            epoch, position = state["epoch"], state["position"]
