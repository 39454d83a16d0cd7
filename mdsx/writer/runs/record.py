"""The record of a run: empty objects below `_runs/`. What counts is that they are there, and since when.

| object | meaning |
|---|---|
| `<run>.begun` | the run has begun, and has neither a dataset nor ended; its time is the run's beginning |
| `<run>.alive` | the driver renews it every five minutes; its time is the last sign of life |
| `<run>.overwrites` | the run is that of a writer with `overwrite=True` |
| `<run>.dead` | a clean takes the run for dead, and removes what it left |

All times are the storage's, so the clocks of machines do not matter. Files of attempts are signs of life too: each
attempt renews its mark every five minutes, and the process that began a run may end before the run (Spark's sources).

A driver that was suspended, or cut off from the storage, may wake up after a clean has taken its run for dead. So it
checks the record before it writes the index, and once more after that, to take the index back if it must. A clean puts
`<run>.dead` before it reads the index, and removes it last. So whichever comes first, the other one sees it.
"""

from __future__ import annotations

import threading
import weakref
from contextlib import suppress
from functools import partial
from typing import Literal

from mdsx.errors import ChangedError, MdsxError
from mdsx.format import filenames
from mdsx.storage import Storage, remove
from mdsx.writer.runs.job import RENEWED

State = Literal["running", "dead", "cleaned"]


class Record:
    """The record of a run. The signs of life end with the object that began it; a copy gives none."""

    def __init__(self, storage: Storage, run: str, *, overwrites: bool = False) -> None:
        self._storage, self._run, self._overwrites = storage, run, overwrites
        self._over = threading.Event()

    def __reduce__(self) -> tuple[object, ...]:
        return partial(Record, overwrites=self._overwrites), (self._storage, self._run)

    def begin(self) -> None:
        """Begin the record, and renew it in the background. Raise TransportError."""
        if self._overwrites:
            self._storage.put(filenames.run_sign(self._run, "overwrites"), b"")
        self._storage.put(filenames.run_sign(self._run, "begun"), b"")
        weakref.finalize(self, self._over.set)
        name, args = f"mdsx-run-{self._run}", (self._storage, self._run, self._over)
        threading.Thread(target=_renew, args=args, name=name, daemon=True).start()

    def state(self) -> State:
        """Return whether the run is at work, a clean has taken it for dead, or even finished with it."""
        found = {entry.key for entry in self._storage.list(f"{filenames.RUNS_FOLDER}{self._run}.")}
        if filenames.run_sign(self._run, "dead") in found:
            return "dead"
        return "running" if filenames.run_sign(self._run, "begun") in found else "cleaned"

    def ended(self, state: State) -> ChangedError:
        """Return the error of a run in this `state`."""
        message = "`mdsx clean` took this run for dead, and removes what it wrote"
        hint = "was the driver suspended, or cut off from the storage, for that long? run the job again"
        if state == "cleaned":
            message = "the run has ended: it was committed or aborted, or `mdsx clean` took it for dead"
        return ChangedError(message, file=self._storage.url, hint=hint)

    def sign(self) -> None:
        """Give a sign of life."""
        self._storage.put(filenames.run_sign(self._run, "alive"), b"")

    def stop(self) -> None:
        """End the signs of life."""
        self._over.set()

    def remove(self) -> None:
        """Remove the record: the run has a dataset, or has removed its attempts. The sign "overwrites" stays until
        nothing else of the run is there (`overwrite.py`)."""
        self.stop()
        for sign in _SIGNS:
            remove(self._storage, filenames.run_sign(self._run, sign))


_SIGNS: tuple[filenames.RunSign, ...] = ("begun", "alive")


def _renew(storage: Storage, run: str, over: threading.Event) -> None:
    while not over.wait(RENEWED):
        with suppress(MdsxError):  # the next one may succeed
            storage.put(filenames.run_sign(run, "alive"), b"")
