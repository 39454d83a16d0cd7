"""Write, list and open the named selections next to an index."""

from __future__ import annotations

import shlex
from contextlib import suppress

from mdsx.errors import ForbiddenError, FormatError, MissingError, UsageError, shown
from mdsx.format import MAX_SELECTION_HEAD, SelectionHead, StoredIndex, StoredSelection, filenames
from mdsx.order import AllSamples, Subset, bits_of, chosen_by_bits, select_chosen
from mdsx.shards.objects import retried
from mdsx.shards.shards import Shards
from mdsx.shards.shared_files import get_shared
from mdsx.storage import Storage, discard, file_of
from mdsx.storage.cache import CacheDirectory


def open_selection(shards: Shards, name: str) -> Subset:
    """Return the samples of the selection `name` of a dataset.

    Raise UsageError if the name is invalid, MissingError if the dataset in this state has no such selection, or
    CorruptError.
    """
    index = shards.index
    found = read_selection(shards.beside, index, name, cache=shards.cache)
    return select_chosen(AllSamples(index.counts), index.counts, chosen_by_bits(found.bits, index.samples))


def read_selection(
    storage: Storage, index: StoredIndex, name: str, *, cache: CacheDirectory | None = None
) -> StoredSelection:
    """Return the selection `name` in `storage` of the dataset with this index. A large one goes through `cache`, so
    that each node fetches it once."""
    key = selection_key(name, index.fingerprint)
    file = file_of(storage, key)

    def read() -> StoredSelection:
        found = StoredSelection.parse(get_shared(storage, key, cache), file=file)
        found.check(name, index.fingerprint, index.samples, file=file)
        return found

    try:
        return retried(read, FormatError)
    except MissingError:
        raise _missing(storage, index, name) from None


def put_selection(storage: Storage, index: StoredIndex, name: str, where: str, chosen: Subset) -> SelectionHead:
    """Write the samples `chosen` by the condition `where` as the selection `name` of the dataset with this index."""
    samples, selected = index.samples, int(chosen.counts.sum())
    head = SelectionHead(name, index.fingerprint, where, samples, selected)
    key = selection_key(name, index.fingerprint)
    discard(storage, key)
    storage.put(key, StoredSelection(head, bits_of(chosen, index.counts)).text())
    return head


def selection_heads(storage: Storage, fingerprint: str) -> list[SelectionHead]:
    """Return the heads of the selections of the dataset with this fingerprint, by name; none if the storage cannot
    list.

    Bitmaps are not read. Raise CorruptError for a damaged head.
    """
    found = list[SelectionHead]()
    for name, own in selections_at(storage):
        if own == fingerprint:
            key = filenames.selection(name, own)
            data = storage.get(key, stop=MAX_SELECTION_HEAD).data
            found.append(SelectionHead.parse(data, file=file_of(storage, key)))
    return found


def selections_at(storage: Storage) -> list[tuple[str, str]]:
    """Return the names of all selections next to an index, and the fingerprints of their datasets; none if the storage
    cannot list."""
    with suppress(ForbiddenError, UsageError):
        keys = [entry.key for entry in storage.list(filenames.SELECTIONS_FOLDER)]
        return sorted(found for key in keys if (found := filenames.selection_of(key)) is not None)
    return []


def selection_key(name: str, fingerprint: str) -> str:
    """Return the key of a selection. Raise UsageError for an invalid name."""
    try:
        return filenames.selection(name, fingerprint)
    except ValueError:
        expected = 'up to 100 letters, digits, ".", "_" and "-", the first one a letter or a digit'
        raise UsageError("not a valid name of a selection", found=shown(name), expected=expected) from None


def _missing(storage: Storage, index: StoredIndex, name: str) -> MissingError:
    there = selections_at(storage)
    names = [each for each, fingerprint in there if fingerprint == index.fingerprint]
    command = shlex.join(["mdsx", "select", storage.url, "--where", "CONDITION", "--name", name])
    hint = f"write it: {command}"
    if name not in names and (states := [own for each, own in there if each == name]):
        hint = f"it belongs to another state of the dataset ({', '.join(states[:4])}); write it for this one: {command}"
    return MissingError(
        "the dataset has no such selection",
        file=storage.url,
        found=name,
        expected=f"one of {', '.join(names)}" if names else None,
        hint=hint,
    )
