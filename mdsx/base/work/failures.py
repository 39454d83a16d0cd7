"""Errors passed from a worker process to its parent, with their type, notes and traceback."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from traceback import format_exception
from typing import NamedTuple

_CUDA = "Cannot re-initialize CUDA in forked subprocess"  # PyTorch's words
_WITHOUT_CUDA = (
    "mdsx: a worker that is forked after CUDA has started cannot use it: return CPU tensors, and give "
    'the loader device="cuda"; or give multiprocessing_context="spawn"'
)


class WorkerTraceback(Exception):
    """The cause of an exception from a worker: its traceback in the worker, as text."""

    def __str__(self) -> str:
        return f"in a worker process:\n{self.args[0]}"


class Failure(NamedTuple):
    """An exception of a worker."""

    error: BaseException
    notes: Sequence[str]
    text: str  # its traceback

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Return the failure for an exception. One that pickle cannot copy becomes a RuntimeError with its text."""
        if isinstance(error, RuntimeError) and error.args and _CUDA in str(error.args[0]):
            error.add_note(_WITHOUT_CUDA)
        text = "".join(format_exception(error))
        try:
            same = type(pickle.loads(pickle.dumps(error))) is type(error)
        except Exception:
            same = False
        if not same:
            return cls(RuntimeError(f"in a worker process:\n{text}"), (), text)
        return cls(error, getattr(error, "__notes__", ()), text)

    def again(self) -> BaseException:
        """Return the exception to raise in the consumer's process."""
        if self.notes:
            self.error.__notes__ = list(self.notes)
        self.error.__cause__ = WorkerTraceback(self.text)
        return self.error
