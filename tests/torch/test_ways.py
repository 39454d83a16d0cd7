"""Every way of running a StreamingDataLoader reads the same samples and resumes exactly."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset

from .test_loader import ids

N = 1003
BATCH = 32
WAYS: dict[str, dict[str, Any]] = {
    "a thread": {},
    "1 worker": {"num_workers": 1},
    "4 workers": {"num_workers": 4},
    "persistent workers": {"num_workers": 2, "persistent_workers": True},
    "a spawned worker": {"num_workers": 1, "multiprocessing_context": "spawn", "persistent_workers": True},
    "a worker of a fork server": {"num_workers": 1, "multiprocessing_context": "forkserver"},
}


def loader(url: str, way: str, **options: Any) -> StreamingDataLoader:
    return StreamingDataLoader(StreamingDataset(url, seed=6), BATCH, **{**WAYS[way], **options})


@pytest.fixture(scope="module")
def expected(local_url: str) -> list[list[list[int]]]:
    """The batches of three epochs, each with a shorter last batch."""
    whole = loader(local_url, "a thread", drop_last=False)
    return [ids(whole) for _ in range(3)]


@pytest.mark.slow_if("id not in {'4 workers-persistent workers', '1 worker-a thread'}")
@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more workers than cores
@pytest.mark.parametrize(
    ("way", "other"),
    [
        ("a thread", "1 worker"),
        ("1 worker", "a thread"),
        ("4 workers", "persistent workers"),
        ("persistent workers", "4 workers"),
        ("a spawned worker", "a worker of a fork server"),
    ],
)
def test_a_stopped_or_abandoned_epoch_resumes_exactly_another_way(
    local_url: str, expected: list[list[list[int]]], way: str, other: str
) -> None:
    first = loader(local_url, way, drop_last=False)
    at_start = first.state_dict()
    assert ids(itertools.islice(first, 5)) == expected[0][:5]
    in_midst = first.state_dict()
    assert ids(itertools.islice(first, 3)) == expected[1][:3]  # the epoch was left, so the next one comes
    assert ids(first) == expected[2]  # to its end, with the shorter batch
    assert (first.epoch, first.state_dict()["position"]) == (3, 0)

    again = loader(local_url, other, drop_last=False)
    for state, epoch, number in ((in_midst, 0, 5), (at_start, 0, 0), (in_midst, 0, 5)):  # twice: the last one counts
        again.load_state_dict(state)
        assert (again.epoch, again.remaining) == (epoch, 32 - number)
    batches = iter(again)
    assert ids(itertools.islice(batches, 26)) == expected[0][5:31]
    before_the_last = again.state_dict()
    assert ids(batches) == expected[0][31:]
    assert len(expected[0][31]) == N % BATCH
    at_end = again.state_dict()

    again.load_state_dict(before_the_last)
    assert ids(again) == expected[0][31:]
    again.load_state_dict(at_end)
    assert ids(again) == expected[1]


def test_a_projection_may_change_on_resume(local_url: str) -> None:
    first = loader(local_url, "a thread")
    list(itertools.islice(first, 2))
    data = StreamingDataset(local_url, seed=6, columns={"number": "id", "text": "text"})
    resumed = StreamingDataLoader(data, BATCH)
    resumed.load_state_dict(first.state_dict())
    batch = next(iter(resumed))
    assert list(batch) == ["number", "text"]
    assert batch["text"] == [f"text of {number}" for number in batch["number"].tolist()]


def test_an_unused_iteration_follows_set_epoch_and_states(local_url: str, expected: list[list[list[int]]]) -> None:
    """Frameworks begin to iterate, and then load a state or set the epoch."""
    one = loader(local_url, "a thread", drop_last=False)
    batches = iter(one)
    one.sampler.set_epoch(1)
    assert next(batches)["id"].tolist() == expected[1][0]
    state = one.state_dict()
    other = loader(local_url, "a thread", drop_last=False)
    batches = iter(other)
    other.load_state_dict(state)
    assert ids(batches) == expected[1][1:]


def test_ranks_may_appear_after_the_loader_is_made(local_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    early = StreamingDataLoader(StreamingDataset(local_url, seed=6), BATCH)
    assert len(early) == 31
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(mdsx.UsageError, match="RANK is not set"):  # a guess would read samples twice
        iter(early)
    monkeypatch.setenv("RANK", "1")
    given = StreamingDataLoader(StreamingDataset(local_url, seed=6, rank=1, world_size=2), BATCH)
    assert ids(early) == ids(given)
    assert len(early) == 15
