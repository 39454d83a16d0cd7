"""What a batch costs, counted in calls of functions: no time is measured, so a machine's noise hides nothing.

A feature that adds work to every batch of every run, such as a look at each value, fails here. If it must, raise the
number, and measure `python3 -m tools bench 'loader-*'` before and after.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset

SAMPLES = 6400
VALUES: dict[str, Any] = {
    "text": ["some text"] * SAMPLES,
    "tokens": np.zeros((SAMPLES, 64), np.uint16),
    "image": [b"\xff\xd8\xff and so on"] * SAMPLES,
}
TYPES = {"text": "str", "tokens": "uint16[64]", "image": "jpeg"}


@contextmanager
def counted() -> Iterator[list[int]]:
    """Count the calls of Python's functions and of C's, in this thread and in those that start meanwhile."""
    found = [0]

    def count(frame: FrameType, event: str, argument: object) -> None:
        found[0] += event in ("call", "c_call")

    threading.setprofile(count)
    sys.setprofile(count)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


@pytest.mark.parametrize("column", TYPES)
def test_a_batch_takes_few_calls(column: str, tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path, {column: TYPES[column]}) as out:
        out.write_batch({column: VALUES[column]})
    lanes = mdsx.Shuffle(lanes=8)  # each computes its order once for 65,536 samples, and here for each epoch
    loader = StreamingDataLoader(StreamingDataset(str(tmp_path), seed=7, shuffle=lanes), batch_size=32)
    assert sum(1 for _ in loader) == SAMPLES // 32  # the first epoch opens what later ones use
    found = []
    for _ in range(3):  # threads that wait for a processor take a few more calls
        with counted() as calls:
            for _ in loader:
                pass
        found.append(calls[0])
    assert min(found) / (SAMPLES // 32) < 116  # 110 to 113


@pytest.mark.parametrize(("column", "most"), [("text", 14.5), ("tokens", 11.5), ("image", 13.5)])
def test_a_sample_takes_few_calls(column: str, most: int, tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path, {column: TYPES[column]}) as out:
        out.write_batch({column: VALUES[column]})
    data = mdsx.Dataset(str(tmp_path))
    assert data[0].keys() == {column}
    with counted() as calls:
        for number in range(1000):
            data[number]
    assert calls[0] / 1000 <= most
