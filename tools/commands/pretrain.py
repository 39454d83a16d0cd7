"""Measure the rows of pretraining: how full they are, what planning costs, how evenly ranks work."""

from typing import Any

RUN = "tools.pretrain:run"


def arguments(add: Any) -> None:
    add("--docs", action="store_true", help="write the tables of docs/batches.md")
