"""Run data loaders under faults of storage, disk and processes, and report what each does."""

from typing import Any

from tools.commands import some_of
from tools.faults.cases import CASES
from tools.peers import NAMES

RUN = "tools.faults.run:run"
FAILS = "mdsx broke a promise in one"


def arguments(add: Any) -> None:
    add("--loaders", **some_of("loader", NAMES))
    add("--cases", **some_of("case", [case.name for case in CASES]))
    add("--docs", action="store_true", help="write the table into docs/reliability.md")
