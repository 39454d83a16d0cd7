"""torchdata's StatefulDataLoader: its own state resumes a StreamingDataset exactly."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torchdata.stateful_dataloader import StatefulDataLoader

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset
from tests.torch.conftest import write
from tests.torch.test_loader import ids

BATCH = 10


@pytest.fixture(autouse=True, scope="module")
def _workers_that_failed_end_soon() -> Iterator[None]:
    """torchdata waits this number of seconds for each worker, perhaps only when the next test begins."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 0.2)
        yield


N = 83  # few batches of one column: torchdata's workers open a file for each tensor and save a state for each batch
LEFT = 8  # whole batches


@pytest.fixture(scope="module")
def local_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """N samples in dozens of shards."""
    url = str(tmp_path_factory.mktemp("stateful"))
    write(url, N, shard_size=1024)
    return url


def stateful(
    url: str, workers: int, persistent: bool = False, context: str | None = None, **options: Any
) -> tuple[StreamingDataset, StatefulDataLoader[Any]]:
    data = StreamingDataset(url, seed=2, columns=["id"], **{"batch_size": BATCH, **options})
    loader: StatefulDataLoader[Any] = StatefulDataLoader(
        data,
        batch_size=None,
        num_workers=workers,
        persistent_workers=persistent,
        multiprocessing_context=context if workers else None,
    )
    return data, loader


def uninterrupted(url: str, epoch: int = 0, drop_last: bool = True) -> list[list[int]]:
    loader = StreamingDataLoader(StreamingDataset(url, seed=2), BATCH, drop_last=drop_last)
    loader.set_epoch(epoch)
    return ids(loader)


@pytest.mark.slow_if("workers == 1 or (workers == 3 and taken == 1)")
@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("taken", [0, 1, 7])
def test_resume_continues_at_the_saved_position(local_url: str, workers: int, taken: int) -> None:
    _, loader = stateful(local_url, workers)
    before = ids(itertools.islice(iter(loader), taken))
    state = json.loads(json.dumps(loader.state_dict()))
    _, resumed = stateful(local_url, workers)
    resumed.load_state_dict(state)
    assert before + ids(resumed) == uninterrupted(local_url)


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (2, 3), (3, 2)])
def test_another_number_of_workers_raises(local_url: str, before: int, after: int) -> None:
    _, loader = stateful(local_url, before)
    list(itertools.islice(iter(loader), 3))
    _, other = stateful(local_url, after)
    other.load_state_dict(loader.state_dict())
    with pytest.raises(mdsx.StateError, match=rf"as many workers \(num_workers={before}\), or use StreamingDataLoader"):
        iter(other)


@pytest.mark.slow_if("workers == 1 or (workers == 2 and (batch, world) != (5, 2))")
@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize(("batch", "world"), [(4, 1), (20, 1), (5, 2), (10, 2)])
def test_another_batch_or_world_size_resumes_or_raises(local_url: str, workers: int, batch: int, world: int) -> None:
    for taken in (0, 3, LEFT):  # at the start, in the middle, and with the tail of 3 samples left
        _, loader = stateful(local_url, workers, drop_last=False)
        found = list(itertools.chain(*ids(itertools.islice(iter(loader), taken))))
        state = loader.state_dict()
        refused = workers > 1 and batch * world != BATCH and taken > 0
        for rank in range(world):
            options: dict[str, Any] = {"batch_size": batch, "drop_last": False, "rank": rank, "world_size": world}
            _, loader = stateful(local_url, workers, **options)
            loader.load_state_dict(state)
            if refused:
                with pytest.raises(mdsx.StateError, match="size = 10 until the epoch ends, or use StreamingDataLoader"):
                    iter(loader)
            else:
                found += itertools.chain(*ids(loader))
        assert refused or sorted(found) == list(range(N))


def test_state_of_several_workers_fits_no_other_loader(local_url: str) -> None:
    _, loader = stateful(local_url, 2)
    list(itertools.islice(iter(loader), 3))
    state = loader.state_dict()["_snapshot"]["_worker_snapshots"]["worker_0"]["dataset_state"]
    for other in (StreamingDataset(local_url, seed=2), StreamingDataLoader(StreamingDataset(local_url, seed=2), BATCH)):
        with pytest.raises(mdsx.StateError, match="one of several workers"):
            other.load_state_dict(state)


WAYS = pytest.mark.parametrize(("workers", "persistent"), [(0, False), (1, True), (2, False), (3, True)])


@pytest.mark.slow_if("workers in {1, 2}")
@WAYS
@pytest.mark.parametrize("drop_last", [True, False])
def test_state_at_the_last_batch_resumes_next_epoch(
    local_url: str, workers: int, persistent: bool, drop_last: bool
) -> None:
    _, loader = stateful(local_url, workers, persistent, drop_last=drop_last)
    batches = iter(loader)
    assert ids(itertools.islice(batches, LEFT + (not drop_last))) == uninterrupted(local_url, 0, drop_last)
    state = loader.state_dict()
    data, resumed = stateful(local_url, workers, persistent, drop_last=drop_last)
    resumed.load_state_dict(state)
    assert ids(resumed) == []
    for epoch in (1, 2):
        data.set_epoch(epoch)
        assert ids(resumed) == uninterrupted(local_url, epoch, drop_last)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_of_an_epochs_end_may_be_loaded_and_saved_again_before_a_batch(local_url: str, workers: int) -> None:
    """As of a job that is preempted right after it resumed."""
    _, loader = stateful(local_url, workers)
    assert ids(itertools.islice(iter(loader), LEFT)) == uninterrupted(local_url)
    for _ in range(2):
        state = json.loads(json.dumps(loader.state_dict()))
        data, loader = stateful(local_url, workers)
        loader.load_state_dict(state)
        batches = iter(loader)
    assert ids(batches) == []
    data.set_epoch(1)
    assert ids(loader) == uninterrupted(local_url, 1)


@pytest.mark.slow_if("workers in {1, 2}")
@WAYS
def test_a_later_epoch_resumes_exactly(local_url: str, workers: int, persistent: bool) -> None:
    data, loader = stateful(local_url, workers, persistent, drop_last=False)
    for epoch in range(2):
        data.set_epoch(epoch)
        before = ids(itertools.islice(iter(loader), 3))  # and leaves the epoch
    state = loader.state_dict()
    data, resumed = stateful(local_url, workers, persistent, drop_last=False)
    for _ in range(2):  # loaded twice: batches taken in between do not count
        resumed.load_state_dict(state)
        batches = iter(resumed)
        assert before + ids(itertools.islice(batches, 3)) == uninterrupted(local_url, 1)[:6]
    at_6 = resumed.state_dict()
    assert ids(batches) == uninterrupted(local_url, 1, drop_last=False)[6:]  # the shorter last batch included
    resumed.load_state_dict(at_6)
    assert ids(itertools.islice(iter(resumed), 1)) == uninterrupted(local_url, 1)[6:7]


@pytest.mark.slow
def test_resume_is_exact_for_every_start_method(local_url: str) -> None:
    """Workers are forked in the other tests."""
    _, loader = stateful(local_url, 1, context="forkserver")
    before = ids(itertools.islice(iter(loader), 3))
    _, resumed = stateful(local_url, 1, context="spawn")
    resumed.load_state_dict(loader.state_dict())
    assert before + ids(resumed) == uninterrupted(local_url)


def bad_picture(sample: dict[str, Any]) -> Any:
    if sample["id"] == 51:
        raise ValueError("bad picture")
    return {"id": sample["id"]}


@pytest.mark.slow_if("workers == 1")
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_state_resumes_at_a_failed_batch(local_url: str, workers: int) -> None:
    _, loader = stateful(local_url, workers, transform=bad_picture)
    before: list[list[int]] = []
    with pytest.raises(ValueError, match="bad picture"):
        before.extend(batch["id"].tolist() for batch in loader)
    _, resumed = stateful(local_url, workers)
    resumed.load_state_dict(loader.state_dict())
    assert before + ids(resumed) == uninterrupted(local_url)


def test_one_worker_resumes_single_samples(local_url: str) -> None:
    def make() -> StatefulDataLoader[Any]:
        data = StreamingDataset(local_url, seed=2, columns=["id"])
        return StatefulDataLoader(data, batch_size=BATCH, num_workers=1, drop_last=True)

    loader = make()
    before = ids(itertools.islice(iter(loader), 4))
    resumed = make()
    resumed.load_state_dict(loader.state_dict())
    flat = [number for batch in before + ids(resumed) for number in batch]
    assert sorted(flat) == sorted(set(flat))
    assert len(flat) == LEFT * BATCH


@pytest.mark.parametrize("workers", [0, 2])
def test_states_of_both_loaders_resume_exactly(local_url: str, workers: int) -> None:
    streaming = StreamingDataLoader(StreamingDataset(local_url, seed=2), BATCH)
    read = ids(itertools.islice(streaming, 4))
    data, loader = stateful(local_url, workers)
    data.load_state_dict(streaming.state_dict())
    batches = iter(loader)
    read += ids(itertools.islice(batches, 1))  # of two workers, one has handed out nothing yet
    _, resumed = stateful(local_url, workers)
    resumed.load_state_dict(loader.state_dict())
    assert read + ids(resumed) == uninterrupted(local_url)
