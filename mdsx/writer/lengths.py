"""Write the file of a dataset's lengths: later than the dataset, or when its parts are merged."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mdsx.format import Index, LengthIdentity, LengthRule, filenames, length_rule
from mdsx.progress import Progress
from mdsx.shards import LengthFile, put_length_file, read_index, write_length_file
from mdsx.storage import Storage, StorageOptions, file_of, open_beside, open_storage


@dataclass(frozen=True, slots=True)
class WrittenLengths:
    """The lengths that `write_lengths` has written.

    Attributes:
        file: Where they are.
        column: The column that gives them.
        rule: How: "values" (of arrays of one dimension), "bytes" (of text and other values), or "number" (an integer).
        samples: How many there are.
        sum: Their sum.
    """

    file: str
    column: str
    rule: LengthRule
    samples: int
    sum: int

    @property
    def mean(self) -> float | None:
        """Return the mean length; None if there is no sample."""
        return self.sum / self.samples if self.samples else None


def write_lengths(
    url: str | os.PathLike[str],
    column: str,
    *,
    index: str | os.PathLike[str] | None = None,
    storage_options: StorageOptions | None = None,
    watch: Callable[[Progress], object] = lambda progress: None,
) -> WrittenLengths:
    """Write the lengths of all samples of a finished dataset by `column`, so that jobs that pack samples need not read
    them from the shards.

        mdsx.write_lengths("s3://bucket/corpus", "tokens")

    The file `_lengths/<column>.u32` goes next to the index, in place of an earlier one. Only the rows of the shards are
    read; of Parquet files, the column. Nothing else is changed.

    Args:
        url: A dataset of any format.
        column: An array of one dimension (its length is the number of values), `bytes`, `str`, `json` or another value
            of variable size (its bytes), or an integer (itself).
        index: The folder with the dataset's index, if it is not `url`; the file goes there.
        storage_options: What the storage of `url` needs to know besides the URL, as in `mdsx.Dataset`.
        watch: Called with an `mdsx.Progress` while shards are read; its sizes count shards' bytes.

    Raises:
        UsageError: The column gives no lengths, or nothing can be written there.
        MissingError: There is no finished dataset.
        CorruptError: A shard is damaged.
    """
    storage = open_storage(url, storage_options, write=index is None)
    target = storage if index is None else open_beside(url, index, storage_options, write=True)
    found = read_index(target)
    sizes = np.concatenate((np.zeros(1, np.int64), np.cumsum(found.sizes)))

    def show(done: int, samples: int) -> None:
        watch(Progress(samples, int(sizes[done]), int(sizes[-1]), done, len(sizes) - 1))

    trailer = write_length_file(storage, found, column, target=target, watch=show)
    file = file_of(target, filenames.lengths(column))
    return WrittenLengths(file, column, trailer.identity.rule, trailer.samples, trailer.sum)


def join_lengths(
    storage: Storage, names: Sequence[str], indexes: Sequence[Index], whole: Index, keys: Container[str]
) -> None:
    """Write the lengths of a merged dataset by each column by which all parts, the folders `names`, have theirs.

    `keys`: the files of all parts."""
    for column in whole.schema.columns:
        rule, key = length_rule(column.type), filenames.lengths(column.name)
        if rule is None or not names or any(filenames.within(name, key) not in keys for name in names):
            continue
        parts = list[NDArray[np.uint32]]()
        for name, index in zip(names, indexes, strict=True):
            identity = LengthIdentity(index.fingerprint, column.name, rule)
            file = LengthFile.open(storage, identity, index.counts, folder=name)
            if file is None:
                break
            parts += [lengths for found in file.read(range(len(index.counts))) for _, lengths in found]
        if len(parts) == len(whole.counts):  # what is damaged is missing
            put_length_file(storage, LengthIdentity(whole.fingerprint, column.name, rule), parts)
