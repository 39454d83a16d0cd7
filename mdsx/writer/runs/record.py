"""The folders of runs, and which runs are alive.

A run writes only below its folder `run-<run>/`. Its record is in `_run/` there. These objects count by their existence
and age:

| object | meaning |
|---|---|
| `alive` | the run has not ended; its driver renews the object every five minutes |
| `overwrites` | the run is a writer with `overwrite=True` |
| `replaced` | the dataset that the run replaces: see `replaced.py` |
| `dead` | a clean has marked the run as dead, and removes its files |

A run is alive if `alive` exists, `dead` does not, and any object in its folder is younger than an hour, or than the age
that a clean is given. Attempts renew a sign in their folders, because the process that began a run may end before the
run does (Spark's sources). All times are the storage's, so the clocks of machines do not matter.

A driver that was suspended, or cut off from the storage, may wake up after a clean has marked its run as dead. So it
checks the record before it writes the index, and again afterwards, to withdraw the index if necessary. A clean puts
`dead` before it reads the index, and removes it last. So whichever comes first, the other one sees it.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Literal

from mdsx.errors import ChangedError, MdsxError, MissingError
from mdsx.format import Index, filenames
from mdsx.storage import Entry, Storage, describe, remove

RENEWED = 300.0
"""Seconds between two signs of life of a driver or of an active attempt."""
LEAST = 3600.0
"""Seconds without a sign of life before a run can count as dead: its driver missed twelve."""

State = Literal["running", "dead", "cleaned"]


@dataclass(frozen=True, slots=True)
class Ages:
    """The storage's current time, and the least age of files to remove."""

    now: float
    least: float

    def is_old(self, modified: float, least: float | None = None) -> bool:
        """Return whether an object is older than the age; False if its time is unknown."""
        return 0 < modified < self.now - (self.least if least is None else least)

    def is_dead(self, modified: float) -> bool:
        """Return whether a sign of life is too old for an active run."""
        return self.is_old(modified, max(self.least, LEAST))


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The files in a run's folder: its record, by sign, and the files of each part or attempt, by folder."""

    run: str
    signs: Mapping[str, Entry]
    parts: Mapping[str, Sequence[Entry]]

    @property
    def has_ended(self) -> bool:
        return "alive" not in self.signs

    def is_running(self, ages: Ages) -> bool:
        times = [entry.modified for entries in (self.signs.values(), *self.parts.values()) for entry in entries]
        return not self.has_ended and "dead" not in self.signs and not all(map(ages.is_dead, times))

    def may_wake_up(self, ages: Ages) -> bool:
        """Return whether the mark is so new that the driver may still write the index, and withdraw it."""
        return not self.has_ended and not ("dead" in self.signs and ages.is_old(self.signs["dead"].modified, LEAST))


def runs_at(storage: Storage) -> dict[str, RunFolder]:
    """Return the folders of all runs. Records are listed last: a run that has ended by then makes no more attempts."""
    parts: dict[str, dict[str, list[Entry]]] = {}
    for entry in storage.list(filenames.RUNS):
        if run := filenames.run_of(entry.key):
            folder = filenames.split_part(entry.key)[0]
            found = parts.setdefault(run, {})
            if folder:
                found.setdefault(folder, []).append(entry)
    return {run: RunFolder(run, _signs(storage, run), found) for run, found in parts.items()}


def _signs(storage: Storage, run: str) -> dict[str, Entry]:
    found = ((filenames.parse_run_sign(entry.key), entry) for entry in storage.list(filenames.record_folder(run)))
    return {parsed[1]: entry for parsed, entry in found if parsed}


def folders_of(index: Index) -> set[str]:
    """Return the folders of parts that an index names."""
    return {folder for prefix, *_ in index.files if (folder := filenames.split_part(prefix)[0])}


def remove_files(storage: Storage, keys: Sequence[str], seen: Callable[[str], object] = lambda key: None) -> None:
    """Remove objects, the indexes of attempts first: without one, an attempt is unfinished. `seen` is called with each
    key."""
    ours = [key for key in keys if filenames.is_of_dataset(key)]  # files of others stay
    remove(storage, *(key for key in ours if key.endswith(f"/{filenames.INDEX}")), seen=seen)
    remove(storage, *(key for key in ours if not key.endswith(f"/{filenames.INDEX}")), seen=seen)


class RunRecord:
    """The record of a run. The object that began it gives signs of life; copies give none."""

    def __init__(self, storage: Storage, run: str) -> None:
        self._storage, self._run = storage, run
        self._over = threading.Event()

    def __reduce__(self) -> tuple[object, ...]:
        return RunRecord, (self._storage, self._run)

    def begin(self, *, overwrites: bool = False) -> None:
        """Begin the record, and renew it in the background. Raise TransportError."""
        if overwrites:
            self._storage.put(filenames.run_sign(self._run, "overwrites"), b"")
        self._storage.put(filenames.run_sign(self._run, "alive"), _ALIVE)
        weakref.finalize(self, self._over.set)
        renew = partial(_renew, self._storage, self._run, self._over)
        threading.Thread(target=renew, name=f"mdsx-run-{self._run}", daemon=True).start()

    def state(self) -> State:
        """Return whether the run is active, marked as dead by a clean, or removed by one."""
        found = _signs(self._storage, self._run)
        return "dead" if "dead" in found else "running" if "alive" in found else "cleaned"

    def ended(self, state: State) -> ChangedError:
        """Return the error of a run in this `state`."""
        message = "`mdsx clean` marked this run as dead, and removes its files"
        hint = "was the driver suspended, or cut off from the storage, for that long? run the job again"
        if state == "cleaned":
            message = "the run has ended: it was committed or aborted, or `mdsx clean` removed it as dead"
        return ChangedError(message, file=self._storage.url, hint=hint)

    def sign(self) -> None:
        """Give a sign of life, unless the run has ended."""
        _sign(self._storage, self._run)

    def stop(self) -> None:
        """End the signs of life."""
        self._over.set()

    def end(self) -> None:
        """Note that the run has ended, with or without a dataset."""
        self.stop()
        remove(self._storage, filenames.run_sign(self._run, "alive"))

    def remove(self) -> None:
        """Remove the rest of the record, once nothing else of the run is left but its dataset."""
        for sign in _LAST:
            remove(self._storage, filenames.run_sign(self._run, sign))


_LAST: tuple[filenames.RunSign, ...] = ("replaced", "overwrites")  # "overwrites" says what kind of run the rest is of
_ALIVE = b"alive"


def _renew(storage: Storage, run: str, over: threading.Event) -> None:
    while not over.wait(RENEWED):
        with suppress(MdsxError):  # the next sign may succeed
            _sign(storage, run)


def _sign(storage: Storage, run: str) -> None:
    key = filenames.run_sign(run, "alive")
    with suppress(MissingError, ChangedError):
        storage.replace(key, _ALIVE, etag=describe(storage, key).etag)
