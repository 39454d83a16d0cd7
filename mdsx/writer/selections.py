"""Write named selections of a finished dataset, and extend them in an append."""

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
from mdsx.writer.opening import open_dataset


@dataclass(frozen=True, slots=True)
class WrittenSelection:
    """The result of `write_selection`.

    Attributes:
        file: The file of the selection.
        name: The name of the selection.
        where: The condition.
        samples: The number of samples in the dataset.
        selected: The number of samples that satisfy the condition.
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
    """Evaluate a condition for all samples of a finished dataset, and store the selection under a name. The processes
    of a job then open it without reading the shards.

        mdsx.write_selection("s3://bucket/corpus", "hard", where="label = 3 and length(tokens) > 64")
        mdsx.Dataset("s3://bucket/corpus", selection="hard")

    The file `_selections/<name>-<fingerprint>.json` is written next to the index, and replaces an earlier one. No other
    file changes. The selection belongs to the present state of the dataset; `mdsx.append` writes another one for the
    extended dataset.

    Args:
        url: A dataset of any format.
        name: Up to 100 letters, digits, ".", "_" and "-".
        where: A condition, as in `mdsx.Dataset.filter`, on lengths and on columns of numbers and bools of fixed size.
        index: The folder of the dataset's index, if it is not `url`. The file is written there.
        storage_options: Options for the storage of `url`, as in `mdsx.Dataset`.
        watch: Called with an `mdsx.Progress` while shards are read. Its sizes are bytes of shards.

    Raises:
        UsageError: The condition or the name is invalid, or the storage cannot be written.
        MissingError: The dataset does not exist or is unfinished.
        CorruptError: A shard is damaged.
    """
    storage, target, found, reached = open_dataset(url, index, storage_options, watch)
    key = selection_key(name, found.fingerprint)
    if not isinstance(where, str):
        raise UsageError("where= must be a condition as text", found=shown(where), expected='such as "label = 3"')

    edges = np.cumsum(found.counts)

    def show(samples: int) -> None:
        reached(int(np.searchsorted(edges, samples, side="right")), samples)

    chosen = choose_where(DatasetSlice.whole(Shards.of(storage, target, found)), where, show)
    head = put_selection(target, found, name, where, chosen)
    return WrittenSelection(file_of(target, key), name, where, head.samples, head.selected)


def extend_selections(storage: Storage, before: Index, whole: Index) -> None:
    """Extend each selection of a dataset after an append. `whole`: the new index, which begins with all shards of the
    old one, `before`.

    The condition is evaluated for the new samples only. A selection that is damaged, or whose condition cannot be
    evaluated, is skipped with a warning.
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
                f"selection {name!r} is not extended: {error}; rewrite it, or open it with the snapshot "
                f"{before.fingerprint}: {command}",
                seen_by="process",
            )


def _extended(storage: Storage, whole: Index, old: StoredSelection) -> Subset:
    """Return the samples of a selection, with the new samples that satisfy its condition."""
    excerpt, counts = DatasetSlice.whole(Shards.of(storage, storage, whole)), whole.counts
    added = select_between(excerpt.subset, counts, old.head.samples, whole.samples)
    new = chosen_by_bits(bits_of(choose_where(replace(excerpt, subset=added), old.head.where), counts), whole.samples)
    before = chosen_by_bits(old.bits, old.head.samples)
    return select_chosen(excerpt.subset, counts, lambda start, stop: np.append(before(start, stop), new(start, stop)))
