"""All checks of a URL and of this machine, one after the other. If one fails, the next still runs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

from mdsx.base.sizes import parse_size
from mdsx.checks.doctor.dataset import Job, check_dataset, recommend
from mdsx.checks.doctor.finding import Finding, refusal, warning
from mdsx.checks.doctor.machine import check_machine, room_of
from mdsx.checks.doctor.storage import Reached, check_storage, check_throughput
from mdsx.errors import MdsxError, MissingError
from mdsx.format import StoredIndex, filenames, object_sizes
from mdsx.shards import read_index
from mdsx.storage import Storage, StorageOptions, open_storage
from mdsx.storage.cache import Cache

_SHARDS = 64  # downloaded at most, to measure throughput


def examine(
    url: str,
    *,
    job: Job,
    cache: Cache,
    storage_options: StorageOptions | None = None,
    write: bool = False,
) -> Iterator[Finding]:
    """Yield each finding as soon as it is known.

    Raises:
        UsageError: The URL or an argument is invalid.
    """
    storage, reached = open_storage(url, storage_options), Reached()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the findings say the same
        directory = cache.open().directory
    limit = None if cache.limit is None else parse_size(cache.limit)
    yield from check_storage(storage, reached, write=write)
    index = None
    if reached.readable:
        found = _index(storage, write)
        if isinstance(found, Finding):
            yield found
        else:
            index = found
    needed, in_use, cached = None, 0, True
    if index is not None:
        yield from check_dataset(storage, index, reached.latency)
        if index.samples:
            numbers = range(min(_SHARDS, len(index.counts)))
            objects = object_sizes(index, numbers)
            yield check_throughput(storage, list(objects.items()), job.need(index))
            cached = storage.path(filenames.INDEX) is None or index.compression is not None
            room = min(room_of(directory), limit or 2**62) if cached else None
            advised, chosen = recommend(index, storage.url, job, room, str(directory))
            yield advised
            needed, in_use = (chosen.needed if cached else 0), chosen.in_use
    used = directory if cached or cache.directory is not None else None
    yield from check_machine(used, limit=limit, needed=needed, in_use=in_use)


def _index(storage: Storage, write: bool) -> StoredIndex | Finding:
    try:
        return read_index(storage)
    except MissingError as error:
        if write:
            return warning("index", "there is no finished dataset here yet", "write one, or check the URL")
        return refusal("index", error, advice="check the URL; if its writer has not finished, resume it")
    except MdsxError as error:
        return refusal("index", error, advice="see `mdsx verify URL`")
