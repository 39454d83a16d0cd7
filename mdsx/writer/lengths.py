"""Write the file of a dataset's lengths: for a finished dataset, in a merge, and in an append."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from mdsx.base.progress import Progress
from mdsx.base.warn import warn
from mdsx.errors import ChangedError, CorruptError, MissingError, UsageError
from mdsx.format import SIDES, Index, LengthIdentity, LengthRule, filenames, length_rules, parse_index
from mdsx.shards import (
    LengthFile,
    Sides,
    image_column,
    put_length_file,
    read_index,
    snapshots,
    stored_lengths,
    stored_sides,
    stored_sum,
    write_length_file,
    writing_command,
)
from mdsx.storage import Storage, StorageOptions, file_of
from mdsx.writer.opening import check_unchanged, open_dataset

_SNAPSHOTS = 4  # last snapshots whose lengths may be extended, after a kill or concurrent appends
_TRIES = 8


@dataclass(frozen=True, slots=True)
class WrittenLengths:
    """The result of `write_lengths`.

    Attributes:
        file: The file of lengths.
        column: The column whose lengths it has.
        rule: What counts: "values" (of one-dimensional arrays), "bytes" (of text and other values), or "number" (the
            integer itself).
        samples: The number of samples.
        sum: The sum of all lengths.
    """

    file: str
    column: str
    rule: LengthRule
    samples: int
    sum: int

    @property
    def mean(self) -> float | None:
        """Return the mean length; None without samples."""
        return self.sum / self.samples if self.samples else None


def write_lengths(
    url: str | os.PathLike[str],
    column: str,
    *,
    index: str | os.PathLike[str] | None = None,
    storage_options: StorageOptions | None = None,
    watch: Callable[[Progress], object] = lambda progress: None,
) -> WrittenLengths:
    """Write the length of each sample of a finished dataset, so that jobs that pack samples need not read all shards.

        mdsx.write_lengths("s3://bucket/corpus", "tokens")

    The file `_lengths/<column>.u32` is written next to the index, and replaces an earlier one. No other file changes.
    Of the shards, only the rows are read; of Parquet files, only the column.

    Args:
        url: A dataset of any format.
        column: The column whose lengths count: a one-dimensional array (its number of values), `bytes`, `str`, `json`
            or another type of variable size (its bytes), or an integer (the length itself).
        index: The folder of the dataset's index, if it is not `url`. The file is written there.
        storage_options: Options for the storage of `url`, as in `mdsx.Dataset`.
        watch: Called with an `mdsx.Progress` while shards are read. Its sizes are bytes of shards.

    Raises:
        UsageError: The column has no lengths, or the storage cannot be written.
        MissingError: The dataset does not exist or is unfinished.
        CorruptError: A shard is damaged.
        ChangedError: The dataset changed meanwhile, such as by an append.
    """
    storage, target, found, show = open_dataset(url, index, storage_options, watch)
    check = partial(check_unchanged, target, found)
    trailer = write_length_file(storage, found, column, target=target, watch=show, check=check)
    file = file_of(target, filenames.lengths(column))
    return WrittenLengths(file, column, trailer.identity.rule, trailer.samples, trailer.sum)


def join_lengths(
    storage: Storage, names: Sequence[str], indexes: Sequence[Index], whole: Index, keys: Container[str]
) -> None:
    """Write the lengths of a merged dataset for each column for which all parts, the folders `names`, have lengths.

    `keys`: the files of all parts."""
    for column, rule in _every_rule(whole):
        key = LengthIdentity("", column, rule).key
        if not names or any(filenames.within(name, key) not in keys for name in names):
            continue
        parts = list[NDArray[np.uint32]]()
        for name, index in zip(names, indexes, strict=True):
            identity = LengthIdentity(index.fingerprint, column, rule)
            file = LengthFile.open(storage, identity, index.counts, folder=name)
            if file is None:
                break
            parts += [lengths for found in file.read(range(len(index.counts))) for _, lengths in found]
        if len(parts) == len(whole.counts):  # lengths of shards that are damaged are missing
            put_length_file(storage, LengthIdentity(whole.fingerprint, column, rule), parts)


def _every_rule(index: Index) -> Iterator[tuple[str, LengthRule]]:
    """Yield each column that may have a file of lengths, with each of its rules."""
    for column in index.schema.columns:
        for rule in length_rules(column.type):
            yield column.name, rule


def sums_of_both(storage: Storage, before: Index, added: Index, whole: Index) -> dict[str, int]:
    """Return the sums of lengths by column for a dataset with the index `whole`: of the columns with a sum in `before`.

    `added`: the index of the part. Sums that it lacks are computed from its rows."""
    sums, new = dict[str, int](), range(len(before.counts), len(whole.counts))
    for name, old in before.lengths.items():
        part = added.lengths.get(name)
        if part is None:
            part = stored_sum(storage, whole, name, new)
        if part is not None:
            sums[name] = old + part
    return sums


def extend_lengths(storage: Storage, whole: Index, part: str, added: Index) -> None:
    """Extend the files of lengths after an append. `whole`: the dataset's new index.

    The lengths of the folder `part`, whose index is `added`, come from its files. Lengths that no file has are read
    from the rows; heights and widths from the images' headers, if Pillow is installed. A file is replaced only if it is
    still the one that was read, as several appends may run at once. A file that fits neither the dataset nor one of its
    last snapshots is left as it is, with a warning.
    """
    keys = {entry.key for entry in storage.list(filenames.LENGTHS_FOLDER)}
    read = _MissingLengths(storage, whole)
    for column, rule in _every_rule(whole):
        if LengthIdentity("", column, rule).key not in keys:
            continue
        for attempt in range(_TRIES):
            try:
                _extend(storage, whole, part, added, column, rule, read)
                break
            except ChangedError:
                if attempt == _TRIES - 1:
                    raise


class _MissingLengths:
    """Reads lengths that no file has, of a dataset with the index `whole`."""

    def __init__(self, storage: Storage, whole: Index) -> None:
        self._storage, self._whole = storage, whole
        self._sides = dict[tuple[str, int], Sides]()  # height and width are read together

    def of(self, column: str, rule: LengthRule, shards: Sequence[int]) -> list[NDArray[np.uint32]]:
        """Return the lengths of each of `shards`. Raise UsageError for heights and widths without Pillow."""
        if rule not in SIDES:
            return stored_lengths(self._storage, self._whole, column, shards)
        number = image_column(self._whole, column, url=self._storage.url)
        new = [shard for shard in shards if (column, shard) not in self._sides]
        for shard, sides in zip(new, stored_sides(self._storage, self._whole, number, new), strict=True):
            self._sides[column, shard] = sides
        return [self._sides[column, shard][SIDES.index(rule)] for shard in shards]


def _extend(
    storage: Storage, whole: Index, part: str, added: Index, column: str, rule: LengthRule, read: _MissingLengths
) -> None:
    """Extend the file of one column and rule. Raise ChangedError if another append wrote the file meanwhile."""

    def opened(index: Index, folder: str = "") -> LengthFile | None:
        identity = LengthIdentity(index.fingerprint, column, rule)
        return LengthFile.open(storage, identity, index.counts, folder=folder, warns=False)

    if opened(whole) is not None:
        return
    old = next((file for index in _last_snapshots(storage, whole) if (file := opened(index)) is not None), None)
    if old is None:
        if read_index(storage).fingerprint == whole.fingerprint:  # else a later append writes the file
            why = "the lengths are not used: they are damaged, or of an earlier state of the dataset"
            _warn_of(storage, LengthIdentity(whole.fingerprint, column, rule), why)
        return
    firsts = {filenames.within(part, added.name(shard)): shard for shard in range(len(added.counts))}
    known, of_part = _read(old), _read(opened(added, part))
    for shard in range(old.shards, len(whole.counts)):
        if (found := of_part.get(firsts.get(whole.name(shard), -1))) is not None:
            known[shard] = found
    missing = [shard for shard in range(len(whole.counts)) if shard not in known]
    identity = LengthIdentity(whole.fingerprint, column, rule)
    try:
        if missing:
            known |= zip(missing, read.of(column, rule, missing), strict=True)
    except UsageError as error:  # Pillow is missing; the samples are appended nevertheless
        _warn_of(storage, identity, f"the sizes of the appended images are missing: {error}")
        return
    parts = [known[shard] for shard in range(len(whole.counts))]
    put_length_file(storage, identity, parts, etag=old.etag)


def _warn_of(storage: Storage, identity: LengthIdentity, why: str) -> None:
    command = writing_command(storage, identity)
    warn(f"{file_of(storage, identity.key)}: {why}; rewrite them: {command}", seen_by="process")


def _last_snapshots(storage: Storage, whole: Index) -> list[Index]:
    """Return the last snapshots of a dataset that it extends, newest first."""
    found = []
    for fingerprint in snapshots(storage)[: -_SNAPSHOTS - 1 : -1]:
        with suppress(CorruptError, MissingError):
            index = parse_index(storage.get(filenames.snapshot(fingerprint)).data)
            count = len(index.counts)
            if np.array_equal(index.raw_hashes, whole.raw_hashes[:count]):
                found.append(index)
    return found


def _read(file: LengthFile | None) -> dict[int, NDArray[np.uint32]]:
    """Return the lengths by shard, without damaged ones."""
    return {} if file is None else {shard: part for some in file.read(range(file.shards)) for shard, part in some}
