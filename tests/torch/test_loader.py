"""StreamingDataLoader: the content of batches, the end of an epoch, and equal results for any number of workers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import mdsx
from mdsx.datasets import excerpt_of
from mdsx.torch import StreamingDataLoader, StreamingDataset
from tests.order.positions import rank_positions
from tests.torch.conftest import sample

N = 1003


def ids(batches: Any) -> list[list[int]]:
    return [batch["id"].tolist() for batch in batches]


def order_of(url: str, loader: StreamingDataLoader) -> mdsx.Order:
    state = loader.state_dict()
    options = {name: state[name] for name in ("shuffle", "lanes", "shuffle_block")}
    return mdsx.Order(excerpt_of(mdsx.Dataset(url)).shards.index.counts, seed=int(state["seed"]), **options)


def expected(order: mdsx.Order, batch: int, rank: int = 0, world: int = 1) -> list[list[int]]:
    """Return the sample numbers in each batch of a rank, without the tail."""
    first = np.concatenate(([0], np.cumsum(order.counts)))
    found = []
    for start in range(0, N - batch * world + 1, batch * world):
        positions = rank_positions(start, start + batch * world, lanes=order.lanes, rank=rank, world_size=world)
        shards, samples = order.locate(positions)
        found.append((first[shards] + samples).tolist())
    return found


def test_a_batch_is_a_dict_of_tensors_and_lists(local_url: str) -> None:
    batch = next(iter(StreamingDataLoader(StreamingDataset(local_url, shuffle=False), batch_size=4)))
    assert batch["id"].dtype == torch.int64
    assert batch["id"].tolist() == [0, 1, 2, 3]
    assert batch["tokens"].dtype == torch.uint16
    assert batch["tokens"].tolist() == [list(range(n, n + 8)) for n in range(4)]
    assert batch["half"].dtype == torch.bfloat16
    assert batch["half"].tolist() == [[n, 0.5] for n in range(4)]
    assert batch["flag"].dtype == torch.bool
    assert batch["flag"].tolist() == [True, False, False, True]
    assert batch["text"] == [f"text of {n}" for n in range(4)]
    assert batch["maybe"][1] is None
    assert batch["maybe"][2].tolist() == [2.0, 2.0]


@pytest.mark.slow_if("workers == 3 and rank == 0")
@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("rank", [0, 2])
def test_batches_follow_the_order_for_any_number_of_workers(local_url: str, workers: int, rank: int) -> None:
    data = StreamingDataset(local_url, seed=5, rank=rank, world_size=3)
    loader = StreamingDataLoader(data, batch_size=16, num_workers=workers)
    order = order_of(local_url, loader)
    for epoch in range(2):
        assert ids(loader) == expected(order.at_epoch(epoch), 16, rank, 3)


@pytest.mark.slow
def test_batches_from_s3_through_a_small_cache_are_equal(remote_url: str, tmp_path: Any) -> None:
    data = StreamingDataset(remote_url, seed=5, cache=mdsx.Cache(tmp_path / "cache", limit=20_000))
    loader = StreamingDataLoader(data, batch_size=32)
    with pytest.warns(UserWarning, match="the cache may hold"):
        assert ids(loader) == expected(order_of(remote_url, loader).at_epoch(0), 32)
    workers = StreamingDataLoader(data, batch_size=32, num_workers=2)
    assert ids(workers) == expected(order_of(remote_url, workers).at_epoch(0), 32)
    assert sum(path.stat().st_size for path in (tmp_path / "cache").rglob("*") if path.is_file()) <= 20_000


def test_every_column_of_every_sample_arrives_complete(local_url: str) -> None:
    for batch in StreamingDataLoader(StreamingDataset(local_url), batch_size=50, drop_last=False):
        for place, number in enumerate(batch["id"].tolist()):
            written = sample(number)
            assert batch["tokens"][place].tolist() == list(range(number, number + 8))
            assert batch["text"][place] == written["text"]
            assert batch["flag"][place].item() == written["flag"]
            maybe = batch["maybe"][place]
            assert maybe is None if number % 2 else maybe.tolist() == [number] * (number % 5)


# --- the ends of an epoch


def test_a_streaming_dataset_is_not_read_by_number(local_url: str) -> None:
    with pytest.raises(mdsx.UsageError, match=r"not by number; mdsx\.Dataset\(url\)\[i\] reads a sample"):
        StreamingDataset(local_url)[0]
    with pytest.raises(mdsx.UsageError, match=r"found Dataset\); give StreamingDataset\(url\)"):
        StreamingDataLoader(mdsx.Dataset(local_url), batch_size=2)  # type: ignore[arg-type]
    with pytest.raises(AttributeError, match=r"StreamingDataset': it is in mdsx\.torch"):
        mdsx.StreamingDataset  # type: ignore[attr-defined]  # noqa: B018


def test_len_and_remaining_and_epoch(local_url: str) -> None:
    loader = StreamingDataLoader(StreamingDataset(local_url), batch_size=100)
    assert (len(loader), loader.remaining, loader.epoch) == (10, 10, 0)
    batches = iter(loader)
    for left in range(9, 0, -1):
        next(batches)
        assert (loader.remaining, loader.epoch) == (left, 0)
    next(batches)
    assert (loader.remaining, loader.epoch) == (10, 1)  # past the dropped tail of 3
    assert (loader.state_dict()["epoch"], loader.state_dict()["position"]) == (1, 0)
    with pytest.raises(StopIteration):
        next(batches)


def test_a_kept_tail_is_split_over_the_ranks(local_url: str) -> None:
    last = []
    for rank in range(8):  # 1003 = 125 * 8 + 3
        data = StreamingDataset(local_url, rank=rank, world_size=8)
        batches = list(StreamingDataLoader(data, batch_size=5, drop_last=False))
        assert len(batches) == 26
        last.append(batches[-1])
    assert sum(len(batch["id"]) for batch in last) == 3
    empty = next(batch for batch in last if len(batch["id"]) == 0)
    assert empty["tokens"].shape == (0, 8)
    assert empty["tokens"].dtype == torch.uint16
    assert empty["text"] == []


def test_an_epoch_without_a_batch_raises(local_url: str) -> None:
    with pytest.raises(mdsx.UsageError, match="drop_last"):
        iter(StreamingDataLoader(StreamingDataset(local_url), batch_size=2000))


# --- transform and collate_fn


def test_transform_gets_samples_and_pytorch_collates_its_results(local_url: str) -> None:
    data = StreamingDataset(local_url, shuffle=False, transform=lambda found: (found["id"], found["tokens"] + 1))
    numbers, tokens = next(iter(StreamingDataLoader(data, batch_size=3)))
    assert numbers.tolist() == [0, 1, 2]
    assert tokens.tolist() == [list(range(n + 1, n + 9)) for n in range(3)]


def test_collate_fn_gets_the_list_of_samples(local_url: str) -> None:
    data = StreamingDataset(local_url, shuffle=False)
    loader = StreamingDataLoader(data, batch_size=3, collate_fn=lambda found: [s["text"] for s in found])
    assert next(iter(loader)) == ["text of 0", "text of 1", "text of 2"]


def fail_at_250(found: dict[str, Any]) -> Any:
    if found["id"] == 250:
        raise ValueError("bad picture")
    return found["id"]


@pytest.mark.parametrize("workers", [0, 2])
def test_transform_error_is_raised_at_its_batch(local_url: str, workers: int) -> None:
    data = StreamingDataset(local_url, shuffle=False, transform=fail_at_250)
    loader = StreamingDataLoader(data, batch_size=100, num_workers=workers)
    batches = iter(loader)
    assert next(batches)[0] == 0
    assert next(batches)[0] == 100
    for _ in range(2):  # again, and again from the same place: nothing is skipped
        with pytest.raises(ValueError, match="bad picture") as caught:
            next(batches)
        message = str(caught.value) + "".join(getattr(caught.value, "__notes__", []))
        shard, place = (int(found[0]) for found in order_of(local_url, loader).locate([250]))
        assert f"position 250, shard {shard}, sample {place}" in message
        assert loader.state_dict()["position"] == 200


@pytest.mark.parametrize("workers", [0, 1])
def test_stop_iteration_in_transform_is_an_error_not_an_end(local_url: str, workers: int) -> None:
    data = StreamingDataset(local_url, transform=lambda found: next(iter(())))
    with pytest.raises(RuntimeError, match="transform raised StopIteration"):
        next(iter(StreamingDataLoader(data, batch_size=10, num_workers=workers)))


# --- states and misuse


def test_rank_and_world_size_default_to_the_environment(local_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    found, same = StreamingDataset(local_url), StreamingDataset(local_url, rank=1, world_size=2)
    assert ids(StreamingDataLoader(found, 50)) == ids(StreamingDataLoader(same, 50))
    assert len(StreamingDataLoader(StreamingDataset(local_url, rank=0, world_size=4), 50)) == 5
    with pytest.raises(mdsx.UsageError, match="together"):
        StreamingDataset(local_url, rank=0)
    with pytest.raises(mdsx.UsageError, match="below world_size"):
        StreamingDataset(local_url, rank=4, world_size=4)
