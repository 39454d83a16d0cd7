"""Random access: one sample, and many at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from tools.bench import limits
from tools.bench.measure import Figures, rate_of_calls
from tools.bench.subject import Goal, Subject
from tools.bench.subjects import PEERS, Workload, alone, names, reads, workloads
from tools.peers import Peer, Reading, peer
from tools.workloads import permutation

_LOADERS = [name for name in PEERS if hasattr(peer(name), "random")]
_MANY = 512


def subjects(scale: float) -> list[Subject]:
    return [subject(workload) for subject in (_one, _many) for workload in workloads(scale)]


def _one(workload: Workload) -> Subject:
    found = [reads(loader, random, "", workload) for loader in ("mdsx", *_LOADERS)]
    goal = Goal(f"{workload.name}, random ds[i]: 5 x mosaicml-streaming", "mdsx", names(found, "mosaicml"), 5)
    return Subject(f"random-{workload.name}", f"{workload.name}: random ds[i]", found, [goal])


def _many(workload: Workload) -> Subject:
    found = [
        reads("mdsx", random, "", workload, each=_MANY, dicts=True),
        reads("mdsx", random, "columns", workload, each=_MANY),
        *(reads(loader, random, "", workload, each=_MANY) for loader in _LOADERS),
        alone("limit", "memcpy, gather", limits.memory, work="gather", **workload.arguments),
    ]
    text = f"random ds[[{_MANY} numbers]]"
    goal = Goal(f"{workload.name}, {text}: 20 x mosaicml-streaming", "mdsx", names(found, "mosaicml"), 20)
    return Subject(f"random{_MANY}-{workload.name}", f"{workload.name}: {text}", found, [goal])


def random(peer: Peer, data: str, workload: str, samples: int, each: int = 0, **how: Any) -> Figures:
    """`ds[i]`, or `ds[[...]]` with `each` numbers, in a random permutation of the samples."""
    one, many = peer.random(Reading(data, workload, **how))
    numbers = permutation(samples)
    if not each:
        singles = numbers.tolist()
        return rate_of_calls(lambda call: one(singles[call % samples]), 1)
    lists = np.resize(numbers, (-(-samples // each), each)).tolist()
    return rate_of_calls(lambda call: many(lists[call % len(lists)]), each)
