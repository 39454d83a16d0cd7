"""Overwriting: replace a dataset by another one at the same URL. The old one stays complete until then.

- Nothing is written unless the old index parses, and it, its snapshots, or indexes that repairs replaced name all files
  in the folder, except for files of an earlier overwriting that died.
- The new shards are in a run's own folder. So no file is overwritten, and readers that have mapped old shards continue.
- The index is replaced only if it is unchanged since the beginning. The old files are removed after that. A note of
  them (`replaced.py`) lets the next overwriting, or `mdsx clean`, finish the removal after a kill.
- Once the index is replaced, overwritings that began earlier cannot finish. Their files are removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import xxhash

from mdsx.errors import MdsxError, UsageError
from mdsx.format import Index, filenames, parse_index
from mdsx.storage import Entry, Piece, Storage, StorageOptions, discard, exists, file_of, open_storage, remove
from mdsx.writer.runs import replaced
from mdsx.writer.runs.commit import Driver, check_place
from mdsx.writer.runs.job import Done
from mdsx.writer.runs.record import RunRecord, folders_of, remove_files, runs_at

_CLOCK = "clock"  # the sign by which a clean asks the storage for the time


@dataclass(slots=True, eq=False)
class Overwriting:
    """A run that replaces the dataset at a URL by parts, each written to a folder of the run."""

    driver: Driver
    _dead: frozenset[str]  # runs of earlier overwritings that never ended

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
        """Begin to replace the dataset at `url`. Return None if there is no index to replace.

        Raise UsageError, before anything is written, if the folder has files that are not the dataset's.
        """
        storage = open_storage(url, storage_options, write=True)
        if not exists(storage, filenames.INDEX):
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
    def run(self) -> str:
        return self.driver.job.run

    def begin_part(self, part: int) -> Storage:
        """Return the storage of the folder to write a part to."""
        job = self.driver.job
        url = f"{job.url.rstrip('/')}/{filenames.run_part(self.run, part)}"
        return open_storage(url, job.storage_options, write=True)

    def done(self, part: int, samples: int) -> Done:
        """Return the result of a part that has `samples` samples and an index."""
        folder = filenames.run_part(self.run, part)
        data = self.driver.storage.get(filenames.within(folder, filenames.INDEX)).data
        return Done(part, folder, samples, xxhash.xxh3_128_hexdigest(data))

    def commit(self, done: Iterable[Done]) -> Index:
        """Replace the index, and remove the old dataset. Return the new index.

        Raise ChangedError if the index has changed meanwhile; the new dataset is removed then.
        """
        storage = self.driver.storage
        self.driver.commit(done)
        whole = parse_index(storage.get(filenames.INDEX).data)
        with suppress(MdsxError):  # what fails here is left to a clean
            self._tidy(whole)
        return whole

    def abort(self) -> None:
        """End the run unless it is complete. The old dataset stays as it is."""
        self.driver.abort()

    def _tidy(self, whole: Index) -> None:
        """Remove the remains of dead overwritings, and the old dataset's list of samples that a conversion skipped."""
        storage, named = self.driver.storage, folders_of(whole)
        remove(storage, filenames.CONVERT_SKIPPED)
        discard(storage, choose=self._is_left)
        for run, found in runs_at(storage).items():
            if run not in self._dead:
                continue
            left = [entry for folder, entries in found.parts.items() if folder not in named for entry in entries]
            if note := replaced.read_note(storage, run):
                left += replaced.leftovers(storage, note)
            remove_files(storage, [entry.key for entry in left])
            remove(storage, *(found.signs[sign].key for sign in ("alive", "dead") if sign in found.signs))
            RunRecord(storage, run).remove()

    def _is_left(self, entry: Entry) -> bool:
        """Return whether an unfinished object belongs to a dead overwriting."""
        if filenames.split_part(entry.key)[0]:
            return filenames.run_of(entry.key) in self._dead
        return filenames.parse_shard(entry.key) is None


def _check_named(storage: Storage, found: Piece) -> set[str]:
    """Return the runs of earlier overwritings that never ended. Raise UsageError if there is any other file that the
    dataset does not name."""
    runs = runs_at(storage)
    dead = {run for run, folder in runs.items() if "overwrites" in folder.signs}
    for run, folder in runs.items():
        signs = [entry for sign, entry in folder.signs.items() if sign != _CLOCK]
        if signs and run not in dead:
            file = file_of(storage, signs[0].key)
            hint = "wait until it has ended; if it has died, remove its files with `mdsx clean`"
            raise UsageError("there is an unfinished run of Ray or Spark", file=file, hint=hint)
    indexes = [parse_index(found.data), *(index for _, index in replaced.indexes_at(storage))]
    indexes += [note.old for run in sorted(dead) if (note := replaced.read_note(storage, run))]
    names = {name for index in indexes for name in index.shard_names()}
    folders = {folder for index in indexes for folder in folders_of(index)}
    for entry in storage.list():
        if (filenames.parse_run_sign(entry.key) or ("", ""))[1] == _CLOCK:
            continue
        left = filenames.run_of(entry.key) in dead and filenames.is_of_dataset(entry.key)
        if not left and entry.key not in names and not _is_beside(entry.key, folders):
            hint = "it would stay beside the new dataset: move it elsewhere, or write to another URL"
            message = "this file does not belong to the dataset to overwrite"
            raise UsageError(message, file=file_of(storage, entry.key), hint=hint)
    return dead


def _is_beside(key: str, folders: set[str]) -> bool:
    """Return whether a key is that of a file beside the shards, in the root or in one of the parts' `folders`."""
    if not filenames.is_of_dataset(key):
        return False
    folder, inner = filenames.split_part(key)
    if filenames.is_beside_index(inner):
        return not folder or folder in folders
    return key == filenames.CONVERT_SKIPPED or filenames.is_kept_index(key)
