"""`info_column` and seeded transforms: the same for each sample, however it is read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import mdsx
from mdsx.order import key
from mdsx.torch import StreamingDataLoader, StreamingDataset

N, SEED = 60, 7
FIELDS = ["epoch", "position", "dataset", "sample", "seed"]


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two datasets of several shards; a sample holds its number."""
    found = []
    for start in (0, 1000):
        found.append(str(tmp_path_factory.mktemp("info") / "d"))
        with mdsx.Writer(found[-1], {"id": "int64", "text": "str"}, shard_size=1024) as out:
            for number in range(start, start + N):
                out.write({"id": number, "text": str(number)})
    return found


def dataset(source: Any, **options: Any) -> StreamingDataset:
    return StreamingDataset(source, seed=SEED, **{"info_column": "_info", **options})


def read(loader: Any) -> dict[int, tuple[int, ...]]:
    """Return what each sample's info says, by the number that it holds."""
    found = {}
    for batch in loader:
        info = batch["_info"]
        assert list(info) == FIELDS
        assert [str(info[name].dtype) for name in FIELDS] == ["torch.int64"] * 4 + ["torch.uint64"]
        rows = zip(*(info[name].tolist() for name in FIELDS), strict=True)
        found.update(dict(zip(batch["id"].tolist(), rows, strict=True)))
    return found


def identity(sample: Any) -> Any:
    return sample


def drawn(sample: Any, rng: np.random.Generator) -> Any:
    return {"id": int(sample["id"]), "drawn": rng.integers(2**62)}


@pytest.mark.parametrize("transform", [None, identity])
@pytest.mark.parametrize("workers", [0, 2])
def test_each_sample_says_where_it_is_from(urls: list[str], transform: Any, workers: int) -> None:
    mixture = mdsx.Mixture([(mdsx.Dataset(urls[0]).select(5, 55), 1), (urls[1], 2)], epoch_samples=90)
    loader = StreamingDataLoader(dataset(mixture, transform=transform), 9, num_workers=workers)
    loader.set_epoch(3)
    found = read(loader)
    assert sorted(position for _, position, *_ in found.values()) == sorted({p for _, p, *_ in found.values()})
    assert {component for _, _, component, _, _ in found.values()} == {0, 1}
    for number, (epoch, position, component, sample, seed) in found.items():
        assert (epoch, divmod(number, 1000)) == (3, (component, sample))
        assert seed == key(SEED, 8, 3, position)
        assert 0 <= position < 90


def test_every_way_of_reading_gives_the_same_info(urls: list[str]) -> None:
    expected = read(StreamingDataLoader(dataset(urls[0]), 8, drop_last=False))
    assert len(expected) == N
    assert sorted(position for _, position, *_ in expected.values()) == list(range(N))
    by_hand = {int(sample["id"]): tuple(sample["_info"].values()) for sample in dataset(urls[0])}
    assert by_hand == expected
    batched = dataset(urls[0], batch_size=7, drop_last=False)
    assert read(batched) == expected
    plain: DataLoader[Any] = DataLoader(dataset(urls[0], batch_size=7, drop_last=False), batch_size=None, num_workers=1)
    assert read(plain) == expected
    assert read(StreamingDataLoader(dataset(urls[0]), 1, num_workers=1)) == expected
    for rank in range(3):
        options: dict[str, Any] = {"rank": rank, "world_size": 3}
        part = read(StreamingDataLoader(dataset(urls[0], **options), 5, drop_last=False, on_error="skip"))
        assert len(part) == N // 3
        assert part.items() <= expected.items()


@pytest.mark.parametrize("transform", [None, identity])
def test_a_rank_without_samples_has_empty_info(urls: list[str], transform: Any) -> None:
    data = dataset(mdsx.Dataset(urls[0]).select(0, 5), rank=0, world_size=2, transform=transform)
    first, second = StreamingDataLoader(data, 2, drop_last=False)
    assert len(first["id"]) == 2
    assert len(second["id"]) == 0
    assert {(name, tuple(values.shape), str(values.dtype)) for name, values in second["_info"].items()} == {
        *((name, (0,), "torch.int64") for name in FIELDS[:4]),
        ("seed", (0,), "torch.uint64"),
    }


def test_a_column_of_that_name_is_refused(urls: list[str]) -> None:
    with pytest.raises(mdsx.UsageError, match="info_column"):
        dataset(urls[0], info_column="id")


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_seeded_transform_is_the_same_after_a_resume(urls: list[str], on_error: Any) -> None:
    def loader(batch: int = 10, **options: Any) -> StreamingDataLoader:
        workers = options.pop("num_workers", 0)
        data = dataset(urls[0], random_transform=drawn, info_column=None, **options)
        return StreamingDataLoader(data, batch, num_workers=workers, on_error=on_error)

    def values(batches: Any) -> dict[int, int]:
        pairs = [zip(batch["id"].tolist(), batch["drawn"].tolist(), strict=True) for batch in batches]
        return {number: value for batch in pairs for number, value in batch}

    whole = loader()
    first, second = values(whole), values(whole)
    assert len(set(first.values()) | set(second.values())) == 2 * N
    positions = {
        number: position for number, (_, position, *_) in read(StreamingDataLoader(dataset(urls[0]), 10)).items()
    }
    for number, value in first.items():
        rng = np.random.Generator(np.random.PCG64(key(SEED, 8, 0, positions[number])))
        assert rng.integers(2**62) == value
    before = loader()
    iterator = iter(before)
    taken = values([next(iterator), next(iterator)])
    for options in ({}, {"num_workers": 1}, {"batch": 4}):
        after = loader(**options)
        after.load_state_dict(before.state_dict())
        rest = values(after)
        assert {**taken, **rest} == first
        assert len(taken) + len(rest) == N
    by_hand = {
        sample["id"]: int(sample["drawn"]) for sample in dataset(urls[0], random_transform=drawn, info_column=None)
    }
    assert by_hand == first


def test_info_is_collated_to_tensors(urls: list[str]) -> None:
    samples = list(dataset(urls[0]))[:3]
    joined = mdsx.torch.collate(samples)["_info"]
    assert joined["seed"].dtype == torch.uint64
    assert joined["seed"].tolist() == [sample["_info"]["seed"] for sample in samples]
    assert joined["position"].dtype == torch.int64
