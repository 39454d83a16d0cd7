"""What the soak found: lines, JSON, a table for the documentation, and the verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from mdsx.base.sizes import format_size
from tools.account import Count
from tools.pages import table
from tools.soak.plan import JOBS


@dataclass
class Report:
    """The results of a run. `failures`: everything wrong besides the counts."""

    seed: int
    minutes: float
    version: str
    machine: str
    counts: dict[str, Count] = field(default_factory=dict)
    events: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    broken: int = 0
    processes: int = 0
    written: int = 0
    writer_kills: int = 0
    cache_limit: int = 0
    cache_highest: int = 0
    cache_looks: int = 0
    dataset_bytes: int = 0
    highest: dict[str, int] = field(default_factory=dict)
    growth: dict[str, dict[str, float]] = field(default_factory=dict)  # measure -> process -> by how much
    failures: list[str] = field(default_factory=list)

    def total(self, what: str) -> int:
        return sum(getattr(count, what) for count in self.counts.values())

    def problems(self) -> list[str]:
        found = [
            f"{name}: {count.wrong} wrong, {count.lost} lost, {count.repeated} repeated, {count.strayed} batches of "
            f"other samples ({count.first})"
            for name, count in self.counts.items()
            if not count.exact
        ]
        if self.cache_highest > self.cache_limit:
            found.append(f"the cache held {self.cache_highest:,} bytes, its limit is {self.cache_limit:,}")
        return found + self.failures

    def rows(self) -> Iterator[tuple[str, str]]:
        counts = self.counts.values()
        yield "time", f"{self.minutes:.1f} minutes, seed {self.seed}; {self.version}; {self.machine}"
        yield "samples delivered", f"{self.total('delivered'):,}, in {sum(each.epochs for each in counts)} epochs"
        yield "wrong, lost, repeated", ", ".join(f"{self.total(what):,}" for what in ("wrong", "lost", "repeated"))
        yield "batches of other samples than the order says", f"{self.total('strayed'):,}"
        at_a_time = sum(job.shape.world for job in JOBS)
        yield "processes that read", f"{self.processes:,} ({at_a_time} at a time, and their workers)"
        yield "done to them", _listed(self.events)
        yield "requests", f"{self.requests:,}, of which broken {self.broken:,}: {_listed(self.faults)}"
        yield "errors that came out of next()", _listed(self.errors)
        yield "datasets written meanwhile", f"{self.written}, by writers killed {self.writer_kills} times"
        size, limit, highest = (format_size(n) for n in (self.dataset_bytes, self.cache_limit, self.cache_highest))
        yield "cache", f"at most {highest} of {limit} in {self.cache_looks:,} looks; the datasets have {size}"
        for what, grown in self.growth.items():
            text = "not judged: no process lived long enough for it"
            if grown:
                text = f"{_number(what, max(grown.values()))} at most, of {len(grown)} processes"
            yield f"growth of {what}", f"{text}; highest {_number(what, self.highest[what])}"

    def markdown(self) -> str:
        return table(("", ""), self.rows())

    def to_json(self) -> str:
        value = msgspec.json.encode({**vars(self), "problems": self.problems()})
        return msgspec.json.format(value, indent=1).decode() + "\n"

    def verdict(self) -> str:
        problems = self.problems()
        if problems:
            return f"THE SOAK FAILED: {len(problems)} problems, the first: {problems[0].splitlines()[0]}"
        return f"Nothing wrong, lost, repeated, leaked or hung: {self.total('delivered'):,} samples."


def _listed(counter: Counter[str]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counter.items())) or "none"


def _number(what: str, value: float) -> str:
    return format_size(int(value)) if what == "memory" else f"{value:.0f}"
