"""What PyTorch adds to a worker process of mdsx: seeds, one thread for an operation, and `get_worker_info()`."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import Dataset, _utils

import mdsx.torch.tensors  # noqa: F401  how tensors cross from it
from mdsx.base.work import WorkerInfo

_NO_DATASET: Dataset[Any] = Dataset()  # a transform gets samples, and no dataset


def draw_seed(_epoch: int) -> int:
    """Return the seed of workers that start now: a draw from PyTorch's generator, as in its DataLoader."""
    return int(torch.empty((), dtype=torch.int64).random_().item())


def setup_worker(info: WorkerInfo) -> None:
    """Prepare this worker process. It never touches CUDA, which may be initialised in a forked parent."""
    torch.set_num_threads(1)
    torch.default_generator.manual_seed(info.seed)
    _utils.worker._worker_info = _utils.worker.WorkerInfo(  # the only way to make get_worker_info() work in a transform
        id=info.id, num_workers=info.num_workers, seed=info.seed, dataset=_NO_DATASET
    )
