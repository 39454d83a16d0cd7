"""Which jobs read what, what happens when, and how the storage fails: everything follows from the seed."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tools.conformance.matrix import Shape
from tools.fault_proxy import Rule, cut, flip, ignored_range, lost, other_range, reset, stall, status, trickle

ROUND = 10.0  # seconds; each kind of event happens as often in it as `_EVENTS` says
_WEATHERS = (0.0, 4.0, 8.0)  # when in a round the storage's faults change
_BATCHES = (7, 16, 24, 33, 48)  # per rank
_WORKERS = (0, 2)


@dataclass(frozen=True)
class Data:
    """A dataset: its samples are numbered `first`, `first + 1`, ..."""

    name: str
    columns: tuple[str, ...]
    samples: int
    first: int
    compression: str | None = None
    shard_size: str = "64KiB"

    @property
    def ids(self) -> range:
        return range(self.first, self.first + self.samples)


TOKENS = Data("tokens", ("id", "tokens"), 14_000, 0)
TEXT = Data("text", ("id", "text", "more", "data"), 9_001, 1_000_000)
PACKED = Data("packed", ("id", "tokens", "text"), 7_000, 2_000_000, "zstd")
DATASETS = (TOKENS, TEXT, PACKED)
CACHE_PART = 3  # the cache holds a third of what the datasets have in all
OUTPUT = Data("output", TEXT.columns, 24_000, 5_000_000, shard_size="32KiB")
"""What the writers write."""


@dataclass(frozen=True)
class JobPlan:
    """A training: over one dataset, or by `weights` over several. The readers of a `steady` one are never killed."""

    name: str
    data: tuple[Data, ...]
    shape: Shape
    seed: int
    weights: tuple[float, ...] = ()
    steady: bool = False


JOBS = (
    JobPlan("tokens", (TOKENS,), Shape(2, 0, 24), 11),
    JobPlan("packed", (PACKED,), Shape(2, 2, 16), 12),
    JobPlan("mixture", (TOKENS, PACKED), Shape(2, 0, 33), 13, (0.6, 0.4)),
    JobPlan("steady text", (TEXT,), Shape(1, 0, 24), 14, steady=True),
    JobPlan("steady tokens", (TOKENS,), Shape(1, 2, 24), 15, steady=True),
)

KILL_READER = "kill a reader"  # and leave its workers
KILL_GROUP = "kill a reader with its workers"
KILL_WORKER = "kill a worker"
RESHAPE = "kill two jobs, resume both on other ranks, workers and batch sizes"
FLIP = "flip a bit in a cached file"
KILL_WRITER = "kill a writer"
DOWN = "the server refuses connections"
WEATHER = "other faults of the storage"

_EVENTS = {KILL_READER: 2, KILL_GROUP: 1, KILL_WORKER: 2, RESHAPE: 1, FLIP: 8, KILL_WRITER: 3, DOWN: 1}


class Event(NamedTuple):
    """At `at` seconds `what` happens; `draw` decides to which process."""

    at: float
    what: str
    draw: int


def events(seed: int) -> Iterator[Event]:
    chance = random.Random(f"events {seed}")
    for number in itertools.count():
        times = [(chance.uniform(0, ROUND), kind) for kind, times in _EVENTS.items() for _ in range(times)]
        times += [(at, WEATHER) for at in _WEATHERS]
        yield from (Event(number * ROUND + at, what, chance.getrandbits(32)) for at, what in sorted(times))


def reshaped(ranks: int, draw: int) -> tuple[Shape, Shape]:
    """How two jobs share `ranks` ranks from then on."""
    chance = random.Random(draw)
    first = chance.randint(1, ranks - 1)
    workers = chance.sample(_WORKERS, 2)  # so that there are always some to be killed
    batches = [chance.choice(_BATCHES) for _ in range(2)]
    return Shape(first, workers[0], batches[0]), Shape(ranks - first, workers[1], batches[1])


# --- faults of the storage


def weather(draw: int) -> tuple[str, list[Rule]]:
    chance = random.Random(draw)
    return chance.choice(list(weathers(chance).items()))


def weathers(chance: random.Random) -> dict[str, list[Rule]]:
    """The kinds of faults, and which requests fail, and how."""

    def reading(fault: Any, share: float) -> Rule:
        return Rule(fault, key="/soak/data/*", share=share)

    def writing(fault: Any, share: float) -> Rule:
        return Rule(fault, key="/soak/out/*", method="*", share=share)

    place = chance.random
    one_at_a_time = {
        "resets": [
            *(reading(reset(place()), 0.1), reading(reset(None), 0.05)),
            *(writing(reset(None), 0.1), writing(lost, 0.05)),
        ],
        "truncated bodies": [reading(cut(place()), 0.15)],
        "flipped bits": [reading(flip(place(), chance.randrange(8)), 0.1) for _ in range(2)],
        "500 and 503": [
            make(status(code, name), share)
            for make in (reading, writing)
            for code, name, share in ((503, "SlowDown", 0.15), (500, "InternalError", 0.1))
        ],
        "stalls and trickles": [
            *(reading(stall(place()), 0.004), reading(stall(None), 0.002), reading(trickle(0.01, 0.98), 0.02))
        ],
        "wrong ranges": [
            *(reading(ignored_range, 0.1), reading(other_range(admitted=True), 0.05)),
            reading(other_range(admitted=False), 0.1),
        ],
    }
    together = [replace(rule, share=rule.share / 4) for rules in one_at_a_time.values() for rule in rules]
    return {
        "calm": [],
        **one_at_a_time,
        "404 for a while": [reading(status(404, "NoSuchKey"), 0.2)],
        "403 for a while": [reading(status(403, "ExpiredToken"), 0.1), writing(status(403, "AccessDenied"), 0.05)],
        "all at once": together,
    }
