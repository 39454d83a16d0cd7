"""A condition on numbers and lengths, over the rows of a dataset."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

import mdsx
from tools.bench.measure import Figures, timed
from tools.bench.subject import Subject
from tools.bench.subjects import alone, call

_ROWS = 10**8
_AT_ONCE = 10**6
_LEAST = 2  # bytes of the texts that are wanted
_CONDITION = f"label = 3 and length(text) > {_LEAST}"


def subjects(scale: float) -> list[Subject]:
    written = call(write, samples=int(_ROWS * scale))
    return [
        Subject(
            name="filter",
            title=f"filter of {int(_ROWS * scale):,} rows: {_CONDITION}",
            figure="s",
            more=("rows/s",),
            contestants=[
                alone("mdsx", "mdsx, condition", by_condition, written),
                alone("mdsx", "mdsx, function", by_function, written),
                alone("limit", "NumPy, rows mapped", mapped, written),
            ],
            limit=120.0,
            note="The rows are in the page cache. The function gets the labels alone, of all samples.",
        )
    ]


def write(data: str, samples: int) -> Figures:
    texts = pa.array(["", "a", "bc", "def", "ghij"]).take(pa.array(np.arange(_AT_ONCE) % 5))
    with mdsx.Writer(data, {"label": "int32", "text": "str"}) as out:
        for start in range(0, samples, _AT_ONCE):
            labels = np.arange(start, min(start + _AT_ONCE, samples), dtype=np.int32) // 7 % 10
            out.write_batch({"label": labels, "text": texts[: len(labels)]})
    return {}


def by_condition(data: str) -> Figures:
    return _rate(mdsx.Dataset(data), lambda dataset: len(dataset.filter(_CONDITION)))


def by_function(data: str) -> Figures:
    return _rate(
        mdsx.Dataset(data),
        lambda dataset: len(dataset.filter(lambda label: label == 3, ["label"], batched=True)),
    )


def mapped(data: str) -> Figures:
    """What NumPy alone takes for the same comparisons on the rows of each shard, as format-spec.md describes them."""
    index = json.loads((Path(data) / "index.json").read_text())
    row = np.dtype(
        {"names": ["length", "label"], "formats": ["<u4", "<i4"], "offsets": [16, 20], "itemsize": index["row_size"]}
    )

    def found(_: mdsx.Dataset) -> int:
        count = 0
        for path, samples in zip(sorted(Path(data).glob("shard.*")), index["shards"]["samples"], strict=True):
            rows = np.memmap(path, row, "r", index["rows_offset"], (samples,))
            count += int(np.count_nonzero((rows["label"] == 3) & (rows["length"] > _LEAST)))
        return count

    return _rate(mdsx.Dataset(data), found)


def _rate(dataset: mdsx.Dataset, find: Callable[[mdsx.Dataset], int]) -> Figures:
    found, took = timed(lambda: find(dataset))
    if not 0 < found < len(dataset):
        raise ValueError(f"{found} of {len(dataset)} samples")
    return {"s": took, "rows/s": len(dataset) / took}
