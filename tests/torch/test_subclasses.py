"""Subclasses whose methods a loader would ignore are refused; those that PyTorch's DataLoader calls work."""

from __future__ import annotations

from typing import Any

import pytest
from torch.utils.data import DataLoader

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset, collate


class Reader:
    """A mix-in in the way of MosaicML's Streaming."""

    def __getitem__(self, number: Any) -> Any:
        return {**super().__getitem__(number), "id": -1}  # type: ignore[misc]  # of the other base


def test_a_subclass_that_reads_by_number_cannot_be_made() -> None:
    message = "overrides __getitem__, which is never called.*transform="
    with pytest.raises(mdsx.UsageError, match=message):

        class Mine(StreamingDataset):
            def __getitem__(self, number: Any) -> Any:
                return -1

    with pytest.raises(mdsx.UsageError, match=message):

        class Mixed(Reader, StreamingDataset):
            pass


class Iterated(StreamingDataset):
    def __iter__(self) -> Any:
        for batch in super().__iter__():
            yield {"id": batch["id"] + 1000}


def test_a_loader_refuses_a_subclass_whose_iter_it_ignores(local_url: str) -> None:
    with pytest.raises(mdsx.UsageError, match=r"Iterated overrides __iter__.*transform=.*batch_size=None"):
        StreamingDataLoader(Iterated(local_url), 8)
    plain = DataLoader(Iterated(local_url, shuffle=False, batch_size=4), batch_size=None)
    assert next(iter(plain))["id"].tolist() == [1000, 1001, 1002, 1003]


class Quiet(StreamingDataset):
    def __init__(self, url: str) -> None:
        super().__init__(url, shuffle=False, transform=self.change)

    def change(self, sample: dict[str, Any]) -> Any:
        return -sample["id"]


def test_a_subclass_with_a_transform_works(local_url: str) -> None:
    for workers in (0, 1):
        loader = StreamingDataLoader(Quiet(local_url), 3, num_workers=workers)
        assert next(iter(loader)).tolist() == [0, -1, -2]


class ByNumber(Reader, mdsx.Dataset):
    pass


class One(mdsx.Dataset):
    def __getitem__(self, number: Any) -> Any:  # one at a time only
        return super().__getitem__(int(number))["id"] + 5000


def test_pytorchs_loader_reads_a_datasets_subclass_by_number(local_url: str) -> None:
    datasets: list[Any] = [One(local_url), One(local_url).select(0, 100)]
    for dataset in datasets:
        assert type(dataset).__name__ == "One"
        loader: Any = DataLoader(dataset, batch_size=4, collate_fn=collate)
        assert next(iter(loader)).tolist() == [5000, 5001, 5002, 5003]
        assert next(iter(dataset)) == 5000


def test_batches_of_a_datasets_subclass_are_refused(local_url: str) -> None:
    mine = ByNumber(local_url).select(0, 10)
    for make in (
        lambda: StreamingDataset(mine),
        lambda: mdsx.Loader(mine, 4),
        lambda: mdsx.Mixture([mine]),
        lambda: mdsx.zip(mine),
    ):
        with pytest.raises(mdsx.UsageError, match=r"ByNumber overrides __getitem__, .*transform="):
            make()
