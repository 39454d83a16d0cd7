"""The faults of the storage, by kind: which requests fail, and how, for some seconds."""

from __future__ import annotations

import random
from typing import Any

from tools.fault_proxy import Rule, cut, flip, ignored_range, lost, other_range, reset, stall, status, trickle

READING = "/soak/data/*"
WRITING = "/soak/out/*"


def kinds() -> tuple[str, ...]:
    """The names of all kinds."""
    return tuple(_rules(random.Random(0)))


def weather(draw: int) -> tuple[str, list[Rule]]:
    """Return one kind and its rules."""
    chance = random.Random(draw)
    rules = _rules(chance)
    name = chance.choice(list(rules))
    return name, rules[name]


def _rules(chance: random.Random) -> dict[str, list[Rule]]:
    def reading(fault: Any, share: float, **where: Any) -> Rule:
        return Rule(fault, key=READING, share=share, **where)

    def writing(fault: Any, share: float) -> Rule:
        return Rule(fault, key=WRITING, method="*", share=share)

    place = chance.random
    resets = [reading(reset(place()), 0.1), reading(reset(None), 0.05), writing(reset(None), 0.1), writing(lost, 0.05)]
    cuts = [reading(cut(place()), 0.15)]
    flips = [reading(flip(place(), chance.randrange(8)), 0.1) for _ in range(2)]
    busy = [
        *(reading(status(503, "SlowDown"), 0.15), reading(status(500, "InternalError"), 0.1)),
        *(writing(status(503, "SlowDown"), 0.15), writing(status(500, "InternalError"), 0.1)),
    ]
    slow = [reading(stall(place()), 0.004), reading(stall(None), 0.002), reading(trickle(0.01, 0.98), 0.02)]
    ranges = [
        *(reading(ignored_range, 0.1), reading(other_range(admitted=True), 0.05)),
        reading(other_range(admitted=False), 0.1),
    ]
    return {
        "calm": [],
        "resets": resets,
        "truncated bodies": cuts,
        "flipped bits": flips,
        "500 and 503": busy,
        "stalls and trickles": slow,
        "404 for a while": [reading(status(404, "NoSuchKey"), 0.2)],
        "403 for a while": [reading(status(403, "ExpiredToken"), 0.1), writing(status(403, "AccessDenied"), 0.05)],
        "wrong ranges": ranges,
        "all at once": [
            Rule(rule.fault, rule.key, rule.method, share=rule.share / 4)
            for rule in (*resets, *cuts, *flips, *busy, *slow, *ranges)
        ],
    }
