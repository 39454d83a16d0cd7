"""Write a part of a distributed dataset, as one attempt of an engine's task."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import chain
from typing import Any

import xxhash

from mdsx.base.sizes import format_count
from mdsx.errors import MdsxError, SampleError, restated
from mdsx.foreign.arrow import slices
from mdsx.format import filenames
from mdsx.storage import believe, open_storage
from mdsx.writer.runs import RENEWED, Done, WriteJob
from mdsx.writer.writer import Writer

SLICE = 2**24
"""Bytes to encode at once, about. So an engine's large batch does not need its size in memory twice."""


def write_part(
    job: WriteJob, part: int, batches: Iterable[Any], seen: Callable[[int], object] = lambda samples: None
) -> Done:
    """Write a part of a run to a folder of this attempt's own, and return the result.

    `batches`: arguments for `Writer.write_batch`. `seen` is called with the number of samples so far.

    Raises:
        SampleError: A value does not fit its column. The attempt's folder stays unfinished.
    """
    believe(job.known)
    batches = iter(batches)
    first = next((batch for batch in batches if len(batch)), None)
    if first is None:
        return Done(part, "", 0, "")
    folder = filenames.run_part(job.run, part, secrets.token_hex(8))
    storage = open_storage(f"{job.url.rstrip('/')}/{folder}", job.storage_options, write=True)
    storage.put(filenames.ALIVE, b"")
    signed = time.monotonic()
    with Writer(
        storage.url,
        job.columns,
        shard_size=job.shard_size,
        compression=job.compression,
        lengths=job.lengths,
        storage_options=job.storage_options,
    ) as writer:
        for batch in chain([first], batches):
            for some in slices(batch, SLICE):
                try:
                    writer.write_batch(some)
                except SampleError as error:
                    place = f"partition {part}, after its first {format_count(writer.samples, 'sample')}"
                    raise restated(error, place=f"{place}: {error.place}") from None
            seen(writer.samples)
            if time.monotonic() - signed > RENEWED:
                signed = time.monotonic()
                with suppress(MdsxError):  # the next sign may succeed
                    storage.put(filenames.ALIVE, b"")
    data = storage.get(filenames.INDEX).data
    return Done(part, folder, writer.samples, xxhash.xxh3_128_hexdigest(data))
