"""The attempts that are stored at a place: their files, their runs, and how they are removed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from mdsx.errors import MdsxError
from mdsx.format import Index, filenames, parse_index
from mdsx.storage import Entry, Storage, remove
from mdsx.writer.runs.job import RUN

THREADS = 16

Attempts = dict[str, list[Entry]]
"""Folder -> its files."""


def attempts_at(storage: Storage) -> Attempts:
    """Return all attempts, of any run, whether they count or not."""
    found: Attempts = {}
    for entry in storage.list(filenames.PARTS):
        if folder := filenames.attempt_folder(entry.key):
            found.setdefault(folder, []).append(entry)
    return found


def runs_of(storage: Storage, attempts: Attempts) -> Iterator[str | None]:
    """Yield the run of each attempt."""
    with ThreadPoolExecutor(THREADS) as pool:
        yield from pool.map(lambda folder: run_of(storage, folder, attempts[folder]), attempts)


def run_of(storage: Storage, folder: str, entries: Iterable[Entry]) -> str | None:
    """Return the run that an attempt with these files is of; None if that cannot be known."""
    keys = [entry.key for entry in entries]
    if marked := next(filter(None, map(filenames.marked_run, keys)), None):
        return marked
    if not is_finished(folder, entries):
        return None
    key = filenames.within(folder, filenames.INDEX)
    try:
        run = parse_index(storage.get(key).data, file=f"{storage.url}/{key}").metadata.get(RUN)
    except MdsxError:
        return None
    return run if isinstance(run, str) else None


def is_finished(folder: str, entries: Iterable[Entry]) -> bool:
    return any(entry.key == filenames.within(folder, filenames.INDEX) for entry in entries)


def folders_of(index: Index) -> set[str]:
    """Return the folders of parts that an index names."""
    return {folder for prefix, *_ in index.files if (folder := filenames.part_folder(prefix))}


def remove_files(storage: Storage, keys: Sequence[str], seen: Callable[[str], object] = lambda key: None) -> None:
    """Remove objects, the indexes of attempts first: what has no index is unfinished. `seen` is called with each."""

    ours = [key for key in keys if filenames.is_of_dataset(key)]  # what others put there stays
    remove(storage, *(key for key in ours if key.endswith(f"/{filenames.INDEX}")), seen=seen)
    remove(storage, *(key for key in ours if not key.endswith(f"/{filenames.INDEX}")), seen=seen)
