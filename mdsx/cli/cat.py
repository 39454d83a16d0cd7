"""`mdsx cat`: samples, to look at."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from mdsx.cli.output import Json, print_json, print_table

EXAMPLE = "mdsx cat s3://bucket/corpus --start 1000 --count 3"
_RUN = 64  # samples read at once
_WIDTH = 100  # characters shown of a value


def cat(
    url: Annotated[str, typer.Argument(metavar="URL", help="A finished dataset: a path, file:// or s3://.")],
    start: Annotated[int, typer.Option(min=0, help="The first sample to show.")] = 0,
    count: Annotated[int, typer.Option(min=0, help="How many.")] = 10,
    as_json: Json = False,
) -> None:
    """Print samples in the order in which they were written, long values cut.

    With --json: one object per line and sample, values whole; bytes (images too) as base64, arrays as nested lists,
    numbers that JSON has not as "NaN", "Infinity", "-Infinity".
    """
    from mdsx import Dataset

    dataset = Dataset(url)
    stop = min(start + count, len(dataset))
    for first in range(start, stop, _RUN):
        for number, sample in enumerate(dataset[first : min(first + _RUN, stop)], first):
            if as_json:
                print_json({name: as_plain(value) for name, value in sample.items()})
            else:
                print(f"sample {number}")
                print_table(((name, as_line(value)) for name, value in sample.items()), indent="  ")


def as_plain(value: Any) -> Any:
    """A value as JSON has it."""
    import numpy as np

    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, list):
        return [as_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else str(as_plain(key)): as_plain(item) for key, item in value.items()}
    return value if value is None or isinstance(value, str | int | float) else str(value)


def as_line(value: Any) -> str:
    """A value on one line, cut where it is long."""
    import numpy as np

    if isinstance(value, bytes):
        return f"{len(value):,} bytes"
    if isinstance(value, np.ndarray) and value.ndim:
        shape = ",".join(map(str, value.shape))
        items = " ".join(map(str, value.flat[:16]))
        line = f"{value.dtype}[{shape}] {items}{' ...' if value.size > 16 else ''}"
    else:
        line = str(value.item()) if isinstance(value, np.generic | np.ndarray) else repr(value)
    return line if len(line) <= _WIDTH else line[: _WIDTH - 3] + "..."
