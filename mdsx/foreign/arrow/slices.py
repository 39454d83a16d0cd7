"""Cut batches of Arrow data into smaller ones, to bound the memory for what is made from each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mdsx.foreign.arrow.library import pa


def slices(batch: Any, most: int) -> Iterator[Any]:
    """Yield the samples of a batch, in order, in batches of about `most` bytes, or of one sample.

    Tables, record batches, and mappings of names to chunked arrays of one length are cut without a copy. Anything else
    is yielded as it is.
    """
    if isinstance(batch, pa.Table | pa.RecordBatch):
        samples, size = batch.num_rows, batch.nbytes
    elif isinstance(batch, Mapping) and batch and all(isinstance(values, pa.ChunkedArray) for values in batch.values()):
        (samples, *others) = {len(values) for values in batch.values()}
        size = 0 if others else sum(values.nbytes for values in batch.values())
    else:
        samples = size = 0
    if size <= most:
        yield batch
        return
    step = max(samples * most // size, 1)
    for start in range(0, samples, step):
        if isinstance(batch, Mapping):
            yield {name: values.slice(start, step) for name, values in batch.items()}
        else:
            yield batch.slice(start, step)
