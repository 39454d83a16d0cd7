"""What mdsx needs of PyTorch's DataLoader beyond its API: when it starts workers, and how they fail and end.

It gives no notice when it starts workers from a dataset, but it forks, or pickles the dataset for a spawned process. At
that moment its new iterator, whose `_dataset` is the dataset, is on the stack of the main process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.context import get_spawning_popen
from multiprocessing.process import BaseProcess
from typing import Any
from weakref import ref

from torch.utils.data import _utils, default_collate
from torch.utils.data._utils.fetch import _IterableDatasetFetcher

from mdsx.errors import UsageError
from mdsx.torch.collation import collate
from mdsx.torch.dividing import Divider, divider
from mdsx.warn import warn

_GRACE = 1.0  # seconds


class WorkerStarts:
    """Whether workers were started from a dataset, and whether they would start from the same place again."""

    def __init__(self, *, seen: bool = False, divider: Divider | None = None) -> None:
        self.seen = seen
        self.divider = divider  # of what these workers read
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
        self.divider = divider()
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
        and fetcher.collate_fn in (default_collate, collate)
    ):
        raise UsageError(
            "both StreamingDataset and PyTorch's DataLoader have a batch_size: it would make batches of batches",
            hint="give the DataLoader batch_size=None, or use StreamingDataLoader",
        )


# --- workers


def next_answer(answers: Any) -> Any:
    """Return the next answer, or None at the end.

    When a worker dies, PyTorch raises an error wherever the main thread is. Allow that only here, where the loader
    waits for a batch, and not in the middle of the user's code.
    """
    signals: Any = _utils.signal_handling
    if not answers._worker_pids_set:
        signals._set_worker_pids(id(answers), tuple(worker.pid for worker in answers._workers))
        answers._worker_pids_set = True
        signals._error_if_any_worker_fails()  # one that died in between
    try:
        return next(answers, None)
    finally:
        if answers._worker_pids_set:  # not after the last answer, when they end
            signals._remove_worker_pids(id(answers))
            answers._worker_pids_set = False


@contextmanager
def ending_soon(answers: Any) -> Iterator[None]:
    """Wait one second for all busy workers before killing them; PyTorch waits five for each.

    A worker may be killed at any instant: the kernel releases what it holds.
    """
    workers: Sequence[BaseProcess] = getattr(answers, "_workers", ())
    if getattr(answers, "_worker_pids_set", False):  # a worker found dead now would interrupt the shutdown
        _utils.signal_handling._remove_worker_pids(id(answers))  # type: ignore[attr-defined]  # PyTorch's C
        answers._worker_pids_set = False
    del answers
    before = _utils.MP_STATUS_CHECK_INTERVAL
    _utils.MP_STATUS_CHECK_INTERVAL = _GRACE / max(len(workers), 1)
    try:
        yield
    finally:
        _utils.MP_STATUS_CHECK_INTERVAL = before
    for worker in workers:
        worker.join(before)  # PyTorch asked it to end, and kills it if it does not
