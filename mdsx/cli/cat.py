"""`mdsx cat`: print samples."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from mdsx.cli.output import ConnectTimeout, Json, print_json, print_table
from mdsx.errors import UsageError, shown

EXAMPLE = "mdsx cat s3://bucket/corpus --start 1000 --count 3"
_RUN = 64  # samples read at once
_WIDTH = 100  # characters shown of a value


def cat(
    url: Annotated[str, typer.Argument(metavar="URL", help="A finished dataset: a path, file:// or s3://.")],
    start: Annotated[int, typer.Option(min=0, help="The first sample to show.")] = 0,
    count: Annotated[int, typer.Option(min=0, help="How many samples to show.")] = 10,
    connect_timeout: ConnectTimeout = None,
    as_json: Json = False,
) -> None:
    """Print samples in the order in which they were written; long values are shortened.

    With --json: one object per line and sample, with complete values; bytes (and images) as base64, arrays as nested
    lists, numbers that JSON lacks as "NaN", "Infinity", "-Infinity".
    """
    from mdsx import Dataset

    dataset = Dataset(url, connect_timeout=connect_timeout)
    if start >= len(dataset) and start > 0:
        samples = f"{len(dataset):,} samples"
        raise UsageError(f"there is no sample {start:,}: the dataset has {samples}, numbered from 0", file=dataset.url)
    stop = min(start + count, len(dataset))
    for first in range(start, stop, _RUN):
        for number, sample in enumerate(dataset[first : min(first + _RUN, stop)], first):
            if as_json:
                print_json(sample)
            else:
                print(f"sample {number}")
                print_table(((name, as_line(value)) for name, value in sample.items()), indent="  ")


def as_line(value: Any) -> str:
    """Return a value on one line, shortened if it is long."""
    import numpy as np

    if isinstance(value, bytes):
        return f"{len(value):,} bytes"
    if isinstance(value, list) and any(isinstance(item, bytes) for item in value):
        line = f"[{', '.join(map(as_line, value[:16]))}{', ...' if len(value) > 16 else ''}]"
    elif isinstance(value, np.ndarray) and value.ndim:
        shape = ",".join(map(str, value.shape))
        items = " ".join(map(str, value.flat[:16]))
        line = f"{value.dtype}[{shape}] {items}{' ...' if value.size > 16 else ''}"
    else:
        line = str(value.item()) if isinstance(value, np.generic | np.ndarray) else shown(value, limit=10 * _WIDTH)
    return line if len(line) <= _WIDTH else line[: _WIDTH - 3] + "..."
