"""Random runs in groups, killed and resumed in random shapes: every batch is what `mdsx.Groups` computes for it.

Hypothesis prints the seed of a failure: `pytest --hypothesis-seed=N` repeats it. With `--long`, 1,000 runs.
"""

from __future__ import annotations

import itertools
import json
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mdsx
from mdsx.order import GroupSequence, MixtureCourse
from mdsx.torch import StreamingDataLoader, StreamingDataset

BEGIN, END = 1_000_000, 2_000_000
LENGTHS = {"a": [number * 37 % 61 for number in range(150)], "b": [number * 29 % 90 for number in range(60)]}
FIRST_OF_B = 1000  # the number of b's first sample
Data = dict[str, tuple[Any, list[mdsx.Dataset]]]
Item = tuple[int, int, int]  # sample, first value, number of values


def length_of(number: int) -> int:
    return LENGTHS["b"][number - FIRST_OF_B] if number >= FIRST_OF_B else LENGTHS["a"][number]


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Data:
    """What can be read, and the datasets that it is made of, by name. Value k of sample n is 100 n + k."""
    root = tmp_path_factory.mktemp("elastic")
    for name, first in (("a", 0), ("b", FIRST_OF_B)):
        with mdsx.Writer(root / name, {"id": "int64", "tokens": "int32[*]"}, shard_size=2000) as out:
            for number, length in enumerate(LENGTHS[name], first):
                out.write({"id": number, "tokens": (number * 100 + np.arange(length)).astype(np.int32)})
    with mdsx.Writer(root / "scores", {"score": "float32"}, shard_size=200) as out:
        out.write_batch({"score": np.arange(150, dtype=np.float32)})
    a, b = mdsx.Dataset(root / "a"), mdsx.Dataset(root / "b")
    some = a.select(range(50))
    return {
        "dataset": one(a),
        "selection": one(a.select(range(3, 150, 2))),
        "split": one(a.split(0.6, 0.4, seed=1)[1]),
        "zip": one(mdsx.zip(a, str(root / "scores"))),
        "mixture": (mdsx.Mixture({"a": (a, 2), "b": (b, 1)}, epoch_samples=130), [a, b]),
        "mixture of a selection": (mdsx.Mixture({"a": (some, 1), "b": (b, 1)}), [some, b]),
        "mixture with a schedule": (
            mdsx.Mixture({"a": a, "b": b}, schedule={0: [2, 1], 70: [0, 1], 300: [1, 1]}, epoch_samples=97),
            [a, b],
        ),
        "both": (mdsx.Mixture([a, b]), [a, b]),
        "one sample": one(a.select(7, 8)),
        "empty samples": one(a.select([0, 61, 122])),
    }


def one(data: mdsx.Dataset) -> tuple[mdsx.Dataset, list[mdsx.Dataset]]:
    return data, [data]


def values_of(number: int, batching: mdsx.Pack | mdsx.MaxTokens) -> list[int]:
    """Return the values of a sample, with the tokens that are added to it."""
    found = list(range(100 * number, 100 * number + length_of(number)))
    if not found or isinstance(batching, mdsx.MaxTokens):
        return found
    return [BEGIN] * (batching.begin is not None) + found + [END] * (batching.end is not None)


@dataclass
class Setup:
    """What stays the same through a run."""

    data: Any
    parts: list[mdsx.Dataset]  # of a mixture
    batching: mdsx.Pack | mdsx.MaxTokens
    shuffle: bool | mdsx.Shuffle
    drop_last: bool
    epoch_steps: int | None
    fails: bool  # the transform, for each seventh sample, which is skipped

    def loaders(self, world: int, rows: int, state: Any, node: int = 1) -> list[StreamingDataLoader]:
        found = []
        for rank in range(world):
            transform = failing if self.fails else None
            dataset = StreamingDataset(
                self.data, seed=3, shuffle=self.shuffle, rank=rank, world_size=world, transform=transform
            )
            found.append(
                StreamingDataLoader(
                    dataset,
                    rows if isinstance(self.batching, mdsx.Pack) else None,
                    batching=self.batching,
                    ranks_per_node=node,
                    drop_last=self.drop_last,
                    epoch_steps=self.epoch_steps,
                    on_error="skip" if self.fails else "raise",
                )
            )
            if state is not None:
                found[-1].load_state_dict(state)
        return found


def failing(sample: dict[str, Any]) -> dict[str, Any]:
    if sample["id"] % 7 == 3:
        raise ValueError(sample["id"])
    return sample


class Expected:
    """The groups of a run, by `mdsx.Groups`."""

    def __init__(self, setup: Setup, loader: StreamingDataLoader) -> None:
        self.course, view = loader._reading.course, loader._reading.view
        self._firsts = np.cumsum(view.counts) - view.counts
        self._numbers = np.array([sample["id"] for part in setup.parts for sample in part], np.int64)
        self._lengths = [len(values_of(number, setup.batching)) for number in self._numbers.tolist()]
        self._setup, self._counts = setup, view.counts
        self._window = json.loads(json.dumps(loader.state_dict()))["groups"]["positions"]

    def groups(self, epoch: int, node: int = 1) -> mdsx.Groups:
        rule, course = self._setup.batching, self.course
        order: Any = course.order if isinstance(course, MixtureCourse) else None
        order = order or mdsx.Order(
            self._counts,
            seed=3,
            shuffle=bool(self._setup.shuffle),
            lanes=course.lanes,
            shuffle_block=course.shuffle_block,
        )
        kind: Any = rule.kind if isinstance(rule, mdsx.Pack) else "max_tokens"
        return mdsx.Groups(
            order,
            np.array(self._lengths, np.int64),
            capacity=rule.capacity,
            kind=kind,
            window=self._window,
            oversize=rule.oversize,
            max_samples=getattr(rule, "max_samples", None),
            balance=getattr(rule, "balance", None),
            balance_over=getattr(rule, "balance_over", "node"),
            ranks_per_node=node,
            epoch=epoch,
            epoch_samples=course.epoch_samples,
        )

    def steps(self, epoch: int, size: int, taken: int, node: int = 1) -> Iterator[tuple[mdsx.Groups, GroupSequence]]:
        """Yield the steps from group `taken` of an epoch, or of all epochs if their number of steps is fixed."""
        groups, left = self.groups(epoch, node), None
        for number in itertools.count(epoch):
            for window in self.groups(number):
                left = window if left is None else left + window
                if taken:
                    first = min(taken, len(left))
                    taken, left = taken - first, left.take(np.arange(first, len(left)))
                while len(left) >= size:
                    yield groups, left.take(np.arange(size))
                    left = left.take(np.arange(size, len(left)))
            if self._setup.epoch_steps is None:
                break
        if left and not self._setup.drop_last:
            yield groups, left

    def rows(self, share: GroupSequence) -> list[list[Item]]:
        """Return the samples of each group, without those that fail."""
        shards, samples = self.course.locate(share.positions)
        numbers = self._numbers[self._firsts[shards] + samples].tolist()
        items = list(zip(numbers, share.firsts.tolist(), share.sizes.tolist(), strict=True))
        edges = share.edges.tolist()
        fails = self._setup.fails
        return [
            [item for item in items[first:last] if not (fails and item[0] % 7 == 3)]
            for first, last in itertools.pairwise(edges)
        ]


def rows_of(batch: dict[str, Any], batching: mdsx.Pack | mdsx.MaxTokens) -> list[list[Item]]:
    """Return the samples of each group of a batch, from its values; check its labels, if it has them."""
    if "lengths" in batch:
        found = zip(batch["id"], batch["tokens"].tolist(), batch["lengths"].tolist(), strict=True)
        return [[item(number, values[:length], batching) for number, values, length in found]]
    rows = []
    labels = batch.get("labels", batch["tokens"])
    for numbers, values, segments, following in zip(
        batch["id"], batch["tokens"], batch["segment_ids"], labels, strict=True
    ):
        rows.append(
            [item(number, values[segments == place].tolist(), batching) for place, number in enumerate(numbers, 1)]
        )
        if "labels" in batch:
            expected = list[int]()
            for number, first, size in rows[-1]:
                expected += [*values_of(number, batching)[first + 1 :], -100][:size]
            assert following.tolist() == expected + [-100] * (len(values) - len(expected))
    return rows


def item(number: int, values: list[int], batching: mdsx.Pack | mdsx.MaxTokens) -> Item:
    every = values_of(number, batching)
    first = every.index(values[0]) if values else 0
    assert values == every[first : first + len(values)]
    return number, first, len(values)


@st.composite
def setups(draw: Any, datasets: Data) -> Setup:
    data = draw(st.sampled_from(sorted(datasets)))
    window = draw(st.sampled_from([None, 1, 4, 16]))
    oversize = draw(st.sampled_from(["error", "truncate", "split"]))
    capacity = 100 if oversize == "error" else draw(st.sampled_from([8, 33, 64]))
    kind: Any = draw(st.sampled_from(["pack", "concat"]))
    added: dict[str, Any] = {"begin": BEGIN, "end": END, "labels": True}
    added = {name: value for name, value in added.items() if draw(st.booleans())}
    batching: mdsx.Pack | mdsx.MaxTokens
    batching = mdsx.Pack(
        capacity,
        length="tokens",
        kind=kind,
        window=window,
        oversize=oversize if kind == "pack" else None,
        balance=draw(st.sampled_from([None, (0, 1), (50, 1), (1, 0)])),
        balance_over=draw(st.sampled_from(["node", "job"])),
        **added,
    )
    if kind == "pack" and oversize != "split" and draw(st.booleans()):
        most = draw(st.sampled_from([None, 1, 3]))
        batching = mdsx.MaxTokens(capacity, length="tokens", window=window, oversize=oversize, max_samples=most)
    shuffles = [True, mdsx.Shuffle(3, 20), *([] if "mixture" in data else [False])]
    return Setup(
        *datasets[data],
        batching,
        draw(st.sampled_from(shuffles)),
        draw(st.booleans()),
        draw(st.sampled_from([None, None, 1, 5])),
        draw(st.integers(0, 3)) == 0,
    )


@pytest.mark.slow
@pytest.mark.timeout(3600)  # with --long
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(draws=st.data())
def test_every_batch_is_as_predicted(datasets: Data, draws: st.DataObject) -> None:
    setup = draws.draw(setups(datasets))
    state: Any = None
    epoch = taken = 0  # of the groups
    for world, rows, steps, copied in draws.draw(
        st.lists(
            st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(0, 9), st.booleans()), min_size=2, max_size=4
        )
    ):
        node = draws.draw(st.sampled_from([number for number in (1, 2, 3, 4) if world % number == 0]))
        loaders = setup.loaders(world, rows, state, node)
        if copied:
            loaders = [pickle.loads(pickle.dumps(each)) for each in loaders]
        expected = Expected(setup, loaders[0])
        size = world * (rows if isinstance(setup.batching, mdsx.Pack) else 1)
        iterators, predicted = [iter(each) for each in loaders], expected.steps(epoch, size, taken, node)
        for _ in range(steps):
            groups, step = next(predicted, (None, None))
            if step is None or groups is None:  # dropped, or less than a step: no rank has another batch
                break
            for rank, iterator in enumerate(iterators):
                batch, share = next(iterator), groups.share(step, rank, world)
                wanted = expected.rows(share)
                assert rows_of(batch, setup.batching) == (wanted or [[]] * isinstance(setup.batching, mdsx.MaxTokens))
                assert batch["global_tokens"] == int(step.sizes.sum())
            states = [each.state_dict() for each in loaders]
            assert all(each == states[0] for each in states)
            taken += len(step)
            if setup.epoch_steps is None and loaders[0].epoch > epoch:
                assert all(next(iterator, None) is None for iterator in iterators)
                epoch, taken = loaders[0].epoch, 0
                break
            if setup.epoch_steps is not None:
                for place, each in enumerate(loaders):
                    if states[0]["groups"]["step"] == 0:
                        assert next(iterators[place], None) is None
                        iterators[place] = iter(each)
        state = json.loads(json.dumps(loaders[-1].state_dict()))
