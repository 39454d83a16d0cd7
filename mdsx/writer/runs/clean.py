"""`mdsx.clean`: remove the remains of dead runs, and nothing that an active run needs.

Rules:
- Only the storage's clock counts. To read it, store a small object and list it.
- All files that an index names stay: `index.json`, a snapshot, or an index that a repair replaced.
- All files of an active run stay, whatever their age, and so do all files younger than `older_than`.
- Listings are not atomic, so they come in this order: attempts, then records, then indexes. An attempt in the first
  listing whose run has no record in the second one belongs to a finished run; if it counts, the index names it.
- A clean marks a run as dead before it reads the indexes again, and removes the mark last: see `record.py`. While the
  driver of a run that replaces a dataset might still wake up, the old dataset stays too, as it may be restored.
- Without an index, a finished attempt is removed only if its run has not ended, which proves that the run never wrote
  an index. Other finished attempts may be a dataset whose index was lost.
- Parts and shards outside of runs stay: a writer may resume them, and a user may merge or append them.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from mdsx.base.progress import Progress
from mdsx.base.sizes import parse_age
from mdsx.errors import ChangedError, TransportError
from mdsx.format import filenames
from mdsx.shards import refuse_foreign
from mdsx.storage import Entry, Storage, StorageOptions, discard, exists, file_of, open_storage, remove
from mdsx.writer.runs import replaced
from mdsx.writer.runs.record import Ages, RunFolder, folders_of, remove_files, runs_at


@dataclass(frozen=True, slots=True)
class Leftover:
    """Files that a run left over.

    Attributes:
        kind: "attempt"; "replaced": remaining files of the dataset that the run has replaced; "unfinished": an object
            whose writer died; or "record", of a run.
        name: The folder of an attempt, or the key of an unfinished object; otherwise "".
        run: The run; None for an unfinished object.
        files: The number of files.
        size: The bytes of the files whose size is known.
        kept: Why they are kept; "" if they are removed.
    """

    kind: Literal["attempt", "replaced", "unfinished", "record"]
    name: str
    run: str | None
    files: int
    size: int
    kept: str = ""


@dataclass(frozen=True, slots=True)
class Cleaned:
    """The result of `clean`.

    Attributes:
        url: The cleaned URL.
        removed: The leftovers that were removed; in a dry run, that would be.
        kept: The leftovers that stay for now; `kept` of each says why.
        running: The active runs.
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
    """Remove the files of dead runs at `url` that cannot be resumed: runs of Ray and Spark, and writers with
    `overwrite=True`. Files of active runs stay.

        mdsx.clean("s3://bucket/corpus", older_than="7d")

    It removes attempts that do not count, the rest of a dataset that was being replaced, records of runs, and
    unfinished files. Datasets that other writers began stay: run the same program again to resume them. If a clean is
    interrupted, the next one continues.

    Args:
        url: The folder that runs wrote to, with or without a finished dataset.
        older_than: Remove only files older than this, in seconds or as text such as "12h" or "7d". A run counts as dead
            if it gave no sign of life for this long, and for at least an hour.
        dry_run: Whether to only report what would be removed.
        storage_options: Options for the storage of `url`, as in `mdsx.Dataset`.
        watch: Called with a `Progress` after each file. `size` and `of_size` are bytes of removed files.

    Raises:
        UsageError: The age is invalid, the dataset has another format, or the storage cannot be written.
        CorruptError: An index is damaged, so the files that it names are unknown. Nothing was removed.
        TransportError: Storage failed, or does not report when objects were stored.
    """
    age = parse_age(older_than, name="older_than")
    storage = open_storage(url, storage_options, write=True)
    refuse_foreign(storage, "there is a dataset of another format", hint="only mdsx's own format is cleaned")
    runs, named = runs_at(storage), _named(storage)
    runs = {name: run for name, run in runs.items() if run.signs or run.parts.keys() - named}
    unfinished = [entry for entry in _unfinished(storage) if runs or entry.key != filenames.INDEX]  # others have one
    if not runs and not unfinished:
        return Cleaned(storage.url, (), (), ())
    verdicts = _Verdicts(storage, Ages(_now(storage), age), dry_run=dry_run)
    running = [name for name, run in runs.items() if run.is_running(verdicts.ages)]
    verdicts.judge([run for name, run in runs.items() if name in running], dead=False)
    verdicts.judge([run for name, run in runs.items() if name not in running], dead=True)
    verdicts.judge_unfinished(unfinished)
    if not dry_run:
        verdicts.remove(watch)
    return Cleaned(storage.url, tuple(verdicts.removed), tuple(verdicts.kept), tuple(running))


class _Verdicts:
    """Decides which files a clean removes."""

    def __init__(self, storage: Storage, ages: Ages, *, dry_run: bool) -> None:
        self.ages = ages
        self.removed: list[Leftover] = []
        self.kept: list[Leftover] = []
        self._storage, self._dry_run = storage, dry_run
        self._sizes: dict[str, int] = {}  # of the objects to remove
        self._discarded: set[tuple[str, str]] = set()  # keys and ETags of unfinished objects to remove
        self._records: list[str] = []  # to remove after all else, in this order

    def judge(self, runs: list[RunFolder], *, dead: bool) -> None:
        """Decide about the files of these runs. Mark the dead ones, except in a dry run."""
        for run in runs if dead and not self._dry_run else ():
            if not run.has_ended and "dead" not in run.signs:
                self._storage.put(filenames.run_sign(run.run, "dead"), b"")
        named = _named(self._storage)
        has_index = exists(self._storage, filenames.INDEX)
        for run in runs:
            stay = False
            for folder, entries in run.parts.items():
                if folder not in named:
                    why = self._why(run, folder, entries, has_index) if dead else "its run is active"
                    self._add("attempt", folder, run.run, entries, why)
                    stay |= bool(why)
            if dead and not self._judge_replaced(run) and not stay:
                self._judge_record(run)

    def judge_unfinished(self, entries: list[Entry]) -> None:
        for entry in entries:
            if self.ages.is_dead(entry.modified):
                self._discarded.add((entry.key, entry.etag))
                self.removed.append(Leftover("unfinished", entry.key, None, 1, entry.size))

    def remove(self, watch: Callable[[Progress], object] | None) -> None:
        done, size = 0, sum(self._sizes.values())

        def seen(key: str) -> None:
            nonlocal done
            done += self._sizes[key]
            if watch is not None:
                watch(Progress(0, done, size))

        remove_files(self._storage, list(self._sizes), seen)
        if self._discarded:
            discard(self._storage, "", choose=lambda entry: (entry.key, entry.etag) in self._discarded)
        for key in self._records:
            remove(self._storage, key)

    def _why(self, run: RunFolder, folder: str, entries: Iterable[Entry], has_index: bool) -> str:
        """Return why an attempt of a dead run that no index names stays; "" if it does not."""
        if not all(self.ages.is_old(entry.modified) for entry in entries):
            return "it is too young"
        is_finished = any(entry.key == filenames.within(folder, filenames.INDEX) for entry in entries)
        if is_finished and run.has_ended and not has_index:
            return "its dataset's index may have been lost: see `mdsx repair`"
        return ""

    def _judge_replaced(self, run: RunFolder) -> str:
        """Return why files of the dataset that the run has replaced stay; "" if none do."""
        if "replaced" not in run.signs:
            return ""
        until, entries, why = run.signs["replaced"].modified, list[Entry](), ""
        if not self.ages.is_old(until):
            why = "it is too young"
        elif run.may_wake_up(self.ages):
            why = "its driver might wake up: clean again in an hour or later"
        else:
            try:
                note = replaced.read_note(self._storage, run.run)
                entries = replaced.leftovers(self._storage, note, until=until) if note else []
            except ChangedError as error:
                why = str(error)
        if entries or why:
            self._add("replaced", "", run.run, entries, why)
        return why

    def _judge_record(self, run: RunFolder) -> None:
        """Remove the record of a run whose other files are all removed."""
        signs = [entry for sign, entry in run.signs.items() if sign != "dead"]
        if run.signs and all(self.ages.is_dead(entry.modified) for entry in signs):
            self._add("record", "", run.run, run.signs.values(), "")
            self._records += [*(entry.key for entry in signs), filenames.run_sign(run.run, "dead")]

    def _add(
        self, kind: Literal["attempt", "replaced", "record"], name: str, run: str, entries: Iterable[Entry], why: str
    ) -> None:
        sizes = {entry.key: entry.size for entry in entries}
        (self.kept if why else self.removed).append(Leftover(kind, name, run, len(sizes), sum(sizes.values()), why))
        if not why and kind != "record":
            self._sizes |= sizes


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
    message = "the storage's listing lacks the times of objects, so nothing can be removed by age"
    hint = "remove the attempts yourself while no run is active"
    raise TransportError(message, file=file_of(storage, key), hint=hint)


def _named(storage: Storage) -> set[str]:
    """Return the folders that an index names, including indexes that a run replaces: they may still be needed."""
    found = {folder for _, index in replaced.indexes_at(storage) for folder in folders_of(index)}
    for entry in storage.list(filenames.RUNS):  # after the indexes: a driver writes its note before its index
        run, sign = filenames.parse_run_sign(entry.key) or ("", "")
        if sign == "replaced" and (note := replaced.read_note(storage, run)):
            found |= folders_of(note.old)
    return found


def _unfinished(storage: Storage) -> list[Entry]:
    """Return mdsx's unfinished objects. Nothing is removed."""
    found: list[Entry] = []

    def note(entry: Entry) -> bool:
        found.append(entry)
        return False

    discard(storage, "", choose=note)
    return found
