"""Measure how well mdsx and other shuffles mix, with as many samples held at a time."""

from typing import Any

RUN = "tools.shuffling:run"


def arguments(add: Any) -> None:
    add("--docs", action="store_true", help="write the tables of docs/shuffling.md")
