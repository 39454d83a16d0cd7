"""Any state resumes exactly or raises MdsxError, in bounded time. After an error the object is unchanged.

The tests mutate valid states at random and load them in every way of reading a dataset.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset
from tests.conftest import Often

pytestmark = pytest.mark.usefixtures("brief_shutdown")

SIZES = (48, 24)
EPOCH = sum(SIZES)
BATCH = 8

NUMBERS = st.one_of(
    st.integers(-3, EPOCH + 3),
    st.sampled_from([2**31, 2**53, 2**62 - 1, 2**62, 2**63, 2**64, -(10**15), 10**30, 10**1000]),
    st.floats(),
    st.booleans(),
    st.none(),
)
WEIGHTS = st.sampled_from(["1/3", "1/0", "9" * 5000, "1e999999999"])
OBJECTS = st.builds(np.int64, st.integers(0, 9)) | st.just(np.arange(3)) | st.just(torch.arange(3))
VALUES = OBJECTS | st.recursive(
    st.one_of(NUMBERS, st.text(max_size=5), st.binary(max_size=5), WEIGHTS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.tuples(inner, inner),
        st.dictionaries(st.sampled_from(["id", "count", "origin", "global_batch", "epoch"]), inner, max_size=5),
    ),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    found = []
    for size in SIZES:
        path: Path = tmp_path_factory.mktemp("hostile") / "d"
        with mdsx.Writer(path, {"id": "int64"}, shard_size=4096) as out:
            out.write_batch({"id": range(size)})
        found.append(str(path))
    return found


def dataset(urls: list[str], weighted: bool) -> StreamingDataset:
    if not weighted:
        return StreamingDataset(
            mdsx.Mixture(urls), seed=3, shuffle=mdsx.Shuffle(lanes=2), batch_size=BATCH, drop_last=False
        )
    mixture = mdsx.Mixture(urls, schedule={0: [2, 1], EPOCH: [1, 2]})
    return StreamingDataset(mixture, seed=3, shuffle=mdsx.Shuffle(lanes=2), batch_size=BATCH, drop_last=False)


def ids(batches: Iterable[Any]) -> list[int]:
    return list(itertools.chain.from_iterable(batch["id"].tolist() for batch in batches))


Target = Callable[[StreamingDataset, Any], Iterable[Any]]
"""Load a state; return the object to iterate."""


def streaming(data: StreamingDataset, state: Any) -> Iterable[Any]:
    loader = StreamingDataLoader(data, BATCH, drop_last=False)
    before = loader.state_dict()
    try:
        loader.load_state_dict(state)
    except mdsx.MdsxError:
        assert loader.state_dict() == before
        raise
    return loader


def by_hand(data: StreamingDataset, state: Any) -> Iterable[Any]:
    data.load_state_dict(state)
    return data


def plain(data: StreamingDataset, state: Any) -> Iterable[Any]:
    data.load_state_dict(state)
    return DataLoader(data, batch_size=None)


def stateful(data: StreamingDataset, state: Any) -> Iterable[Any]:
    loader: StatefulDataLoader[Any] = StatefulDataLoader(data, batch_size=None)
    outer = copy.deepcopy(loader.state_dict())
    outer["dataset_state"] = state
    loader.load_state_dict(outer)
    batches: Iterable[Any] = iter(loader)
    return batches


def mutated(draw: st.DrawFn, state: dict[str, Any]) -> dict[str, Any]:
    changed: dict[Any, Any] = copy.deepcopy(state)
    for _ in range(draw(st.integers(1, 3))):
        keys = sorted(changed, key=str)
        target = changed
        if isinstance(inner := changed.get("worker"), dict) and draw(st.booleans()):
            target, keys = inner, sorted(inner, key=str)
        elif isinstance(inner := changed.get("phases"), list) and inner and draw(st.booleans()):
            inner[draw(st.integers(0, len(inner) - 1))] = draw(VALUES)
            continue
        name = draw(st.sampled_from([*keys, "worker", "phases", "more"]))
        if name in target and draw(st.integers(0, 3)) == 0:
            del target[name]
        else:
            target[name] = draw(VALUES)
    return changed


@pytest.mark.parametrize("target", [streaming, by_hand, plain, stateful])
@pytest.mark.parametrize("weighted", [False, True])
def test_mutated_state_resumes_exactly_or_raises(urls: list[str], target: Target, weighted: bool, often: Often) -> None:
    whole = [ids(dataset_at(urls, weighted, epoch)) for epoch in range(3)]

    @settings(max_examples=often(30, 3000), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def check(chosen: st.DataObject) -> None:
        data = dataset(urls, weighted)
        epoch, batches = chosen.draw(st.integers(0, 2)), chosen.draw(st.integers(0, EPOCH // BATCH - 1))
        state = {**data.state_dict(), "epoch": epoch, "position": batches * BATCH}
        if chosen.draw(st.booleans()):
            state["worker"] = {"id": 0, "count": 1, "origin": 0, "global_batch": BATCH}
        hostile = chosen.draw(st.composite(mutated)(state))
        before = data.state_dict()
        try:
            remaining = target(data, hostile)
            found = ids(remaining)
        except mdsx.MdsxError:
            assert target is streaming or data.state_dict() == before  # `streaming` looks itself
            return
        # otherwise the run continues with other weights, or in blocks of another size
        if all(hostile.get(name) == state.get(name) for name in ("phases", "shuffle_block")):
            start, position = hostile["epoch"], hostile["position"]
            assert type(start) is type(position) is int
            if target is stateful and (start, position) == (1, 0):
                assert found == []  # torchdata's part of the state says epoch 0, so this is the end of epoch 0
            elif start < 3:
                assert found == whole[start][position:]
        assert set(hostile) >= set(state) - {"worker", "components"}

    check()


def dataset_at(urls: list[str], weighted: bool, epoch: int) -> StreamingDataset:
    data = dataset(urls, weighted)
    data.set_epoch(epoch)
    return data


@pytest.mark.parametrize("state", [None, 3, "state", [1], {}, {"epoch": 0}, {"epoch": [], "position": {}}])
@pytest.mark.parametrize("target", [streaming, by_hand, plain])
def test_values_that_are_no_state_raise(urls: list[str], target: Target, state: object) -> None:
    with pytest.raises(mdsx.StateError):
        target(dataset(urls, False), state)


@pytest.mark.slow_if("id in {'worker2', 'worker3'}")
@pytest.mark.parametrize(
    "worker",
    [[[1]], 3, {"id": 0, "count": 2, "origin": -(10**15), "global_batch": 8}, {"id": 0, "count": 2, "origin": 3}],
)
def test_hostile_state_of_a_worker_raises(urls: list[str], worker: object) -> None:
    def make() -> StatefulDataLoader[Any]:
        return StatefulDataLoader(dataset(urls, False), batch_size=None, num_workers=2)

    loader = make()
    list(itertools.islice(iter(loader), 3))
    state = loader.state_dict()
    for snapshot in state["_snapshot"]["_worker_snapshots"].values():
        snapshot["dataset_state"]["worker"] = worker
    resumed = make()
    resumed.load_state_dict(state)
    with pytest.raises(mdsx.StateError, match="not a worker's state"):
        iter(resumed)


@pytest.mark.slow
def test_worker_far_into_an_epoch_resumes_immediately(urls: list[str]) -> None:
    """The number of batches since the workers began does not matter."""
    mixture = mdsx.Mixture([(urls[0], 1), (urls[1], 1)], epoch_samples=2**55)

    def make() -> StatefulDataLoader[Any]:
        return StatefulDataLoader(StreamingDataset(mixture, batch_size=1), batch_size=None, num_workers=2)

    loader = make()
    next(iter(loader))  # worker 0 has handed out a batch, worker 1 is next
    state = loader.state_dict()
    for worker, position in ((0, 2**54 - 1), (1, 2**54)):
        inner = state["_snapshot"]["_worker_snapshots"][f"worker_{worker}"]["dataset_state"]
        inner["position"] = position
        inner["worker"] = {"id": worker, "count": 2, "origin": 0, "global_batch": 1}
    resumed = make()
    resumed.load_state_dict(state)
    expected = StreamingDataset(mixture, batch_size=1)
    expected.load_state_dict({**expected.state_dict(), "position": 2**54 + 1})
    assert next(iter(resumed))["id"].tolist() == next(iter(expected))["id"].tolist()
