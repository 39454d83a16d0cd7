"""Measure mdsx, its peers and the limits of the machine side by side."""

from typing import Any

from tools.commands import some_of
from tools.peers import NAMES

RUN = "tools.bench.run:run"
FAILS = "mdsx failed in some subject; missed goals are no failure"


def arguments(add: Any) -> None:
    add("subjects", nargs="*", metavar="SUBJECT", help="names or patterns (loader-*); default: all")
    add("--list", action="store_true", help="list the names of the subjects")
    add("--rounds", type=int, default=5, help="turns of each contestant (default 5)")
    add("--scale", type=float, default=1.0, help="use another share of the samples (default 1)")
    add("--loaders", default=[], **some_of("loader", [*NAMES, "limit", "spark"]))
    add("--scratch", metavar="DIR", help="keep and reuse the datasets that are written there")
    add("--json", metavar="FILE", help="write every figure of every round")
    add("--docs", action="store_true", help="write tables and goals into docs/benchmarks.md, and README.md's table")
