"""Worker processes of the loaders: what a transform knows in them, and how tensors come from them."""

from __future__ import annotations

import random
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset, get_worker_info

import mdsx
from mdsx.base.work.parcels import pack, unpack
from mdsx.torch import StreamingDataLoader, StreamingDataset

Pair = namedtuple("Pair", "first second")
N = 1003


def drawn(_: Any) -> Any:
    info = get_worker_info()
    assert info is not None
    return info.id, info.num_workers, info.seed, random.random(), np.random.random(), torch.rand(1).item()


class Drawing(TensorDataset):
    def __getitem__(self, index: Any) -> Any:
        return drawn(index)


def first(samples: list[Any]) -> Any:
    return samples[0]


def test_workers_have_the_seeds_of_pytorchs_workers(local_url: str) -> None:
    """Programs keep their streams of random numbers, in the workers and in the main process."""
    loader = StreamingDataLoader(StreamingDataset(local_url, transform=drawn), 1, num_workers=2, collate_fn=first)
    plain: Any = DataLoader(Drawing(torch.zeros(9)), num_workers=2, collate_fn=first)
    found = []
    for each in (loader, plain):
        torch.manual_seed(5)
        batches = iter(each)
        found.append([next(batches), next(batches), torch.rand(1).item()])
        del batches
    assert found[0] == found[1]


def test_forked_workers_leave_cuda_alone(local_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a process has initialised CUDA, PyTorch raises this error in its forked children at each use of CUDA."""

    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError("Cannot re-initialize CUDA in forked subprocess")

    for name in ("_lazy_init", "_lazy_call", "_queued_calls"):
        monkeypatch.setattr(torch.cuda, name, refuse)
    for name in ("is_available", "is_initialized"):
        monkeypatch.setattr(torch.cuda, name, lambda: True)
    loader = StreamingDataLoader(
        StreamingDataset(local_url), 100, drop_last=False, num_workers=2, multiprocessing_context="fork"
    )
    with pytest.raises(RuntimeError, match="re-initialize CUDA"):
        torch.cuda.manual_seed(1)
    assert sum(len(batch["id"]) for batch in loader) == N


def here(_: Any) -> Any:
    return mdsx.worker_info(), torch.get_num_threads(), random.random()


def test_loaders_without_pytorch_have_workers_too(local_url: str) -> None:
    """They are seeded from the run's seed: other numbers in each epoch, the same in each program."""
    options: dict[str, Any] = {"transform": here, "num_workers": 2, "collate_fn": first, "rank": 0, "world_size": 1}
    epochs = [[list(mdsx.Loader(local_url, 500, seed=seed, **options)) for _ in range(2)] for seed in (1, 2)]
    assert epochs[0][0] == epochs[0][1]
    assert {info.id for info, _, _ in epochs[0][0]} == {0, 1}
    assert not {draw for _, _, draw in epochs[0][0]} & {draw for _, _, draw in epochs[1][0]}
    loader = mdsx.Loader(local_url, 500, seed=1, **options)
    assert {draw for _, _, draw in loader} & {draw for _, _, draw in loader} == set()


@pytest.mark.parametrize("options", [{"num_workers": 2}, {"num_threads": 3}], ids=str)
def test_every_loader_reads_the_same_with_threads_and_processes(local_url: str, options: dict[str, Any]) -> None:
    expected = [batch["id"].tolist() for batch in StreamingDataLoader(StreamingDataset(local_url, seed=4), 32)]
    loader = StreamingDataLoader(StreamingDataset(local_url, seed=4), 32, **options)
    assert [batch["id"].tolist() for batch in loader] == expected
    arrays = mdsx.Loader(local_url, 32, seed=4, rank=0, world_size=1, **options)
    found = list(arrays)
    assert [batch["id"].tolist() for batch in found] == expected
    assert all(isinstance(batch["id"], np.ndarray) for batch in found)


@pytest.mark.parametrize(
    "options",
    [
        {"num_threads": 2, "num_workers": 2},
        {"num_threads": 0},
        {"num_workers": 2, "timeout": -1},
        {"num_workers": 2, "multiprocessing_context": "thread"},
    ],
    ids=str,
)
def test_invalid_numbers_of_workers_are_refused_at_once(local_url: str, options: dict[str, Any]) -> None:
    with pytest.raises(mdsx.UsageError):
        StreamingDataLoader(StreamingDataset(local_url), 32, **options)
    with pytest.raises(mdsx.UsageError):
        mdsx.Loader(local_url, 32, rank=0, world_size=1, **options)


class Changing:
    """A transform that its user changes between two epochs."""

    value = 0

    def __call__(self, _: Any) -> int:
        return self.value


@pytest.mark.parametrize("persistent", [False, True])
def test_a_transform_that_changes_counts_when_workers_start(local_url: str, persistent: bool) -> None:
    transform = Changing()
    data = StreamingDataset(local_url, transform=transform)
    loader = StreamingDataLoader(data, 100, num_workers=2, persistent_workers=persistent)
    found = []
    for value in range(3):
        transform.value = value
        found.append({number for batch in loader for number in batch.tolist()})
    assert found == [{0}, {0}, {0}] if persistent else [{0}, {1}, {2}]


def as_pair(samples: list[Any]) -> Pair:
    return Pair([sample["text"] for sample in samples], {"id": torch.tensor([sample["id"] for sample in samples])})


def test_named_tuples_come_from_workers(local_url: str) -> None:
    batches = [
        list(StreamingDataLoader(StreamingDataset(local_url), 100, num_workers=workers, collate_fn=as_pair))
        for workers in (0, 2)
    ]
    for mine, other in zip(*batches, strict=True):
        assert type(mine) is type(other) is Pair
        assert mine.first == other.first
        assert mine.second["id"].equal(other.second["id"])


def first_id(samples: list[Any]) -> Any:
    table = torch.tensor([[sample["id"], 0] for sample in samples])
    return table[:1, 0]


def test_a_value_that_is_cut_out_of_a_tensor_comes_from_workers(local_url: str) -> None:
    """Its stride is that of the tensor, although it has only one element."""
    here, there = (
        StreamingDataLoader(StreamingDataset(local_url), 100, num_workers=workers, collate_fn=first_id)
        for workers in (0, 1)
    )
    assert [batch.tolist() for batch in there] == [batch.tolist() for batch in here]


def write_image(path: Path) -> str:
    with mdsx.Writer(path, {"image": "jpeg?", "id": "int64"}) as out:
        for number in range(200):
            image = None if number % 3 == 0 else b"\xff\xd8\xff" + bytes([number]) * (number * 100)
            out.write({"image": image, "id": number})
    return str(path)


@pytest.mark.parametrize("options", [{}, {"on_error": "skip"}, {"uneven": "repeat"}], ids=str)
def test_images_come_from_workers(tmp_path: Path, options: dict[str, Any]) -> None:
    url = write_image(tmp_path / "images")
    batches = [
        list(StreamingDataLoader(StreamingDataset(url), 16, num_workers=workers, **options)) for workers in (0, 2)
    ]
    for mine, other in zip(*batches, strict=True):
        assert mine["image"] == other["image"]
        assert mine["id"].equal(other["id"])


def crossed(value: Any) -> Any:
    parcel = pack(value)
    buffers = [memoryview(bytearray(b"".join(each) if isinstance(each, list) else each)) for each in parcel.buffers]
    return unpack(parcel.pickled, buffers)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(600).reshape(20, 30),
        torch.arange(600).reshape(20, 30).T,
        torch.arange(600)[::3],
        torch.arange(600)[::300][:1],
        torch.arange(600).reshape(20, 30)[:1, 7],
        torch.ones(300, dtype=torch.bfloat16),
        torch.zeros((0, 3), dtype=torch.float16),
        torch.tensor(3.5),
        torch.rand(200) > 0.5,
        torch.rand(100, dtype=torch.complex64),
    ],
    ids=lambda tensor: f"{tensor.dtype} {tuple(tensor.shape)}",
)
def test_tensors_cross_as_their_bytes(tensor: torch.Tensor) -> None:
    assert len(pack(tensor).pickled) < 200
    found = crossed({"a": tensor})["a"]
    assert (found.dtype, found.shape) == (tensor.dtype, tensor.shape)
    assert torch.equal(found, tensor)
    found.zero_()


@pytest.mark.parametrize(
    "tensor",
    [
        torch.ones(3, requires_grad=True),
        torch.ones(3, dtype=torch.complex64).conj(),
        torch.eye(3).to_sparse(),
        torch.nn.Parameter(torch.ones(3)),
    ],
    ids=["grad", "conj", "sparse", "parameter"],
)
def test_other_tensors_are_left_to_pytorch(tensor: torch.Tensor) -> None:
    found = crossed([tensor])[0]
    assert type(found) is type(tensor)
    assert (found.requires_grad, found.layout) == (tensor.requires_grad, tensor.layout)
    assert torch.equal(found.to_dense().detach(), tensor.to_dense().detach())
