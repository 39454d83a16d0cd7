"""Measure batches of one shape: how many samples are in short batches, how far a batch reaches, and what planning costs."""

from typing import Any

RUN = "tools.buckets:run"


def arguments(add: Any) -> None:
    add("--docs", action="store_true", help="write the tables of docs/batches.md")
