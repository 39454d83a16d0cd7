"""Overwriting: a dataset is replaced by another one at the same place, and stays whole until then.

- Nothing is written unless the index there parses, and all that is in the folder is named by it, its snapshots, or
  indexes that repairs replaced; or was left by an earlier overwriting that died.
- The new shards are in folders that no other writer uses: those of attempts whose token is that of the run. So nothing
  is written over, and readers that have mapped old shards continue.
- The index is replaced if it is still the one that was there at the beginning. What it replaces is removed after that;
  a note of it (`replaced.py`) lets the next overwriting, or `mdsx clean`, finish the removal after a kill.
- When the index is replaced, overwritings that began before cannot finish any more. What they left is removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import xxhash

from mdsx.errors import MdsxError, UsageError
from mdsx.format import Index, filenames, parse_index
from mdsx.storage import Entry, Piece, Storage, StorageOptions, discard, open_storage, remove
from mdsx.writer.lengths import join_lengths
from mdsx.writer.runs import replaced
from mdsx.writer.runs.attempts import attempts_at, folders_of, remove_files
from mdsx.writer.runs.commit import Driver, check_place
from mdsx.writer.runs.job import RUN, Done


@dataclass(slots=True, eq=False)
class Overwriting:
    """A run that replaces the dataset at a place by parts, each written in an attempt's folder (`begin_part`)."""

    driver: Driver
    _dead: frozenset[str]  # runs of earlier overwritings that did not end

    @classmethod
    def begin(
        cls,
        url: str,
        columns: Mapping[str, str],
        *,
        shard_size: int | str,
        compression: str | None,
        metadata: dict[str, Any] | None,
        storage_options: StorageOptions | None,
    ) -> Overwriting | None:
        """Begin to replace the dataset at `url`; return None if there is no index, so that nothing is to be replaced.

        Raise UsageError, before anything is written, if something there is not the dataset's.
        """
        storage = open_storage(url, storage_options, write=True)
        if not any(entry.key == filenames.INDEX for entry in storage.list(filenames.INDEX)):
            return None
        found = check_place(storage, "replace")
        if found is None:
            return None
        dead = _check_named(storage, found)
        driver = Driver.begin(
            url,
            columns,
            shard_size=shard_size,
            compression=compression,
            metadata=metadata,
            mode="replace",
            overwrites=True,
            storage_options=storage_options,
        )
        return cls(driver, frozenset(dead))

    @property
    def metadata(self) -> dict[str, Any]:
        """Return the metadata of each part's index, which say whose it is."""
        return {RUN: self.driver.job.run}

    def begin_part(self, part: int) -> Storage:
        """Return the storage of the folder that a part is to be written to."""
        job = self.driver.job
        storage = open_storage(f"{job.url.rstrip('/')}/{self.folder(part)}", job.storage_options, write=True)
        storage.put(filenames.run_mark(job.run), b"")
        return storage

    def folder(self, part: int) -> str:
        """Return the folder of a part."""
        return filenames.attempt(part, self.driver.job.run)

    def done(self, part: int, samples: int) -> Done:
        """Return the result of a part that has `samples` samples and an index."""
        folder = self.folder(part)
        data = self.driver.storage.get(filenames.within(folder, filenames.INDEX)).data
        return Done(part, folder, samples, xxhash.xxh3_128_hexdigest(data))

    def commit(self, done: Iterable[Done]) -> Index:
        """Replace the index, and remove what it replaced. Return the new one.

        Raise ChangedError if the index is another one by now: then the new dataset is removed.
        """
        done = list(done)
        storage = self.driver.storage
        written = self.driver.commit(done)
        whole = parse_index(storage.get(filenames.INDEX).data)
        if whole.fingerprint == written.fingerprint:
            self._join_lengths(whole, [result.folder for result in done if result.folder])
        with suppress(MdsxError):  # what fails here is left to a clean
            self._tidy(whole)
            self._forget()
        return whole

    def abort(self) -> None:
        """End the run: the dataset stays as it is."""
        job, storage = self.driver.job, self.driver.storage
        if self.driver.is_open:
            mine = [name for name in attempts_at(storage) if filenames.attempt_token(name) == job.run]
            self.driver.abort(Done(0, name, 0, "") for name in mine)
        with suppress(MdsxError):  # what fails here is left to a clean
            self._forget()

    def _join_lengths(self, whole: Index, folders: list[str]) -> None:
        storage = self.driver.storage
        keys = {entry.key for entry in storage.list(filenames.PARTS)}
        parts = [parse_index(storage.get(filenames.within(folder, filenames.INDEX)).data) for folder in folders]
        join_lengths(storage, folders, parts, whole, keys)

    def _tidy(self, whole: Index) -> None:
        """Remove what dead overwritings have left, and what a conversion of the old dataset had skipped."""
        storage = self.driver.storage
        remove(storage, filenames.CONVERT_SKIPPED)
        discard(storage, choose=self._is_left)
        named = folders_of(whole)
        for folder, entries in attempts_at(storage).items():
            if filenames.attempt_token(folder) in self._dead and folder not in named:
                remove_files(storage, [entry.key for entry in entries])
        for run in sorted(self._dead):
            if note := replaced.read_note(storage, run):
                remove_files(storage, [entry.key for entry in replaced.leftovers(storage, note)])
            signs = [entry.key for entry in storage.list(f"{filenames.RUNS_FOLDER}{run}.")]
            last = filenames.run_sign(run, "overwrites")  # it says whose the others are
            remove(storage, *(key for key in signs if key != last))
            remove(storage, last)

    def _forget(self) -> None:
        """Remove the last sign of this run, if it is the only one."""
        job, storage = self.driver.job, self.driver.storage
        last = filenames.run_sign(job.run, "overwrites")
        if [entry.key for entry in storage.list(f"{filenames.RUNS_FOLDER}{job.run}.")] == [last]:
            remove(storage, last)

    def _is_left(self, entry: Entry) -> bool:
        """Return whether an unfinished object is one of a dead overwriting's."""
        if folder := filenames.part_folder(entry.key):
            return filenames.attempt_token(folder) in self._dead
        return filenames.parse_shard(entry.key) is None


def _check_named(storage: Storage, found: Piece) -> set[str]:
    """Return the runs of earlier overwritings that did not end. Raise UsageError if there is anything else that the
    dataset does not name."""
    signs = [(parsed, entry) for entry in storage.list(filenames.RUNS_FOLDER)
             if (parsed := filenames.parse_run_sign(entry.key))]  # fmt: skip
    dead = {run for (run, sign), _ in signs if sign == "overwrites"}
    for (run, _), entry in signs:
        if run not in dead:
            hint = "wait until it has ended; if it has died, remove what it left with `mdsx clean`"
            raise UsageError(
                "a run of Ray or Spark is or was at work here", file=f"{storage.url}/{entry.key}", hint=hint
            )
    indexes = [parse_index(found.data), *(index for _, index in replaced.indexes_at(storage))]
    indexes += [note.old for run in sorted(dead) if (note := replaced.read_note(storage, run))]
    names = {name for index in indexes for name in index.names()}
    folders = {folder for index in indexes for folder in folders_of(index)}
    left = {folder for folder in attempts_at(storage) if filenames.attempt_token(folder) in dead} - folders
    for entry in storage.list():
        if entry.key not in names and not _is_beside(entry.key, folders, left):
            hint = "it would stay beside the new dataset: move it elsewhere, or write the new one to another place"
            message = "there is something that the dataset to overwrite does not name"
            raise UsageError(message, file=f"{storage.url}/{entry.key}", hint=hint)
    return dead


def _is_beside(key: str, folders: set[str], left: set[str]) -> bool:
    """Return whether a key is that of a file beside shards that indexes name, whose parts are in `folders`; or of any
    that mdsx makes in the folders that were `left`."""
    if not filenames.is_of_dataset(key):
        return False
    folder = filenames.part_folder(key)
    inner = key.removeprefix(f"{folder}/") if folder else key
    if folder in left:
        return True
    if inner == filenames.INDEX or inner.startswith(filenames.LENGTHS_FOLDER):
        return not folder or folder in folders
    return key == filenames.CONVERT_SKIPPED or filenames.is_kept_index(key) or filenames.parse_run_sign(key) is not None
