"""Measure batches of one shape: short batches, how far a batch reaches, which shards ranks read, and what planning
costs."""

from typing import Any

RUN = "tools.buckets:run"


def arguments(add: Any) -> None:
    add("--docs", action="store_true", help="write the tables of docs/batches.md")
