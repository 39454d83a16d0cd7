"""What the command takes: its subjects, the run that it computes, and prices. Needs only the standard library."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

QUICK = 0.01
SUBJECTS = {
    "plan": "The run, computed",
    "index": "An index of as many shards as there may be",
    "start": "The first batch over a link",
    "merge": "The merge of 100,000 parts",
    "listings": "A bucket of a million objects",
    "clients": "512 clients that open a dataset at once",
    "cold": "Two jobs that start cold on one node",
    "limits": "Clients above a bucket's request limit",
}
"""The subjects, which are modules of this package. Each has `sections`, which yields the names and texts of tables."""


@dataclass(frozen=True, slots=True)
class Job:
    """A run: `batch` samples for each rank in a step of `step` seconds."""

    samples: int = 10**10
    sample_bytes: int = 100_000
    nodes: int = 64
    ranks: int = 8  # of a node
    batch: int = 16
    step: float = 0.5

    @property
    def world(self) -> int:
        return self.nodes * self.ranks

    @property
    def bytes(self) -> int:
        return self.samples * self.sample_bytes

    @property
    def seconds(self) -> float:
        """Seconds of an epoch."""
        return self.samples / (self.batch * self.world) * self.step


@dataclass(frozen=True, slots=True)
class Prices:
    """US dollars: for a thousand requests, and for a GB (10^9 bytes)."""

    get: float = 0.0004
    put: float = 0.005
    storage: float = 0.021  # a month
    egress: float = 0.02  # to another region of the same cloud


def add_arguments(add: Any) -> None:
    """Add the arguments of the command."""
    job, prices = Job(), Prices()
    add("subjects", nargs="*", metavar="SUBJECT", type=_subject, help=f"of {', '.join(SUBJECTS)}; default: all")
    add("--quick", action="store_true", help="a hundredth of the counts")
    add("--docs", action="store_true", help="write the tables into docs/scale.md")
    for name, kind, text in (
        ("samples", int, "samples of the dataset"),
        ("sample_bytes", int, "bytes of a sample"),
        ("nodes", int, "nodes of the run"),
        ("ranks", int, "ranks of a node"),
        ("batch", int, "samples of a rank's batch"),
        ("step", float, "seconds of a step"),
    ):
        add(f"--{name.replace('_', '-')}", type=kind, default=getattr(job, name), help=f"{text} (default %(default)s)")
    for name, text in (
        ("get", "a thousand GET requests"),
        ("put", "a thousand PUT requests"),
        ("storage", "a GB stored for a month"),
        ("egress", "a GB read from another region"),
    ):
        add(f"--price-{name}", type=float, default=getattr(prices, name), help=f"$ for {text} (default %(default)s)")


def _subject(text: str) -> str:
    if text not in SUBJECTS:
        raise argparse.ArgumentTypeError(f"unknown subject {text!r}; known are {', '.join(SUBJECTS)}")
    return text
