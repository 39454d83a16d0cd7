"""Notes of the worker processes of PyTorch's own DataLoader about a dataset, in a page that all processes share.

A dataset is not notified when a DataLoader starts workers from it, so only the workers can detect mistakes.
"""

from __future__ import annotations

from torch.utils.data import get_worker_info

from mdsx.base.warn import warn
from mdsx.base.work import SharedNumbers

_SEEN, _START, _MOVES, _EPOCH, _POSITION, _WARNED = range(6)


class WorkerStarts:
    """Where workers began to read a dataset, and whether they begin at the same place again.

    A copy has its own notes, but a worker's copy shares the page of the original dataset.
    """

    def __init__(self) -> None:
        self._page = SharedNumbers(6)
        self._moves = 0  # of the dataset in the main process

    @property
    def seen(self) -> bool:
        """Return whether workers have begun to read the dataset."""
        return bool(self._page.values[_SEEN])

    def moved(self) -> None:
        """Note that the dataset moved: an epoch was set, or a state loaded."""
        self._moves += 1

    def begun(self, epoch: int, position: int, *, repeats: bool) -> bool:
        """Note that this worker begins to read at this position. `repeats`: a start here again would repeat the order.

        Return whether this worker is the first, which warns for all.
        """
        info, page = get_worker_info(), self._page.values
        if info is None or info.id > 0:
            return False
        start = info.seed - info.id, self._moves, epoch, position  # each start of workers has its own seed
        before = tuple(page[_START : _POSITION + 1].tolist())
        if page[_SEEN] and repeats and before[0] != start[0] and before[1:] == start[1:] and not page[_WARNED]:
            page[_WARNED] = 1
            warn(
                "PyTorch's DataLoader starts its workers from this dataset again, at the same place as last time: they "
                "repeat the order of that epoch; call data.set_epoch(epoch) before each epoch",
                seen_by="process",
            )
        first = not page[_SEEN]
        for place, value in zip(range(_START, _POSITION + 1), start, strict=True):
            page[place] = value
        page[_SEEN] = 1
        return first
