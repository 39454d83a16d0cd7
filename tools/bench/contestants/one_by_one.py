"""Writing as those do it who have no other way: sample by sample."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tools.bench import workloads
from tools.bench.measure import Figures, stopwatch

Write = Callable[[str, str, list[dict[str, Any]]], None]
"""Writes samples of a workload to a directory."""


def prepare(write: Write, data: str, workload: str, samples: int) -> Figures:
    """Write the dataset that is read."""
    write(data, workload, workloads.rows(workloads.columns(workload, 0, samples)))
    return {}


def rate(write: Write, scratch: str, workload: str, samples: int) -> Figures:
    """Samples a second, once what is imported and made once is there."""
    batch = workloads.columns(workload, 0, samples)
    figures: Figures = {}
    each_sample = workloads.rows(batch)
    write(workloads.made(scratch, "warm"), workload, each_sample[: workloads.FEW])
    with stopwatch(figures, samples, workloads.size_of(batch)):
        write(workloads.made(scratch, "out"), workload, each_sample)
    return figures
