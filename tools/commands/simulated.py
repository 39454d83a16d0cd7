"""Run trainings over a limited link, simulate the same, and print both: bytes, requests and waits."""

from typing import Any

RUN = "tools.simulated.run:run"
FAILS = "bytes or requests differ in some setting"


def arguments(add: Any) -> None:
    add("--docs", action="store_true", help="write the tables into docs/scale.md")
