"""A worker process's number and seeds."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

_MASK = 2**32 - 1


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker process of a loader.

    Attributes:
        id: Its number, 0 to num_workers - 1.
        num_workers: The number of workers.
        seed: The seed of `random` in the worker. It differs between workers, and after each start of the workers.
    """

    id: int
    num_workers: int
    seed: int


_here: WorkerInfo | None = None


def worker_info() -> WorkerInfo | None:
    """Return this worker process's number and seed; None in a process that is not a loader's worker."""
    return _here


def become(id: int, num_workers: int, base_seed: int) -> WorkerInfo:
    """Make this process a worker: seed `random` and NumPy as PyTorch's workers do."""
    global _here
    _here = WorkerInfo(id, num_workers, base_seed + id)
    random.seed(_here.seed)
    entropy = [id, base_seed & _MASK, base_seed >> 32, 0]
    np.random.seed(np.random.SeedSequence(entropy).generate_state(4))
    return _here
