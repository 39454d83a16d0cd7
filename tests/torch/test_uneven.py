"""Validation on several ranks: any number of samples and ranks, after any transform and most collations."""

from __future__ import annotations

from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset
from tests import fork_server

COUNTS = [1, 2, 3, 4, 5, 16, 17, 18, 31, 32]
RANKS = 4
Pair = namedtuple("Pair", ["id", "text"])


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("uneven") / "d"
    columns = {"id": "int64", "image": "float32[2,3]", "text": "str", "meta": "json?"}
    with mdsx.Writer(path, columns) as out:
        for number in range(max(COUNTS)):
            meta = None if number % 2 else {"page": number}
            out.write({"id": number, "image": np.full((2, 3), number), "text": f"t{number}", "meta": meta})
    return str(path)


def rich(sample: dict[str, Any]) -> Any:
    point = Pair(int(sample["id"]), sample["text"])
    return {"id": int(sample["id"]), "image": sample["image"] * 2, "pair": point, "meta": sample["meta"]}


def as_tuple(sample: dict[str, Any]) -> Any:
    return sample["image"], sample["id"]


def listed(samples: list[dict[str, Any]]) -> Any:
    return {
        "id": [int(sample.pop("id")) for sample in samples],
        "count": len(samples),
        "name": "validation",
        "joined": torch.cat([torch.from_numpy(sample["image"]).ravel() for sample in samples]),
        "offsets": torch.arange(len(samples) + 1) * 6,
        "by time": torch.stack([torch.from_numpy(sample["image"]) for sample in samples], dim=1),
    }


def loader(url: str, count: int, rank: int, transform: Any = None, **options: Any) -> StreamingDataLoader:
    whole = mdsx.Dataset(url).select(0, count)
    data = StreamingDataset(whole, shuffle=False, transform=transform, rank=rank, world_size=RANKS)
    return StreamingDataLoader(data, 4, drop_last=False, **options)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("collate_fn", [None, listed])
@pytest.mark.parametrize("transform", [None, rich])
def test_every_sample_comes_once_for_any_count(url: str, count: int, transform: Any, collate_fn: Any) -> None:
    if transform is not None and collate_fn is not None:
        transform = dict
    found = [list(loader(url, count, rank, transform, collate_fn=collate_fn)) for rank in range(RANKS)]
    assert len({len(batches) for batches in found}) == 1
    assert sorted(int(n) for batches in found for batch in batches for n in batch["id"]) == list(range(count))


@pytest.mark.parametrize("workers", [0, 1])
def test_an_empty_batch_has_the_structure_of_the_others(url: str, workers: int) -> None:
    batch = list(loader(url, 17, 0, rich, num_workers=workers))[-1]
    assert batch["id"].shape == (0,)
    assert batch["image"].shape == (0, 2, 3)
    assert (batch["id"].dtype, batch["image"].dtype) == (torch.int64, torch.float32)
    assert type(batch["pair"]) is Pair
    assert batch["pair"].id.shape == (0,)
    assert batch["pair"].text == []


def test_an_empty_batch_of_a_collate_fn_is_its_cut_batch(url: str) -> None:
    batch = list(loader(url, 17, 0, collate_fn=listed))[-1]
    assert (batch["id"], batch["count"], batch["name"]) == ([], 0, "validation")
    assert batch["joined"].shape == (0,)
    assert batch["offsets"].tolist() == [0]
    assert batch["by time"].shape == (2, 0, 3)


def test_uneven_ranks_work_under_a_plain_dataloader(url: str) -> None:
    whole = mdsx.Dataset(url).select(0, 17)
    data = StreamingDataset(
        whole, shuffle=False, batch_size=4, drop_last=False, transform=as_tuple, rank=0, world_size=RANKS
    )
    for plain in (data, DataLoader(data, batch_size=None)):
        image, number = list(plain)[-1]
        assert (image.shape, number.shape) == ((0, 2, 3), (0,))
        if plain is data:
            data.set_epoch(0)


@pytest.mark.slow_if("workers == 2 and transform is not None")
@pytest.mark.parametrize("transform", [None, rich, as_tuple])
@pytest.mark.parametrize(("count", "workers"), [(1, 0), (17, 0), (32, 0), (17, 2)])
def test_with_repeat_every_batch_has_samples_and_a_mask(url: str, count: int, transform: Any, workers: int) -> None:
    valid = []
    for rank in range(RANKS):
        for batch in loader(url, count, rank, transform, uneven="repeat", num_workers=workers):
            numbers, mask = (batch[0][1], batch[1]) if transform is as_tuple else (batch["id"], batch["valid"])
            assert mask.dtype == torch.bool
            assert mask.shape == numbers.shape
            assert len(numbers) >= 1
            valid += numbers[mask].tolist()
    assert sorted(valid) == list(range(count))


@pytest.mark.parametrize(
    "options",
    [{}, {"transform": rich}, {"collate_fn": listed, "transform": dict}],
    ids=["columns", "transform", "collate_fn"],
)
@pytest.mark.parametrize(("count", "workers"), [(18, 0), (19, 0), (31, 0), (31, 1)])
def test_with_repeat_all_ranks_have_equal_batches(url: str, count: int, options: dict[str, Any], workers: int) -> None:
    """So a loop may gather tensors, and take those that the gathered mask selects."""
    loaders = [loader(url, count, rank, **options, uneven="repeat", num_workers=workers) for rank in range(RANKS)]
    found = []
    for batches in zip(*loaders, strict=True):
        assert len({len(batch["id"]) for batch in batches}) == 1
        assert len({tuple(batch["valid"].shape) for batch in batches}) == 1
        gathered = torch.cat([torch.as_tensor(batch["id"]) for batch in batches])
        found += gathered[torch.cat([batch["valid"] for batch in batches])].tolist()
    assert sorted(found) == list(range(count))


@pytest.mark.parametrize("collate_fn", [None, listed])
def test_with_repeat_skipped_samples_leave_batches_equal(url: str, collate_fn: Any) -> None:
    def change(sample: dict[str, Any]) -> Any:
        if sample["id"] in (1, 17, 18):  # 18 is all that a rank has
            raise ValueError("bad")
        return sample

    options: dict[str, Any] = {"uneven": "repeat", "on_error": "skip", "collate_fn": collate_fn}
    found = []
    for batches in zip(*(loader(url, 20, rank, change, **options) for rank in range(RANKS)), strict=True):
        assert len({len(batch["id"]) for batch in batches}) == 1
        found += [int(n) for batch in batches for n, ok in zip(batch["id"], batch["valid"], strict=True) if ok]
    assert sorted(found) == [number for number in range(20) if number not in (1, 17, 18)]


def evaluate(url: str, rank: int, meeting: str) -> list[int]:
    """Gather the samples of all ranks, batch by batch, as an evaluation does."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=3)
    data = StreamingDataset(mdsx.Dataset(url).select(0, 29), shuffle=False)
    found = []
    for batch in StreamingDataLoader(data, 4, drop_last=False, uneven="repeat"):  # 12, 12 and 5 samples
        parts = []
        for name in ("id", "valid"):
            parts.append([torch.empty_like(batch[name]) for _ in range(3)])
            torch.distributed.all_gather(parts[-1], batch[name])
        ids, mask = map(torch.cat, parts)
        found += ids[mask].tolist()
    torch.distributed.destroy_process_group()
    return found


def test_three_processes_that_gather_tensors_have_each_sample_once(url: str, tmp_path: Path) -> None:
    calls = [(url, rank, str(tmp_path / "meeting")) for rank in range(3)]
    found = fork_server.call_all(evaluate, calls)
    assert [sorted(numbers) for numbers in found] == [list(range(29))] * 3


class Opaque:
    def __init__(self, samples: Any) -> None:
        self.samples = samples


def test_a_collate_fn_that_allows_neither_raises_immediately(url: str) -> None:
    with pytest.raises(mdsx.UsageError, match=r"batch\['all'\].*uneven='repeat'"):
        loader(url, 17, 3, collate_fn=lambda samples: {"all": Opaque(samples)})
    loader(url, 16, 3, collate_fn=Opaque)  # each rank has a sample in each batch
    batches = list(loader(url, 17, 0, collate_fn=Opaque, uneven="repeat"))
    assert len(batches) == 2
    assert batches[-1][1].tolist() == [False]


def test_an_unsuitable_collate_fn_raises_once_ranks_exist(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    data = StreamingDataset(mdsx.Dataset(url).select(0, 17), shuffle=False)
    early = StreamingDataLoader(data, 4, drop_last=False, collate_fn=Opaque)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(mdsx.UsageError, match="cannot be cut to 0 samples"):
        iter(early)


def test_a_collate_fn_that_fails_raises_immediately(url: str) -> None:
    def collate(samples: list[Any]) -> Any:
        raise KeyError("here")

    with pytest.raises(KeyError, match="here"):
        loader(url, 17, 0, collate_fn=collate)


def test_repeat_raises_where_it_cannot_add_a_mask(url: str) -> None:
    with pytest.raises(mdsx.UsageError, match="'empty' or 'repeat'"):
        loader(url, 17, 0, uneven="pad")
    data = StreamingDataset(url, columns={"valid": "id"})
    with pytest.raises(mdsx.UsageError, match="adds 'valid'"):
        StreamingDataLoader(data, 4, uneven="repeat")
