"""Run, kill and resume data loaders, and count the samples that they lost and repeated."""

from typing import Any

from tools.commands import some_of
from tools.conformance.matrix import SEED, cells
from tools.peers import NAMES

RUN = "tools.conformance.command:run"
FAILS = "mdsx is not exact in some cell"


def arguments(add: Any) -> None:
    add("--loaders", **some_of("loader", NAMES))
    add("--cells", **some_of("cell", [cell.name for cell in cells()]))
    add("--quick", action="store_true", help="a few cells, and mdsx alone unless others are named")
    add("--seed", type=int, default=SEED, help=f"draws the steps of the kills (default {SEED})")
    add("--scratch", metavar="DIR", help="run in this empty directory; keep datasets, logs and checkpoints")
    add("--json", metavar="FILE", help="write all results there, each with the command that repeats it")
    add("--docs", action="store_true", help="write the tables into docs/conformance.md and README.md")
