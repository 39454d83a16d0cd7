"""`mdsx.clean`: remove what dead runs of Ray and Spark left, and never what a running one needs.

Rules:
- Only the storage's clock counts: a small object is stored, and its time in a listing is now.
- A run is dead if neither its driver nor an attempt gave a sign of life for `older_than`, and at least for an hour.
- What an index names stays: `index.json`, a snapshot, or an index that a repair replaced.
- Attempts of a running run stay, whatever their age. So do all files that are younger than `older_than`. If the run of
  an attempt cannot be known, it must be older than the beginning of every running run.
- Listings are no snapshots, so they come in this order: attempts, then runs, then indexes. An attempt in the first
  listing whose run has no record in the second one is of a run that has ended; if it counts, the index names it.
- A clean marks a run as dead before it reads the indexes again, and removes the mark last: see `record.py`. As long as
  the driver of a run that replaces a dataset might wake up, the old dataset stays too: it may be restored.
- Without an index, a finished attempt is removed only if the record of its run is still there, which proves that the
  run never wrote an index. The others may be a dataset whose index was lost.
- Parts and shards that no engine wrote stay: a writer may resume them, and a user may merge or append them.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from mdsx.engines import verdicts
from mdsx.engines.verdicts import Ages, Leftover, Run
from mdsx.errors import ChangedError, TransportError
from mdsx.format import filenames
from mdsx.progress import Progress
from mdsx.shards import refuse_foreign
from mdsx.sizes import parse_age
from mdsx.storage import Entry, Storage, StorageOptions, discard, open_storage, remove
from mdsx.writer.runs import attempts_at, folders_of, remove_files, replaced, runs_of


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What `clean` has done.

    Attributes:
        url: The place.
        removed: What was removed; in a dry run, what would be.
        kept: What stays for now, and why.
        running: The runs that are at work here.
    """

    url: str
    removed: tuple[Leftover, ...]
    kept: tuple[Leftover, ...]
    running: tuple[str, ...]


def clean(
    url: str | os.PathLike[str],
    *,
    older_than: float | str = "24h",
    dry_run: bool = False,
    storage_options: StorageOptions | None = None,
    watch: Callable[[Progress], object] | None = None,
) -> Cleaned:
    """Remove what dead runs of Ray and Spark, and dead writers with `overwrite=True`, have left at `url`, and nothing
    that a running one needs.

        mdsx.clean("s3://bucket/corpus", older_than="7d")

    These are attempts that do not count, what is left of a dataset that was being replaced, records of runs, and
    unfinished files. What other writers have begun stays, because they can resume it. If a clean is interrupted, the
    next one continues.

    Args:
        url: Where Ray or Spark wrote. There may be a dataset or not.
        older_than: Only what is older than that, in seconds or as text such as "12h" or "7d". A run is dead if its
            driver gave no sign of life for that long, and at least for an hour.
        dry_run: Whether only to report.
        storage_options: What the storage of `url` needs to know besides the URL, as in `mdsx.Dataset`.
        watch: Called with a `Progress` after each file: `size` and `of_size` are bytes of removed files.

    Raises:
        UsageError: The age is invalid, there is a dataset of another format, or the storage cannot be written.
        CorruptError: An index is damaged, so that what it names cannot be known. Nothing was removed.
        TransportError: Storage failed, or does not say when objects were stored.
    """
    age = parse_age(older_than, name="older_than")
    storage = open_storage(url, storage_options, write=True)
    refuse_foreign(storage, "there is a dataset of another format", hint="only what Ray and Spark wrote is cleaned")
    place = _Place(storage)
    if place.is_empty:
        return Cleaned(storage.url, (), (), ())
    place.judge(Ages(_now(storage), age), mark=not dry_run)
    if not dry_run:
        place.remove(watch)
    return Cleaned(storage.url, tuple(place.removed), tuple(place.kept), tuple(place.running))


class _Place:
    """What is at a place, and the verdicts on it."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        attempts, named = attempts_at(storage), _named(storage)
        self._attempts = {folder: entries for folder, entries in attempts.items() if folder not in named}
        self._of = dict(zip(self._attempts, runs_of(storage, self._attempts), strict=True))
        self._runs = verdicts.runs_in(storage.list(filenames.RUNS_FOLDER), self._attempts, self._of)
        ours = bool(self._attempts or self._runs)  # others have files of the name index.json too
        self._unfinished = [entry for entry in _unfinished(storage) if ours or entry.key != filenames.INDEX]
        self._keys: dict[str, int] = {}  # to remove, with their sizes
        self._discarded: set[tuple[str, str]] = set()  # keys and ETags of unfinished objects to remove
        self._records: list[str] = []  # to remove after all else, in this order
        self.removed: list[Leftover] = []
        self.kept: list[Leftover] = []
        self.running: list[str] = []

    @property
    def is_empty(self) -> bool:
        return not (self._attempts or self._runs or self._unfinished)

    def judge(self, ages: Ages, *, mark: bool) -> None:
        """Find the verdicts. `mark`: whether to mark the dead runs, which must happen before anything is removed."""
        self.running = [name for name, run in self._runs.items() if run.is_running(ages)]
        dead = [run for name, run in self._runs.items() if name not in self.running]
        for run in dead if mark else ():
            if run.began is not None and "dead" not in run.signs:
                self._storage.put(filenames.run_sign(run.name, "dead"), b"")
        left = self._judge_attempts(ages)
        for run in dead:
            if self._judge_replaced(run, ages) and run.name not in left:
                self._judge_record(run, ages, marked=mark)
        for entry in self._unfinished:
            if ages.is_dead(entry.modified):
                self._discarded.add((entry.key, entry.etag))
                self.removed.append(Leftover.of("unfinished", entry.key, None, [entry]))

    def remove(self, watch: Callable[[Progress], object] | None) -> None:
        done, size = 0, sum(self._keys.values())

        def seen(key: str) -> None:
            nonlocal done
            done += self._keys[key]
            if watch is not None:
                watch(Progress(0, done, size))

        remove_files(self._storage, list(self._keys), seen)
        if self._discarded:
            discard(self._storage, "", choose=lambda entry: (entry.key, entry.etag) in self._discarded)
        for key in self._records:
            remove(self._storage, key)

    def _judge_attempts(self, ages: Ages) -> set[str | None]:
        """Return the runs whose attempts stay, in part or all."""
        named = _named(self._storage)
        unnamed = {folder: entries for folder, entries in self._attempts.items() if folder not in named}
        has_index = any(entry.key == filenames.INDEX for entry in self._storage.list(filenames.INDEX))
        for leftover in verdicts.of_attempts(unnamed, self._of, self._runs, ages, has_index=has_index):
            self._add(leftover, unnamed[leftover.name])
        return {leftover.run for leftover in self.kept}

    def _judge_replaced(self, run: Run, ages: Ages) -> bool:
        """Return whether only its record is left of a run that has replaced a dataset, or none."""
        if "replaced" not in run.signs:
            return True
        until, entries, why = run.signs["replaced"].modified, list[Entry](), ""
        if not ages.is_old(until):
            why = "it is too young"
        elif run.may_wake_up(ages):
            why = "its driver might wake up: a clean in an hour or later removes this"
        else:
            try:
                note = replaced.read_note(self._storage, run.name)
                entries = replaced.leftovers(self._storage, note, until=until) if note else []
            except ChangedError as error:
                why = str(error)
        if entries or why:
            self._add(Leftover.of("replaced", "", run.name, entries, why), entries)
        return not why

    def _judge_record(self, run: Run, ages: Ages, *, marked: bool) -> None:
        leftover = verdicts.of_record(run, ages)
        if leftover is not None:
            self.removed.append(leftover)
            self._records += [entry.key for sign, entry in run.signs.items() if sign != "dead"]
            if marked:
                self._records.append(filenames.run_sign(run.name, "dead"))

    def _add(self, leftover: Leftover, entries: list[Entry]) -> None:
        if leftover.kept:
            self.kept.append(leftover)
        else:
            self.removed.append(leftover)
            self._keys.update((entry.key, entry.size) for entry in entries)


def _now(storage: Storage) -> float:
    """Return the time by the storage's clock."""
    key = filenames.run_sign(secrets.token_hex(8), "clock")
    storage.put(key, b"")
    try:
        time = next((entry.modified for entry in storage.list(key)), 0.0)
    finally:
        remove(storage, key)
    if time:
        return time
    message = "the storage does not list when objects were stored, so nothing can be removed by age"
    hint = "remove the attempts yourself while no run is at work"
    raise TransportError(message, file=f"{storage.url}/{key}", hint=hint)


def _named(storage: Storage) -> set[str]:
    """Return the folders that an index names, or one that a run replaces: its dataset may still be needed."""
    found = {folder for _, index in replaced.indexes_at(storage) for folder in folders_of(index)}
    for entry in storage.list(filenames.RUNS_FOLDER):  # after the indexes: a driver writes its note before its index
        run, sign = filenames.parse_run_sign(entry.key) or ("", "")
        if sign == "replaced" and (note := replaced.read_note(storage, run)):
            found |= folders_of(note.old)
    return found


def _unfinished(storage: Storage) -> list[Entry]:
    """Return the unfinished objects of ours. Nothing is removed."""
    found: list[Entry] = []

    def note(entry: Entry) -> bool:
        found.append(entry)
        return False

    discard(storage, "", choose=note)
    return found
