"""Parquet as Hugging Face datasets stream it, written by pyarrow with its defaults, in batches, as it is meant to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from pyarrow import parquet

from tools.bench import workloads
from tools.bench.measure import Figures, stopwatch

_AT_ONCE = 1000
_FILE = 2**26


def write_batches(scratch: str, workload: str, samples: int) -> Figures:
    """Files of about 64 MiB, each a row group a thousand samples."""
    batch = workloads.columns(workload, 0, samples)
    figures: Figures = {}
    size = workloads.size_of(batch)
    each_file = max(_FILE * samples // size, 1)
    _file(Path(scratch, "warm.parquet"), batch, 0, min(workloads.FEW, samples))
    with stopwatch(figures, samples, size):
        for first in range(0, samples, each_file):
            _file(Path(scratch, f"{first:09}.parquet"), batch, first, min(first + each_file, samples))
    return figures


def _file(path: Path, batch: dict[str, Any], first: int, stop: int) -> None:
    out = None
    for start in range(first, stop, _AT_ONCE):
        part = {name: _column(values[start : min(start + _AT_ONCE, stop)]) for name, values in batch.items()}
        table = pyarrow.table(part)
        out = out or parquet.ParquetWriter(path, table.schema)
        out.write_table(table)
    if out is not None:
        out.close()


def _column(values: Any) -> Any:
    if isinstance(values, np.ndarray) and values.ndim == 2:
        return pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(values.reshape(-1)), values.shape[1])
    return values
