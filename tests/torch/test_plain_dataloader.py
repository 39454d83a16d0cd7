"""StreamingDataset under PyTorch's own DataLoader."""

from __future__ import annotations

import inspect
import itertools
import os
import warnings
from collections import Counter
from typing import Any

import pytest
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import mdsx
from mdsx.datasets import excerpt_of
from mdsx.torch import StreamingDataLoader, StreamingDataset


def ids(batches: Any) -> list[list[int]]:
    return [batch["id"].tolist() for batch in batches]


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_whole_batches_for_any_number_of_workers(local_url: str, workers: int) -> None:
    data = StreamingDataset(local_url, seed=3, columns=["id"], batch_size=32, rank=1, world_size=2)
    plain = DataLoader(data, batch_size=None, num_workers=workers)
    streaming = StreamingDataLoader(StreamingDataset(local_url, seed=3, rank=1, world_size=2), batch_size=32)
    for epoch in range(2):
        data.set_epoch(epoch)
        assert ids(plain) == ids(streaming)
    assert len(plain) == len(streaming) == 15


def test_one_worker_yields_samples_in_order(local_url: str) -> None:
    dataset, data = mdsx.Dataset(local_url), StreamingDataset(local_url, seed=3, columns=["id"])
    order = mdsx.Order(excerpt_of(dataset).shards.index.counts, seed=3)
    shards, samples = order.locate(range(len(order)))
    expected = [dataset[order.counts[:s].sum() + i]["id"] for s, i in zip(shards, samples, strict=True)]
    assert [sample["id"] for sample in data] == expected
    data.set_epoch(0)
    batches = DataLoader(data, batch_size=50, num_workers=1, collate_fn=lambda found: [s["id"] for s in found])
    assert [number for batch in batches for number in batch] == expected


def test_several_workers_on_single_samples_raise(local_url: str) -> None:
    with pytest.raises(mdsx.UsageError, match="StreamingDataLoader"):
        next(iter(DataLoader(StreamingDataset(local_url), num_workers=2)))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_batch_size_for_both_raises(local_url: str, workers: int) -> None:
    twice = DataLoader(StreamingDataset(local_url, batch_size=8), batch_size=4, num_workers=workers)
    with pytest.raises(mdsx.UsageError, match=r"both .* batch_size.*give the DataLoader batch_size=None"):
        next(iter(twice))
    own = DataLoader(StreamingDataset(local_url, batch_size=8), batch_size=4, num_workers=workers, collate_fn=list)
    assert [len(batch["id"]) for batch in next(iter(own))] == [8] * 4


def test_its_own_state_resumes_in_one_process(local_url: str) -> None:
    data = StreamingDataset(local_url, seed=3, batch_size=32)
    batches = iter(data)
    first = [next(batches)["id"].tolist() for _ in range(7)]
    resumed = StreamingDataset(local_url, seed=3, batch_size=32)
    resumed.load_state_dict(data.state_dict())
    whole = ids(StreamingDataset(local_url, seed=3, batch_size=32))
    assert first + ids(resumed) == whole


def test_a_dataset_is_given_as_a_dataset_too(local_url: str) -> None:
    dataset = mdsx.Dataset(local_url, mmap=False)
    assert ids(StreamingDataset(dataset, seed=3, batch_size=64)) == ids(
        StreamingDataset(local_url, seed=3, batch_size=64)
    )


# --- resuming: workers do not report their position, so the batches are counted


@pytest.mark.slow_if("options.get('num_workers') in {2, 3}")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_workers": 1},
        {"num_workers": 3},
        {"num_workers": 2, "persistent_workers": True},
        {"num_workers": 1, "multiprocessing_context": "forkserver"},
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_state_after_a_number_of_batches_resumes(local_url: str, options: dict[str, Any]) -> None:
    def make() -> tuple[StreamingDataset, DataLoader[Any]]:
        data = StreamingDataset(local_url, seed=3, columns=["id"], batch_size=100, drop_last=False)
        return data, DataLoader(data, batch_size=None, **options)

    whole, _ = make()
    expected = [ids(whole) for _ in range(3)]
    data, plain = make()
    for epoch in range(2):
        data.set_epoch(epoch)
        assert data.state_after(0) == {**data.state_dict(), "epoch": epoch, "position": 0}
        assert ids(itertools.islice(iter(plain), 5)) == expected[epoch][:5]  # and leaves the epoch
    state = data.state_after(5)
    data, plain = make()
    data.load_state_dict(state)
    assert data.epoch == 1
    for epoch, start in ((1, 5), (2, 0)):
        data.set_epoch(epoch)
        assert ids(plain) == expected[epoch][start:]
        assert data.state_after(len(expected[epoch]) - start) == {**state, "epoch": epoch + 1, "position": 0}


def test_state_after_equals_a_streaming_data_loaders_state(local_url: str) -> None:
    data = StreamingDataset(local_url, seed=3, batch_size=32, rank=0, world_size=2)
    streaming = StreamingDataLoader(StreamingDataset(local_url, seed=3, rank=1, world_size=2), 32)
    batches = iter(streaming)
    for taken in range(15):
        state = streaming.state_dict()
        assert state.pop("consumed")["steps"] == taken  # only a loader has accounts
        assert data.state_after(taken) == state
        next(batches)
    read = ids(itertools.islice(data, 4))
    other = ids(itertools.islice(StreamingDataset(local_url, seed=3, batch_size=32, rank=1, world_size=2), 4))
    rest = StreamingDataset(local_url, seed=3, batch_size=7, drop_last=False)
    rest.load_state_dict(data.state_after(4))
    workers = DataLoader(rest, batch_size=None, num_workers=2)
    assert Counter(itertools.chain(*read, *other, *ids(workers))) == Counter(range(1003))


def test_state_after_more_than_the_remaining_batches_raises(local_url: str) -> None:
    data = StreamingDataset(local_url, batch_size=100)
    with pytest.raises(mdsx.UsageError, match="the epoch has fewer batches left") as caught:
        data.state_after(11)
    assert caught.value.expected == "0 to 10"


def bad_picture(sample: dict[str, Any]) -> Any:
    if sample["id"] == 250:
        raise ValueError("bad picture")
    return sample["id"]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_failed_batch_is_retried_at_the_same_position(local_url: str, workers: int) -> None:
    data = StreamingDataset(local_url, shuffle=False, transform=bad_picture, batch_size=100)
    batches = iter(DataLoader(data, batch_size=None, num_workers=workers))
    assert [next(batches)[0].item() for _ in range(2)] == [0, 100]
    for _ in range(2):  # nothing is skipped, and the epoch does not end silently
        with pytest.raises(ValueError, match="bad picture"):
            next(batches)


# --- what the main process knows of the workers


def line() -> int:
    """Return the line of the caller."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


def shown(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    """Write a warning to stderr, also where pytest would record it."""
    os.write(2, f"{filename}:{lineno}: {message}\n".encode())


@pytest.mark.parametrize("method", ["fork"])  # a fork server keeps the stderr that it began with
def test_repeated_orders_of_workers_warn_once(local_url: str, method: str, capfd: pytest.CaptureFixture[str]) -> None:
    """The worker that notices it warns: the main process is not asked when workers start."""
    data = StreamingDataset(local_url, seed=3, batch_size=100)
    plain = DataLoader(data, batch_size=None, num_workers=1, multiprocessing_context=method)
    with warnings.catch_warnings():
        warnings.showwarning = shown
        warnings.simplefilter("always")
        found = [next(iter(plain))["id"].tolist() for _ in range(3)]
        here = line() - 1
    assert found[0] == found[1]
    (warning,) = [each for each in capfd.readouterr().err.splitlines() if "set_epoch" in each]
    assert "they repeat the order of that epoch" in warning
    assert warning.startswith(f"{__file__}:{here}: ")


@pytest.mark.parametrize(
    ("options", "loader"),
    [
        ({}, {"num_workers": 0}),
        ({}, {"num_workers": 1, "persistent_workers": True}),
        ({"shuffle": False}, {"num_workers": 1}),
    ],
    ids=str,
)
def test_workers_that_repeat_nothing_do_not_warn(
    local_url: str, options: dict[str, Any], loader: dict[str, Any]
) -> None:
    data = StreamingDataset(local_url, batch_size=100, **options)
    plain = DataLoader(data, batch_size=None, **loader)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            assert len(ids(plain)) == 10


def test_set_epoch_or_a_state_prevents_the_warning(local_url: str) -> None:
    data = StreamingDataset(local_url, batch_size=100)
    plain = DataLoader(data, batch_size=None, num_workers=1)
    valid = DataLoader(StreamingDataset(local_url, batch_size=100), batch_size=None, num_workers=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for epoch in range(2):
            data.set_epoch(epoch)
            next(iter(plain))
            if epoch == 0:
                next(iter(valid))
        data.load_state_dict(data.state_after(1))
        next(iter(plain))


def test_torchdatas_resume_does_not_warn(local_url: str) -> None:
    loader: Any = StatefulDataLoader(StreamingDataset(local_url, batch_size=100), batch_size=None, num_workers=1)
    next(iter(loader))
    loader.load_state_dict(loader.state_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        next(iter(loader))


@pytest.fixture
def mixture(local_url: str) -> mdsx.Mixture:
    whole = mdsx.Dataset(local_url)
    return mdsx.Mixture([(whole.select(0, 500), 0.9), (whole.select(500, 1000), 0.1)], epoch_samples=400)


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_reweight_raises_while_workers_read(mixture: mdsx.Mixture, method: str) -> None:
    data = StreamingDataset(mixture, batch_size=10)
    plain = DataLoader(data, batch_size=None, num_workers=1, multiprocessing_context=method)
    data.reweight([0.8, 0.2])  # nothing was read yet
    data.set_epoch(0)
    next(iter(plain))
    before = data.state_dict()
    with pytest.raises(mdsx.UsageError, match="load state_after"):
        data.reweight([0.1, 0.9])
    assert data.state_dict() == before


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_running_loop_continues_with_the_proportions_of_its_state(mixture: mdsx.Mixture, wrapped: bool) -> None:
    data = StreamingDataset(mixture, seed=1, batch_size=10)
    batches = iter(DataLoader(data, batch_size=None) if wrapped else data)
    before = ids(itertools.islice(batches, 20))
    data.reweight([0.5, 0.5])
    resumed = StreamingDataset(mixture, seed=1, batch_size=10)
    resumed.load_state_dict(data.state_dict())
    after = ids(batches)
    assert after == ids(resumed)
    assert sum(number >= 500 for number in itertools.chain(*after)) == pytest.approx(100, abs=6)
    assert len(set(itertools.chain(*before, *after))) == 400


@pytest.mark.parametrize("workers", [0, 2])
def test_the_documented_reweighting_with_workers_repeats_nothing(mixture: mdsx.Mixture, workers: int) -> None:
    first = StreamingDataset(mixture, seed=1, batch_size=10)
    found = ids(itertools.islice(iter(DataLoader(first, batch_size=None, num_workers=workers)), 20))
    second = StreamingDataset(mixture, seed=1, batch_size=10)
    second.load_state_dict(first.state_after(20))
    second.reweight([0.5, 0.5])
    found += ids(DataLoader(second, batch_size=None, num_workers=workers))
    counts = Counter(itertools.chain(*found))
    assert sum(counts.values()) == 400
    assert max(counts.values()) == 1


@pytest.mark.parametrize("method", ["fork"])
def test_one_worker_warns_of_costs_once(tmp_path: Any, method: str, capfd: pytest.CaptureFixture[str]) -> None:
    with mdsx.Writer(tmp_path / "d", {"data": "uint8[512]"}, shard_size=4096, compression="zstd") as out:
        for _ in range(700):
            out.write({"data": [7] * 512})
    data = StreamingDataset(tmp_path / "d", batch_size=10, cache=mdsx.Cache(tmp_path / "cache", limit=65536))
    with warnings.catch_warnings():
        warnings.showwarning = shown
        warnings.simplefilter("always")
        for epoch in range(2):
            data.set_epoch(epoch)
            next(iter(DataLoader(data, batch_size=None, num_workers=2, multiprocessing_context=method)))
    assert capfd.readouterr().err.count("the cache may hold") == 1
