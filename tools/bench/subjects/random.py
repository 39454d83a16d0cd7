"""Random access: one sample, and many at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from tools.bench import limits
from tools.bench.measure import Figures, rate_of_calls
from tools.bench.subject import Subject
from tools.bench.subjects import PEERS, Workload, alone, reads, workloads
from tools.peers import Peer, Reading, peer
from tools.workloads import permutation

_LOADERS = [name for name in PEERS if hasattr(peer(name), "random")]
_MANY = 512
_AT_ONCE = f"{_MANY} at once/s"


def subjects(scale: float) -> list[Subject]:
    return [_subject(workload) for workload in workloads(scale)]


def _subject(workload: Workload) -> Subject:
    found = [reads(loader, random, "", workload, dicts=True) for loader in ("mdsx", *_LOADERS)]
    found.append(alone("limit", "memcpy, gather", limits.memory, figure=_AT_ONCE, **workload.arguments))
    title = f"{workload.name}: random ds[i], and ds[[{_MANY} numbers]]"
    return Subject(f"random-{workload.name}", title, found, more=(_AT_ONCE,))


def random(peer: Peer, data: str, workload: str, samples: int, **how: Any) -> Figures:
    """`ds[i]`, then `ds[[...]]`, in a random permutation of the samples."""
    one, many = peer.random(Reading(data, workload, **how))
    numbers = permutation(samples)
    singles = numbers.tolist()
    figures = rate_of_calls(lambda call: one(singles[call % samples]), 1)
    lists = np.resize(numbers, (-(-samples // _MANY), _MANY)).tolist()
    return {**figures, _AT_ONCE: rate_of_calls(lambda call: many(lists[call % len(lists)]), _MANY)["samples/s"]}
