"""Detects in the main process when PyTorch's own DataLoader starts workers from a dataset.

The loader gives no notice, but it forks, or pickles the dataset for a spawned process. At that moment the loader's new
iterator, whose `_dataset` is the dataset, is on the stack of the main process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from multiprocessing.context import get_spawning_popen
from typing import Any
from weakref import ref

from torch.utils.data import default_collate
from torch.utils.data._utils.fetch import _IterableDatasetFetcher

from mdsx.errors import UsageError
from mdsx.process import at_fork
from mdsx.warn import warn


class WorkerStarts:
    """Whether workers were started from a dataset, and whether they would start from the same place again."""

    def __init__(self, *, seen: bool = False) -> None:
        self.seen = seen
        self._iterator: ref[Any] | None = None  # the loader's, that started the last workers
        self._used = False

    def moved(self) -> None:
        """Note that the dataset moved: an epoch was set, or a state loaded."""
        self._used = False

    def started(self, iterator: Any, *, repeats: bool) -> bool:
        """Note that `iterator` starts a worker; return whether it is its first. `repeats`: another start from the same
        place would give the same order."""
        if self._iterator is not None and self._iterator() is iterator:
            return False
        self._iterator = ref(iterator)
        if self._used and repeats:
            warn(
                "PyTorch's DataLoader starts its workers from this dataset again, at the same place as last time: they "
                "repeat the order of that epoch; call data.set_epoch(epoch) before each epoch",
            )
        self.seen = self._used = True
        return True


def spawning() -> bool:
    """Whether pickling is under way for a process that is being started."""
    return get_spawning_popen() is not None


def find_loader(is_dataset: Callable[[object], bool]) -> tuple[Any, Any, bool] | None:
    """Return the DataLoader's iterator that this thread is making, its dataset, and whether it resumes a state."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "__init__" and frame.f_code.co_varnames[:1] == ("self",):
            owner = frame.f_locals["self"]
            dataset = getattr(owner, "__dict__", {}).get("_dataset")
            if is_dataset(dataset):
                return owner, dataset, frame.f_locals.get("next_iter_state") is not None  # torchdata's
        frame = frame.f_back  # type: ignore[assignment]
    return None


def check_batched_once(dataset: object) -> None:
    """Raise UsageError if a DataLoader would collate the batches of `dataset`, which begins to iterate, again."""
    fetcher = sys._getframe(2).f_locals.get("self")
    if (
        isinstance(fetcher, _IterableDatasetFetcher)
        and fetcher.dataset is dataset
        and fetcher.auto_collation
        and fetcher.collate_fn is default_collate
    ):
        raise UsageError(
            "both StreamingDataset and PyTorch's DataLoader have a batch_size: it would make batches of batches",
            hint="give the DataLoader batch_size=None, or use StreamingDataLoader",
        )


def before_each_fork(work: Callable[[], None]) -> None:
    """Call `work` in the main process before each fork, with the stack that leads to it."""
    at_fork(before=work)
