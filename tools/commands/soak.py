"""Run mdsx under load and faults, kill and resume readers and writers, and check every delivered sample."""

import random
from typing import Any

RUN = "tools.soak.run:run"
FAILS = "anything was wrong, lost, repeated, leaked or hung"


def arguments(add: Any) -> None:
    add("--minutes", type=float, default=10.0, help="how long (default 10)")
    add("--seed", type=int, default=random.randrange(10**6), help="of everything that is planned (default: drawn)")
    add("--json", metavar="FILE", help="write all figures there")
    add("--docs", action="store_true", help="write the figures into docs/reliability.md")
