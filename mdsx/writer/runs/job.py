"""What all tasks of a distributed write share, and one attempt at a task.

An engine may try a task several times, even at the same time. Each attempt writes a dataset of its own, in a folder
that no other attempt has. Its result, which only the engine carries to the driver, makes it count.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import xxhash

from mdsx.arrow import slices
from mdsx.errors import MdsxError, SampleError, restated
from mdsx.format import filenames
from mdsx.sizes import format_count
from mdsx.storage import StorageOptions, believe, open_storage, sealed

RUN = "run"
"""The key, in the metadata of an attempt's index, of the run that it is of."""
RENEWED = 300.0
"""Seconds between two puts of a run's record, and of the mark of an attempt at work."""
SLICE = 2**24
"""Bytes that are encoded at once, about: so large batches of an engine are not in memory once more as a whole."""


class Done(NamedTuple):
    """The result of an attempt at part `part`: its folder, "" if the part has no samples; how many samples it has; and
    the XXH3-128 of its index, in hexadecimal. Engines carry it as a row of these four values."""

    part: int
    folder: str
    samples: int
    hash: str


@dataclass(frozen=True, slots=True)
class Job:
    """A distributed write. It is pickled: tasks receive it.

    `run`: 16 hexadecimal digits that no other run has; `known`: see `mdsx.storage`.
    """

    url: str
    columns: Mapping[str, str]
    shard_size: int
    compression: str | None
    run: str
    storage_options: StorageOptions | None = None
    known: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "storage_options", sealed(self.storage_options))

    def write(self, part: int, batches: Iterable[Any], seen: Callable[[int], object] = lambda samples: None) -> Done:
        """Write the samples of a part, in a folder of this attempt's own, and return its result.

        `batches`: what `Writer.write_batch` takes. `seen` is called with the number of samples so far.

        Raises:
            SampleError: A value does not fit its column. The attempt's folder stays unfinished.
        """
        from mdsx.writer.writer import Writer  # which makes such a run itself, to overwrite

        believe(self.known)
        batches = iter(batches)
        first = next((batch for batch in batches if len(batch)), None)
        if first is None:
            return Done(part, "", 0, "")
        folder = filenames.attempt(part, secrets.token_hex(8))
        storage = open_storage(f"{self.url.rstrip('/')}/{folder}", self.storage_options, write=True)
        mark, marked = filenames.run_mark(self.run), time.monotonic()
        storage.put(mark, b"")
        with Writer(
            storage.url,
            self.columns,
            shard_size=self.shard_size,
            compression=self.compression,
            metadata={RUN: self.run},
            storage_options=self.storage_options,
        ) as writer:
            for batch in chain([first], batches):
                for some in slices(batch, SLICE):
                    try:
                        writer.write_batch(some)
                    except SampleError as error:
                        place = f"partition {part}, after its first {format_count(writer.samples, 'sample')}"
                        raise restated(error, place=f"{place}: {error.place}") from None
                seen(writer.samples)
                if time.monotonic() - marked > RENEWED:
                    marked = time.monotonic()
                    with suppress(MdsxError):  # the next one may succeed
                        storage.put(mark, b"")
        data = storage.get(filenames.INDEX).data
        return Done(part, folder, writer.samples, xxhash.xxh3_128_hexdigest(data))
