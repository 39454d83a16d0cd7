"""The driver's part of a distributed write: begin a job, and make a dataset of the attempts that count.

Rules:
- An attempt counts if the engine brought its result to the driver. Nothing is found by listing.
- The driver writes the index over these attempts, in the order of the parts, as the last step and only once. Where a
  dataset should be created, it writes the index only if there is none; where one should be replaced, only if the index
  is still the one that was there at the beginning. So of several drivers, one succeeds.
- Before that, it checks that each attempt's index is the one that the attempt wrote, and that all its shards are there.
- A driver removes only attempts of its own run, and nothing that the index there names. `mdsx clean` removes what dead
  runs left.
- While a driver is at work, it renews a record, `_runs/<run>.json`, and each attempt renews its mark. So for
  `mdsx clean` a run is alive while its record or any file of its attempts is new.
- A driver may be pickled, so that another process commits or aborts (Spark's data sources). Only the process that began
  the run renews the record; after that, the attempts keep the run alive.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

import xxhash

from mdsx.engines.job import RENEWED, RUN, Done, Job
from mdsx.errors import ChangedError, MdsxError, MissingError, UsageError, shown
from mdsx.format import Index, build_index, filenames, join_indexes, parse_index
from mdsx.shards import refuse_foreign
from mdsx.sizes import parse_size
from mdsx.storage import Entry, Piece, Storage, StorageOptions, answered, open_storage
from mdsx.writer import Options

_THREADS = 16
_MODES = ("create", "replace")


@dataclass(frozen=True, slots=True)
class Written:
    """What a distributed write has made.

    Attributes:
        url: The dataset.
        columns: Column name -> type.
        samples: How many samples it has.
        shards: How many shards it has.
        fingerprint: The dataset's: equal for the same samples in the same shards.
    """

    url: str
    columns: Mapping[str, str]
    samples: int
    shards: int
    fingerprint: str


@dataclass(slots=True, eq=False)
class Driver:
    """The driver of a run that writes the dataset of `job`. See the rules above."""

    job: Job
    metadata: dict[str, Any]
    storage: Storage
    _replaced: str | None  # ETag of the index that is to be replaced
    _over: threading.Event = field(default_factory=threading.Event)

    def __reduce__(self) -> tuple[object, ...]:
        return Driver, (self.job, self.metadata, self.storage, self._replaced)

    @classmethod
    def begin(
        cls,
        url: str,
        columns: Mapping[str, str],
        *,
        shard_size: int | str = "64MiB",
        compression: str | None = None,
        metadata: dict[str, Any] | None = None,
        mode: Literal["create", "replace"] = "create",
        storage_options: StorageOptions | None = None,
    ) -> Driver:
        """Begin a run: check all arguments and the place before any task starts.

        Raises:
            UsageError: An argument is invalid, or there is something at `url` already.
            TransportError: Storage failed, or cannot be written.
        """
        if mode not in _MODES:
            raise UsageError("the mode is unknown", found=shown(mode), expected=" or ".join(_MODES))
        size = parse_size(shard_size, name="shard_size")
        options = Options.parse(columns, size, compression)
        build_index(options.schema, None, [], metadata)  # raises an error for invalid metadata
        storage = open_storage(url, storage_options, write=True)
        refuse_foreign(storage, "there is a dataset of another format already", hint="write to another place")
        replaced = _there(storage)
        if replaced is not None and mode == "create":
            hint = "write to another place, or replace it (docs/engines.md)"
            raise UsageError("there is a dataset already", file=storage.url, hint=hint)
        for prefix in (filenames.WRITER_FOLDER, filenames.CONVERT_FOLDER):
            if any(storage.list(prefix)):
                hint = "finish or remove that dataset"
                raise UsageError("a writer or a conversion is or was at work here", file=storage.url, hint=hint)
        if replaced is None and any(filenames.parse_shard(entry.key) for entry in storage.list(filenames.SHARDS)):
            hint = "write to another place, or remove them"
            raise UsageError("there are shards without an index", file=storage.url, hint=hint)
        run = secrets.token_hex(8)
        job = Job(storage.url, dict(columns), size, compression, run, storage_options, answered())
        driver = cls(job, dict(metadata or {}), storage, None if replaced is None else replaced.etag)
        driver._renew()
        threading.Thread(target=driver._keep_renewing, name=f"mdsx-run-{run}", daemon=True).start()
        return driver

    def commit(self, results: Iterable[Done]) -> Written:
        """Make a dataset of the attempts whose results are given, and end the run.

        Raises:
            UsageError: Two results are of the same part.
            ChangedError: Another run has finished a dataset here meanwhile, or files of an attempt have changed.
        """
        done = _one_each(results, self.storage.url)
        try:
            before = self._before()
            index, data = self._join([result for result in done if result.folder])
        except BaseException:
            self.abort(done)
            raise
        try:
            self._publish(data)
        except ChangedError:
            self.abort(done)
            raise
        except BaseException:  # the index may have been stored: all of it stays
            self._over.set()
            raise
        replaced = _folders(parse_index(before)) if before else ()
        self._end(keep=[*replaced, *(result.folder for result in done)])
        if before is not None:
            _remove_replaced(self.storage, before, index)
        return Written(self.storage.url, self.job.columns, index.samples, len(index.counts), index.fingerprint)

    def abort(self, done: Iterable[Done] = ()) -> None:
        """End the run without a dataset, and remove what its attempts have written so far: those of `done`, and others.

        An attempt that is still at work leaves files, which `mdsx clean` removes.
        """
        self._end(keep=(), own=[result.folder for result in done])

    def _before(self) -> bytes | None:
        """Return the index that is to be replaced. Raise ChangedError if there is another one now, or none."""
        if self._replaced is None:
            return None
        there = _there(self.storage)
        if there is None or there.etag != self._replaced:
            raise self._late()
        return there.data

    def _join(self, done: Sequence[Done]) -> tuple[Index, bytes]:
        """Return the index over the attempts, and its bytes."""
        sizes = {entry.key: entry.size for entry in self.storage.list(filenames.PARTS)}
        with ThreadPoolExecutor(_THREADS) as pool:
            parts = list(zip((result.folder for result in done), pool.map(self._read, done), strict=True))
        for folder, part in parts:
            _check_shards(self.storage, folder, part, sizes)
        options = Options.parse(self.job.columns, self.job.shard_size, self.job.compression)
        data = join_indexes(options.schema, options.compression, parts, self.metadata)
        return parse_index(data), data

    def _read(self, result: Done) -> Index:
        """Return the index of an attempt. Raise ChangedError unless it is what the attempt wrote."""
        key = filenames.within(result.folder, filenames.INDEX)
        file = f"{self.storage.url}/{key}"
        try:
            data = self.storage.get(key).data
        except MissingError:
            raise _changed("the index of an attempt was removed", file) from None
        if xxhash.xxh3_128_hexdigest(data) != result.hash:
            raise _changed("the index of an attempt is not the one that it wrote", file)
        return parse_index(data, file=file)

    def _publish(self, data: bytes) -> None:
        try:
            if self._replaced is None:
                self.storage.create(filenames.INDEX, data)
            else:
                self.storage.replace(filenames.INDEX, data, etag=self._replaced)
        except ChangedError as error:
            raise self._late() from error

    def _late(self) -> ChangedError:
        message = "another run has finished a dataset here meanwhile"
        hint = "read that one, or write to another place"
        return ChangedError(message, file=f"{self.storage.url}/{filenames.INDEX}", hint=hint)

    # --- the record and the attempts of this run

    def _renew(self) -> None:
        record = {"format": "mdsx-run", "version": 1, "renewed_every_s": RENEWED}
        self.storage.put(filenames.run(self.job.run), json.dumps(record).encode())

    def _keep_renewing(self) -> None:
        while not self._over.wait(RENEWED):
            with suppress(MdsxError):  # the next one may succeed
                self._renew()

    def _end(self, keep: Sequence[str], own: Sequence[str] = ()) -> None:
        """Remove the attempts of this run, except `keep`, and then its record. What fails here is left to a clean.

        `own`: attempts that are known to be of this run."""
        self._over.set()
        with suppress(MdsxError):
            there = _there(self.storage)
            others = {*keep, *(_folders(parse_index(there.data)) if there else ())}
            found: dict[str, list[Entry]] = {}
            for entry in self.storage.list(filenames.PARTS):
                if (folder := filenames.part_folder(entry.key)) and folder not in others:
                    found.setdefault(folder, []).append(entry)
            known = dict.fromkeys(own, self.job.run)
            with ThreadPoolExecutor(_THREADS) as pool:
                runs = pool.map(lambda folder: known.get(folder) or run_of(self.storage, folder, found[folder]), found)
                mine = [entries for entries, run in zip(found.values(), runs, strict=True) if run == self.job.run]
            remove(self.storage, [entry.key for entries in mine for entry in entries])
            self.storage.delete(filenames.run(self.job.run))


def run_of(storage: Storage, folder: str, entries: Iterable[Entry]) -> str | None:
    """Return the run that an attempt with these files is of; None if that cannot be known."""
    keys = {entry.key for entry in entries}
    for key in keys:
        if run := filenames.marked_run(key):
            return run
    key = filenames.within(folder, filenames.INDEX)
    if key not in keys:
        return None
    try:
        run = parse_index(storage.get(key).data, file=f"{storage.url}/{key}").metadata.get(RUN)
    except MdsxError:
        return None
    return run if isinstance(run, str) else None


def remove(storage: Storage, keys: Sequence[str]) -> None:
    """Remove objects, the indexes of attempts first: what has no index is unfinished."""
    for some in (
        [key for key in keys if key.endswith(f"/{filenames.INDEX}")],
        [key for key in keys if not key.endswith(f"/{filenames.INDEX}")],
    ):
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(storage.delete, some))


def _folders(index: Index) -> set[str]:
    """Return the folders of parts that an index names."""
    return {folder for prefix, *_ in index.files if (folder := filenames.part_folder(prefix))}


def _there(storage: Storage) -> Piece | None:
    try:
        return storage.get(filenames.INDEX)
    except MissingError:
        return None


def _one_each(results: Iterable[Done], url: str) -> list[Done]:
    """Return the results in the order of their parts."""
    done = sorted(Done(*result) for result in results)
    for one, other in pairwise(done):
        if one.part == other.part:
            message = "the engine returned two results of the same part"
            raise UsageError(message, file=url, found=f"{one.folder}, {other.folder}")
    return done


def _check_shards(storage: Storage, folder: str, index: Index, sizes: Mapping[str, int]) -> None:
    """Raise ChangedError if a shard of an attempt is missing or has another size."""
    for key, size in zip(index.names(folder), index.sizes.tolist(), strict=True):
        if sizes.get(key) != size:
            raise _changed("a shard of an attempt is missing or has another size", f"{storage.url}/{key}")


def _changed(message: str, file: str) -> ChangedError:
    return ChangedError(message, file=file, hint="was `mdsx clean` or another program at work here? run the job again")


def _remove_replaced(storage: Storage, before: bytes, now: Index) -> None:
    """Remove the shards of the index that was replaced, and what is stored next to it. A clean removes what is left."""
    with suppress(MdsxError):
        old = parse_index(before)
        names = set(now.names())
        keys = [name for name in old.names() if name not in names]
        keys += [filenames.within(folder, filenames.INDEX) for folder in sorted(_folders(old) - _folders(now))]
        for prefix in (filenames.LENGTHS_FOLDER, filenames.SNAPSHOTS):
            keys += [entry.key for entry in storage.list(prefix)]
        remove(storage, keys)


@contextmanager
def aborting(driver: Driver) -> Iterator[None]:
    """End the run without a dataset if the block raises."""
    try:
        yield
    except BaseException:
        driver.abort()
        raise
