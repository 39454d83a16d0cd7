"""A worker process: maps each request for a run of batches to its answer."""

from __future__ import annotations

import pickle
import signal
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

from torch.utils.data import Dataset as TorchDataset

from mdsx.errors import CorruptError, UsageError
from mdsx.process import end_with_parent
from mdsx.shards import joined
from mdsx.stream import Batch, RankReader, Task
from mdsx.torch.rank_data import RankData
from mdsx.torch.skipping import skipped_lines
from mdsx.torch.slots import Slots
from mdsx.warn import leave_warnings_to_others


class Ask(NamedTuple):
    """A request to a worker: a run of batches, and where to put it."""

    run: list[Task]
    slot: int | None


class Failed(NamedTuple):
    """An exception of a worker, as it was raised. PyTorch would make one from its text, without its attributes."""

    error: BaseException
    notes: Sequence[str]
    text: str  # its traceback

    @classmethod
    def of(cls, error: BaseException) -> Failed:
        """Raise RuntimeError with the whole text if pickle cannot copy the exception."""
        text = "".join(traceback.format_exception(error))
        try:
            same = type(pickle.loads(pickle.dumps(error))) is type(error)
        except Exception:
            same = False
        if not same:
            raise RuntimeError(f"in a worker process:\n{text}") from None
        return cls(error, getattr(error, "__notes__", ()), text)

    def again(self) -> BaseException:
        """Return the exception, to be raised in the loader's process."""
        if self.notes:
            self.error.__notes__ = list(self.notes)
        self.error.__cause__ = WorkerTraceback(self.text)
        return self.error


class WorkerTraceback(Exception):
    """The cause of an exception that a worker raised: its traceback there, as text."""

    def __str__(self) -> str:
        return f"in a worker process:\n{self.args[0]}"


class Answer(NamedTuple):
    """A worker's result: a packed batch; with slots, the columns of a run in storage form, not cut yet; or Failed."""

    made: Any
    sizes: Sequence[int] = ()  # samples of the run's batches
    slot: int | None = None
    broken: bool = False  # only the run's first batches are here, because a later one failed
    skipped: Sequence[tuple[str, ...]] = ()  # samples left out of each batch; empty if there are none at all


class Worker(TorchDataset[Answer]):
    """The dataset of a worker process: maps each Ask to its Answer."""

    def __init__(self, data: RankData, reader: RankReader, slots: Slots | None) -> None:
        self._data, self._reader, self._slots = data, reader, slots

    def __getitem__(self, ask: Ask) -> Answer:
        try:
            return self._answer(ask)
        except KeyboardInterrupt:
            raise  # the main process got it too
        except BaseException as error:
            return Answer(Failed.of(error))

    def _answer(self, ask: Ask) -> Answer:
        run, slots = ask.run, self._slots
        if slots is None:
            return Answer(_packed(next(self._data.assembled(self._reader, run))))
        try:
            columns = next(self._reader.read(run, joined=True)).columns
        except Exception as error:
            if self._data.on_error == "skip" and isinstance(error, CorruptError):
                return self._sound(ask)
            if len(run) == 1:
                raise
            run = run[:1]  # first the batches before the error
            columns = next(self._reader.read(run, joined=True)).columns
        return Answer(slots.put(ask.slot, columns), self._reader.shares(run), ask.slot, broken=len(run) < len(ask.run))

    def _sound(self, ask: Ask) -> Answer:
        """Return the batches of a run without damaged samples; after another error, those before it."""
        batches = list[Batch]()
        try:
            batches += self._reader.read_each(ask.run)
        except Exception:
            if not batches:
                raise
        columns = joined([batch.columns for batch in batches])
        return Answer(
            self._slots.put(ask.slot, columns) if self._slots is not None else columns,
            [len(batch.positions) for batch in batches],
            ask.slot,
            broken=len(batches) < len(ask.run),
            skipped=[skipped_lines(batch.damaged) for batch in batches],
        )


class BeginWorker:
    """Initialises a worker: it ends with its parent, however the parent ends.

    Ctrl-C reaches all processes of a terminal, but only the main process decides what happens then.
    """

    def __init__(self, then: Callable[[int], None] | None) -> None:
        self._then = then

    def __call__(self, worker: int) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if worker > 0:
            leave_warnings_to_others()
        end_with_parent()
        if self._then is not None:
            self._then(worker)


def _packed(batch: Any) -> bytes:
    """Pickle a batch here: PyTorch's queue would drop one that fails, and its reader would wait for ever."""
    try:
        return bytes(ForkingPickler.dumps(batch))
    except Exception as error:
        raise UsageError(
            f"what transform or collate_fn made cannot go to another process: {error}",
            hint="return tensors, arrays, numbers, str or bytes (of a memory view that zero_copy gave, bytes(view)), "
            "or use num_workers=0",
        ) from error


def unpacked(packed: bytes) -> Any:
    """Return, in the loader's process, the batch that a worker packed."""
    try:
        return pickle.loads(packed)
    except (OSError, EOFError) as error:  # PyTorch fetches each tensor's memory from the worker
        raise RuntimeError("a worker ended before its batch was taken: was it killed, for want of memory?") from error
