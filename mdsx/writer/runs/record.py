"""Runs: what is in their folders, and which are alive.

All that a run makes is below its folder `run-<run>/`, so no listing has to be searched for what is whose. Its record is
in `_run/` there. What counts is that these objects are there, and since when:

| object | meaning |
|---|---|
| `alive` | the run has neither a dataset nor ended; its driver renews it every five minutes, if it is there |
| `overwrites` | the run is that of a writer with `overwrite=True` |
| `replaced` | what the run replaces: see `replaced.py` |
| `dead` | a clean takes the run for dead, and removes what it left |

A run is alive if `alive` is there, `dead` is not, and anything in its folder is younger than an hour, or than the age
that a clean is given. Attempts renew a sign in their folders, because the process that began a run may end before the
run (Spark's sources). All times are the storage's, so the clocks of machines do not matter.

A driver that was suspended, or cut off from the storage, may wake up after a clean has taken its run for dead. So it
checks the record before it writes the index, and once more after that, to take the index back if it must. A clean puts
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
"""Seconds between two signs of life, of a driver or of an attempt at work."""
LEAST = 3600.0
"""Seconds without a sign of life before a run can be dead: its driver missed twelve."""

State = Literal["running", "dead", "cleaned"]


@dataclass(frozen=True, slots=True)
class Ages:
    """Now, by the storage's clock, and the age that files need to be removed."""

    now: float
    least: float

    def is_old(self, modified: float, least: float | None = None) -> bool:
        """Return whether an object is older. One without a time is not."""
        return 0 < modified < self.now - (self.least if least is None else least)

    def is_dead(self, modified: float) -> bool:
        """Return whether a sign of life is too old for a running run."""
        return self.is_old(modified, max(self.least, LEAST))


@dataclass(frozen=True, slots=True)
class RunFolder:
    """What is in the folder of a run: its record, by signs, and the files of each part or attempt, by folder."""

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
        """Return whether its driver may still write the index, and take it back, because the mark is new."""
        return not self.has_ended and not ("dead" in self.signs and ages.is_dead(self.signs["dead"].modified))


def runs_at(storage: Storage) -> dict[str, RunFolder]:
    """Return the folders of all runs. The records are listed last: what has ended by then makes no more attempts."""
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
    """Remove objects, the indexes of attempts first: what has no index is unfinished. `seen` is called with each."""
    ours = [key for key in keys if filenames.is_of_dataset(key)]  # what others put there stays
    remove(storage, *(key for key in ours if key.endswith(f"/{filenames.INDEX}")), seen=seen)
    remove(storage, *(key for key in ours if not key.endswith(f"/{filenames.INDEX}")), seen=seen)


class RunRecord:
    """The record of a run. The signs of life end with the object that began it; a copy gives none."""

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
        """Return whether the run is at work, a clean has taken it for dead, or even finished with it."""
        found = _signs(self._storage, self._run)
        return "dead" if "dead" in found else "running" if "alive" in found else "cleaned"

    def ended(self, state: State) -> ChangedError:
        """Return the error of a run in this `state`."""
        message = "`mdsx clean` took this run for dead, and removes what it wrote"
        hint = "was the driver suspended, or cut off from the storage, for that long? run the job again"
        if state == "cleaned":
            message = "the run has ended: it was committed or aborted, or `mdsx clean` took it for dead"
        return ChangedError(message, file=self._storage.url, hint=hint)

    def sign(self) -> None:
        """Give a sign of life, unless the run has ended."""
        _sign(self._storage, self._run)

    def stop(self) -> None:
        """End the signs of life."""
        self._over.set()

    def end(self) -> None:
        """Note that the run has a dataset, or has ended without one."""
        self.stop()
        remove(self._storage, filenames.run_sign(self._run, "alive"))

    def remove(self) -> None:
        """Remove what is left of the record, when nothing else is left of the run but its dataset."""
        for sign in _LAST:
            remove(self._storage, filenames.run_sign(self._run, sign))


_LAST: tuple[filenames.RunSign, ...] = ("replaced", "overwrites")  # which says whose the others are
_ALIVE = b"alive"


def _renew(storage: Storage, run: str, over: threading.Event) -> None:
    while not over.wait(RENEWED):
        with suppress(MdsxError):  # the next one may succeed
            _sign(storage, run)


def _sign(storage: Storage, run: str) -> None:
    key = filenames.run_sign(run, "alive")
    with suppress(MissingError, ChangedError):
        storage.replace(key, _ALIVE, etag=describe(storage, key).etag)
