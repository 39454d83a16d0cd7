"""Reading sample by sample, in order and shuffled; reading at random; ArrayRecord's own protocol."""

from __future__ import annotations

from typing import Any

import numpy as np

from tools.bench.measure import Figures, rate_of_calls, rate_of_epochs
from tools.bench.subject import Goal, Subject
from tools.bench.subjects import PEERS, TOKENS_LOADER, Workload, alone, limits, names, reads, workloads
from tools.peers import Peer, Reading
from tools.workloads import permutation

_RANDOM = ("litdata", "mosaicml", "grain")  # WebDataset has no random access
_MANY = 512
_RECORDS = 65_536


def subjects(scale: float) -> list[Subject]:
    records = Workload("lorem", max(int(_RECORDS * scale), 64))
    return [
        *(_iterate(workload, shuffle) for shuffle in (False, True) for workload in workloads(scale)),
        *(_one(workload) for workload in workloads(scale)),
        *(_many(workload) for workload in workloads(scale)),
        _records(records, "single", "one by one"),
        _records(records, "batched", "in one call", each=records.samples),
    ]


def _iterate(workload: Workload, shuffle: bool) -> Subject:
    found = [reads("mdsx", iterate, "StreamingDataset", workload, shuffle=shuffle)]
    if not shuffle:
        found.append(reads("mdsx", iterate, "Dataset", workload, shuffle=False, dicts=True))
    for loader in PEERS:
        found.append(reads(loader, iterate, "", workload, shuffle=shuffle))
        if (loader, workload.name) == ("litdata", "tokens"):
            found.append(reads(loader, iterate, "TokensLoader", workload, TOKENS_LOADER, shuffle=shuffle))
    name, words = ("shuffled", "shuffled") if shuffle else ("sequential", "in order")
    return Subject(f"{name}-{workload.name}", f"{workload.name}: sample by sample, {words}", found)


def iterate(peer: Peer, data: str, workload: str, samples: int, **how: Any) -> Figures:
    dataset = peer.samples(Reading(data, workload, **how))
    return rate_of_epochs(lambda: dataset, 1, samples)


def _one(workload: Workload) -> Subject:
    found = [reads(loader, random, "", workload) for loader in ("mdsx", *_RANDOM)]
    goal = Goal(f"{workload.name}, random ds[i]: 5 x mosaicml-streaming", "mdsx", names(found, "mosaicml"), 5)
    return Subject(f"random-{workload.name}", f"{workload.name}: random ds[i]", found, [goal])


def _many(workload: Workload) -> Subject:
    found = [
        reads("mdsx", random, "", workload, each=_MANY, dicts=True),
        reads("mdsx", random, "columns", workload, each=_MANY),
        *(reads(loader, random, "", workload, each=_MANY) for loader in _RANDOM),
        alone("limit", "memcpy, gather", limits.memory, work="gather", **workload.arguments),
    ]
    text = f"random ds[[{_MANY} numbers]]"
    goal = Goal(f"{workload.name}, {text}: 20 x mosaicml-streaming", "mdsx", names(found, "mosaicml"), 20)
    return Subject(f"random{_MANY}-{workload.name}", f"{workload.name}: {text}", found, [goal])


def _records(workload: Workload, name: str, words: str, **how: Any) -> Subject:
    found = [reads("mdsx", random, "", workload, **how, dicts=True)]
    if how:
        found.append(reads("mdsx", random, "columns", workload, **how))
    found.append(reads("grain", random, "ArrayRecordReader", workload, **how, reader=True))
    found.append(reads("grain", random, "ArrayRecordDataSource", workload, **how))
    title = f"ArrayRecord's protocol: records of 200 lorem ipsum words, a random permutation, {words}"
    return Subject(f"arrayrecord-{name}", title, found)


def random(peer: Peer, data: str, workload: str, samples: int, each: int = 0, **how: Any) -> Figures:
    """`ds[i]`, or `ds[[...]]` with `each` numbers, in a random permutation of the samples."""
    one, many = peer.random(Reading(data, workload, **how))
    numbers = permutation(samples)
    if not each:
        singles = numbers.tolist()
        return rate_of_calls(lambda call: one(singles[call % samples]), 1)
    lists = np.resize(numbers, (-(-samples // each), each)).tolist()
    return rate_of_calls(lambda call: many(lists[call % len(lists)]), each)
