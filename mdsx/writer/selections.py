"""Write named selections: of a finished dataset, or of the one that an append makes."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from mdsx.base.progress import Progress
from mdsx.base.warn import warn
from mdsx.errors import MdsxError, UsageError, shown
from mdsx.format import Index, StoredSelection
from mdsx.order import Subset, bits_of, chosen_by_bits, select_between, select_chosen
from mdsx.shards import (
    DatasetSlice,
    Shards,
    choose_where,
    put_selection,
    read_selection,
    selection_key,
    selections_at,
)
from mdsx.storage import Storage, StorageOptions, file_of
from mdsx.writer.lengths import opened


@dataclass(frozen=True, slots=True)
class WrittenSelection:
    """The selection that `write_selection` has written.

    Attributes:
        file: Where it is.
        name: Its name.
        where: The condition.
        samples: The samples of the dataset.
        selected: How many of them the condition chose.
    """

    file: str
    name: str
    where: str
    samples: int
    selected: int


def write_selection(
    url: str | os.PathLike[str],
    name: str,
    where: str,
    *,
    index: str | os.PathLike[str] | None = None,
    storage_options: StorageOptions | None = None,
    watch: Callable[[Progress], object] = lambda progress: None,
) -> WrittenSelection:
    """Write which samples of a finished dataset a condition chooses, under a name, so that each process of a job opens
    them at once.

        mdsx.write_selection("s3://bucket/corpus", "hard", where="label = 3 and length(tokens) > 64")
        mdsx.Dataset("s3://bucket/corpus", selection="hard")

    The file `_selections/<name>-<fingerprint>.json` goes next to the index, in place of an earlier one. It belongs to
    the dataset as it is now; `mdsx.append` writes another one for the dataset with the part. Nothing else is changed.

    Args:
        url: A dataset of any format.
        name: Up to 100 letters, digits, ".", "_" and "-".
        where: A condition, as in `mdsx.Dataset.filter`: of columns of numbers and bools of a fixed size, and lengths.
        index: The folder with the dataset's index, if it is not `url`; the file goes there.
        storage_options: What the storage of `url` needs to know besides the URL, as in `mdsx.Dataset`.
        watch: Called with an `mdsx.Progress` while shards are read; its sizes count shards' bytes.

    Raises:
        UsageError: The condition cannot be evaluated, it is no name, or nothing can be written there.
        MissingError: There is no finished dataset.
        CorruptError: A shard is damaged.
    """
    storage, target, found, reached = opened(url, index, storage_options, watch)
    key = selection_key(name, found.fingerprint)
    if not isinstance(where, str):
        raise UsageError("where= is a condition, as text", found=shown(where), expected='such as "label = 3"')

    edges = np.cumsum(found.counts)

    def show(samples: int) -> None:
        reached(int(np.searchsorted(edges, samples, side="right")), samples)

    chosen = choose_where(DatasetSlice.whole(Shards.of(storage, target, found)), where, show)
    head = put_selection(target, found, name, where, chosen)
    return WrittenSelection(file_of(target, key), name, where, head.samples, head.selected)


def extend_selections(storage: Storage, before: Index, whole: Index) -> None:
    """Write the selections of a dataset with the index `whole`, which begins with all shards of the index `before`, by
    each one that the dataset had before.

    The condition chooses among the new samples; the others are chosen as before. One that is damaged, or cannot be
    evaluated, is left out, with a warning.
    """
    for name, fingerprint in selections_at(storage):
        if fingerprint != before.fingerprint:
            continue
        try:
            old = read_selection(storage, before, name)
            put_selection(storage, whole, name, old.head.where, _extended(storage, whole, old))
        except MdsxError as error:
            command = shlex.join(["mdsx", "select", storage.url, "--where", "CONDITION", "--name", name])
            warn(
                f"selection {name!r} is not extended: {error}; make it again, or open it with the snapshot "
                f"{before.fingerprint}: {command}",
                seen_by="process",
            )


def _extended(storage: Storage, whole: Index, old: StoredSelection) -> Subset:
    """Return the samples of a selection, and those that its condition chooses among the later ones."""
    excerpt, counts = DatasetSlice.whole(Shards.of(storage, storage, whole)), whole.counts
    added = select_between(excerpt.subset, counts, old.head.samples, whole.samples)
    new = chosen_by_bits(bits_of(choose_where(replace(excerpt, subset=added), old.head.where), counts), whole.samples)
    before = chosen_by_bits(old.bits, old.head.samples)
    return select_chosen(excerpt.subset, counts, lambda start, stop: np.append(before(start, stop), new(start, stop)))
