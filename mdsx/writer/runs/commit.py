"""The driver of a distributed write: it begins a run, and publishes the attempts that count as a dataset.

Rules:
- An attempt counts if the engine delivered its result to the driver. Listings do not count.
- As the last step, and only once, the driver writes the index over these attempts, in the order of the parts. To create
  a dataset, it writes the index only if none exists. To replace one, it writes the index only if the old one is
  unchanged since the beginning. So of several drivers, one succeeds.
- Before that, it checks that each attempt's index is the one that the attempt wrote, and that all shards are there. It
  lists its run's folder once, for this check and to remove the other attempts. Files that attempts write after that are
  left to a clean.
- Once writing the index has begun, it may be stored even after an error: nothing removes the attempts any more.
- A driver removes only files in its run's folder that the index there does not name. `clean.py` removes the remains of
  dead runs; `record.py` defines which runs are dead.
- A driver may be pickled, so that another process commits or aborts (Spark's data sources). Only the process that began
  the run gives signs of life. Once it has ended, active attempts do.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

import xxhash

from mdsx.base.process import Owner
from mdsx.base.warn import warn
from mdsx.errors import ChangedError, MdsxError, MissingError, UsageError, shown
from mdsx.format import Index, build_index, filenames, join_indexes, parse_index
from mdsx.shards import refuse_foreign
from mdsx.storage import (
    Entry,
    Piece,
    Storage,
    StorageOptions,
    answered,
    describe,
    file_of,
    get_or_none,
    open_storage,
    put_over,
    remove,
)
from mdsx.writer.lengths import join_lengths
from mdsx.writer.options import WriterOptions, checked_lengths
from mdsx.writer.runs import replaced
from mdsx.writer.runs.job import Done, WriteJob
from mdsx.writer.runs.record import RunRecord, State, folders_of, remove_files

_THREADS = 16
_MODES = ("create", "replace")


@dataclass(frozen=True, slots=True)
class Written:
    """The dataset that a distributed write has made.

    Attributes:
        url: The dataset.
        columns: Column name -> type.
        samples: The number of samples.
        shards: The number of shards.
        bytes: The total size of the shards, before compression.
        fingerprint: The dataset's fingerprint: equal for the same samples in the same shards.
    """

    url: str
    columns: Mapping[str, str]
    samples: int
    shards: int
    bytes: int
    fingerprint: str


@dataclass(slots=True, eq=False)
class Driver:
    """The driver of a run that writes the dataset of `job`. See the rules above."""

    job: WriteJob
    metadata: dict[str, Any]
    storage: Storage
    _replaced: str | None  # ETag of the index to replace
    record: RunRecord
    _state: Literal["open", "publishing", "over"] = "open"
    _owner: Owner = field(default_factory=Owner)

    def __reduce__(self) -> tuple[object, ...]:
        return Driver, (self.job, self.metadata, self.storage, self._replaced, self.record)

    @classmethod
    def begin(
        cls,
        url: str,
        columns: Mapping[str, str],
        *,
        shard_size: int | str = "64MiB",
        compression: str | None = None,
        metadata: dict[str, Any] | None = None,
        lengths: Sequence[str] = (),
        mode: Literal["create", "replace"] = "create",
        overwrites: bool = False,
        storage_options: StorageOptions | None = None,
    ) -> Driver:
        """Begin a run: check all arguments and the folder before any task starts. `overwrites`: see `overwrite.py`.

        Raises:
            UsageError: An argument is invalid, or `url` has a dataset already.
            TransportError: Storage failed, or cannot be written.
        """
        options = WriterOptions.parse(columns, shard_size, compression)
        build_index(options.schema, None, [], metadata)  # raises an error for invalid metadata
        lengths = checked_lengths(options.schema, lengths, url)
        storage = open_storage(url, storage_options, write=True)
        found = check_place(storage, mode)
        run = secrets.token_hex(8)
        size, codecs = options.shard_size, options.schema.codecs
        job = WriteJob(storage.url, dict(columns), size, compression, run, storage_options, answered(), lengths, codecs)
        record = RunRecord(storage, run)
        record.begin(overwrites=overwrites)
        return cls(job, dict(metadata or {}), storage, None if found is None else found.etag, record)

    def commit(self, results: Iterable[Done]) -> Written:
        """Publish the attempts with these results as a dataset, and end the run.

        Raises:
            UsageError: Two results have the same part, or the run has ended.
            ChangedError: Another run has finished a dataset here meanwhile, files of an attempt have changed, or
                `mdsx clean` marked this run as dead.
        """
        if not self._owner.here or self._state != "open":
            message = "the run has ended" if self._owner.here else "the run belongs to another process"
            raise UsageError(message, file=self.storage.url, hint="begin another run")
        done = _one_each(results, self.storage.url)
        try:
            self.record.sign()
            if (state := self.record.state()) != "running":
                raise self.record.ended(state)
            before = self._before()
            stored = {entry.key: entry.size for entry in self._files()}
            parts, index, data = self._join([result for result in done if result.folder], stored)
            if before is not None:
                replaced.put_note(self.storage, self.job.run, before)
        except BaseException:
            self.abort()
            raise
        try:
            self._state = "publishing"
            self._publish(index, data, before)
        except ChangedError:
            self._state = "open"
            self.abort()
            raise
        except BaseException:  # the index may have been stored: keep all files
            self.record.stop()
            raise
        folders, indexes = [folder for folder, _ in parts], [part for _, part in parts]
        try:
            join_lengths(self.storage, folders, indexes, index, stored)
        except MdsxError as error:  # the dataset is complete without them
            what = f"{self.storage.url}: the lengths were not stored: {error}"
            warn(f"{what}; write them with `mdsx lengths` or `mdsx sizes`", seen_by="process")
        finally:
            self.record.stop()
        with suppress(MdsxError):  # what fails here is left to a clean
            self._tidy(stored)
        size = int(index.raw_sizes.sum())
        return Written(self.storage.url, self.job.columns, index.samples, len(index.counts), size, index.fingerprint)

    def abort(self) -> None:
        """End the run without a dataset, and remove the files that its attempts have written so far.

        Do nothing after a commit that may have succeeded, in a forked child, or if the run has ended. Attempts that are
        still active leave files, which `mdsx clean` removes.
        """
        if not self._owner.here or self._state != "open":
            return
        self._state = "over"
        self.record.stop()
        with suppress(MdsxError):  # what fails here is left to a clean
            named = self._remove_unnamed(entry.key for entry in self._files())
            if not any(filenames.run_of(f"{folder}/") == self.job.run for folder in named):
                self.record.end()  # otherwise, another process has committed the run, and removes the rest
                self.record.remove()

    def _files(self) -> list[Entry]:
        """Return the stored files of the run's attempts."""
        found = self.storage.list(f"{filenames.run_folder(self.job.run)}/")
        return [entry for entry in found if filenames.split_part(entry.key)[0]]

    def _before(self) -> bytes | None:
        """Return the index to replace. Raise ChangedError if it has changed or was removed."""
        if self._replaced is None:
            return None
        there = get_or_none(self.storage, filenames.INDEX)
        if there is None or there.etag != self._replaced:
            raise self._late()
        return there.data

    def _join(self, done: Sequence[Done], stored: Mapping[str, int]) -> tuple[list[tuple[str, Index]], Index, bytes]:
        """Return the folders and indexes of the attempts `done`, and the index over all of them, with its bytes.

        `stored`: the sizes of their files, by key.
        """
        with ThreadPoolExecutor(_THREADS) as pool:
            parts = list(zip((result.folder for result in done), pool.map(self._read, done), strict=True))
        for folder, part in parts:
            _check_shards(self.storage, folder, part, stored)
        options = WriterOptions.parse(self.job.columns, self.job.shard_size, self.job.compression)
        data = join_indexes(options.schema, options.compression, parts, self.metadata)
        return parts, parse_index(data), data

    def _read(self, result: Done) -> Index:
        """Return the index of an attempt. Raise ChangedError unless it is the one that the attempt wrote."""
        key = filenames.within(result.folder, filenames.INDEX)
        file = file_of(self.storage, key)
        try:
            data = self.storage.get(key).data
        except MissingError:
            raise _changed("the index of an attempt was removed", file) from None
        if xxhash.xxh3_128_hexdigest(data) != result.hash:
            raise _changed("the index of an attempt has changed", file)
        return parse_index(data, file=file)

    def _publish(self, index: Index, data: bytes, before: bytes | None) -> None:
        """Write the index. Raise ChangedError if another driver was first, or if a clean marked the run as dead."""
        try:
            put_over(self.storage, filenames.INDEX, data, etag=self._replaced)
        except ChangedError as error:
            raise self._late() from error
        state = self.record.state()
        if state != "running" and not self._stays(state, index, before):
            self._take_back(data, before)
            raise self.record.ended(state)

    def _late(self) -> ChangedError:
        message = "another run has finished a dataset here meanwhile"
        hint = "read that dataset, or write to another URL"
        return ChangedError(message, file=file_of(self.storage, filenames.INDEX), hint=hint)

    def _stays(self, state: State, index: Index, before: bytes | None) -> bool:
        """Return whether the written index is valid although a clean has marked the run as dead.

        It is if all shards are there, and the clean removes none: it has finished, or removed the replaced dataset.
        """
        stored = {entry.key: entry for entry in self.storage.list()}
        if replaced.first_missing(index, stored):
            return False
        lost = before is not None and replaced.first_missing(parse_index(before), stored) is not None
        return state == "cleaned" or lost

    def _take_back(self, data: bytes, before: bytes | None) -> None:
        """Restore the state from before the index was written, unless another index is there now."""
        with suppress(MissingError, ChangedError):
            found = self.storage.get(filenames.INDEX)
            if found.data != data:
                return
            if before is None:
                remove(self.storage, filenames.INDEX)
            else:
                self.storage.replace(filenames.INDEX, before, etag=found.etag)

    def _tidy(self, stored: Iterable[str]) -> None:
        """Remove what the dataset does not need: the replaced dataset, the run's other attempts, and its record."""
        self.record.end()
        if self._replaced is not None:
            note = replaced.read_note(self.storage, self.job.run)
            entries = replaced.leftovers(self.storage, note) if note else []
            remove_files(self.storage, [entry.key for entry in entries])
        self._remove_unnamed(stored)
        self.record.remove()

    def _remove_unnamed(self, keys: Iterable[str]) -> set[str]:
        """Remove the run's files except parts that the index there names. Return the folders of these parts."""
        there = get_or_none(self.storage, filenames.INDEX)
        named = folders_of(parse_index(there.data)) if there else set[str]()
        remove_files(self.storage, [key for key in keys if filenames.split_part(key)[0] not in named])
        return named


def check_place(storage: Storage, mode: str) -> Piece | None:
    """Return the existing index, which a run would replace; None if there is none. Raise UsageError if a run cannot
    write here."""
    if mode not in _MODES:
        raise UsageError("unknown mode", found=shown(mode), expected=" or ".join(_MODES))
    refuse_foreign(storage, "there is a dataset of another format already", hint="write to another URL")
    found = get_or_none(storage, filenames.INDEX)
    if found is not None and mode == "create":
        hint = 'write to another URL, or replace it: mode="replace" in Ray, mode "overwrite" in Spark'
        raise UsageError("there is a dataset already", file=storage.url, hint=hint)
    for prefix in (filenames.WRITER_FOLDER, filenames.CONVERT_FOLDER):
        if any(found is None or entry.key != filenames.CONVERT_SKIPPED for entry in storage.list(prefix)):
            hint = "finish that dataset, or remove it"
            raise UsageError("there is an unfinished dataset or conversion", file=storage.url, hint=hint)
    if found is None:
        _refuse_unnamed(storage)
    else:
        parse_index(found.data, file=file_of(storage, filenames.INDEX))  # its files are removed at the end
    return found


def _refuse_unnamed(storage: Storage) -> None:
    """Raise UsageError if there are shards or parts that no index names: someone may still want to merge them."""
    if any(filenames.parse_shard(entry.key) for entry in storage.list(filenames.SHARDS)):
        hint = "write to another URL, or remove them"
        raise UsageError("there are shards without an index", file=storage.url, hint=hint)
    for entry in storage.list(filenames.PARTS):
        if folder := filenames.split_part(entry.key)[0]:
            file = file_of(storage, folder)
            hint = "join the parts with `mdsx merge`, or write to another URL"
            raise UsageError("there is a part that no index names", file=file, hint=hint)


def _one_each(results: Iterable[Done], url: str) -> list[Done]:
    """Return the results in the order of their parts."""
    done = sorted(Done(*result) for result in results)
    for one, other in pairwise(done):
        if one.part == other.part:
            message = "the engine returned two results for the same part"
            raise UsageError(message, file=url, found=f"{one.folder}, {other.folder}")
    return done


def _check_shards(storage: Storage, folder: str, index: Index, stored: Mapping[str, int]) -> None:
    """Raise ChangedError if a shard of an attempt is missing or has another size."""
    for key, size in zip(index.shard_names(folder), index.sizes.tolist(), strict=True):
        if stored.get(key) != size and _size(storage, key) != size:
            raise _changed("a shard of an attempt is missing or has another size", file_of(storage, key))


def _size(storage: Storage, key: str) -> int | None:
    """Return the size of an object that a listing lacked: listings of network file systems may be a minute late."""
    try:
        return describe(storage, key).size
    except MissingError:
        return None


def _changed(message: str, file: str) -> ChangedError:
    return ChangedError(message, file=file, hint="did `mdsx clean` or another program change it? run the job again")


@contextmanager
def aborting(driver: Driver) -> Iterator[None]:
    """End the run without a dataset if the block raises."""
    try:
        yield
    except BaseException:
        driver.abort()
        raise
