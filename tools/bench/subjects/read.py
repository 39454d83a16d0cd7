"""Reading sample by sample, in order and shuffled; reading at random; ArrayRecord's own protocol."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tools.bench.subject import Contestant, Goal, Subject
from tools.bench.subjects import PEERS, TOKENS_LOADER, Workload, call, contestant, limit, names, reads, workloads

_RANDOM = ("litdata", "mosaicml", "grain")  # WebDataset has no random access
_MANY = 512
_LOREM = 65_536


def subjects(scale: float) -> list[Subject]:
    return [
        *(_iterate(workload, shuffle) for shuffle in (False, True) for workload in workloads(scale)),
        *(_one(workload) for workload in workloads(scale)),
        *(_many(workload) for workload in workloads(scale)),
        *_arrayrecord(max(int(_LOREM * scale), 64)),
    ]


def _iterate(workload: Workload, shuffle: bool) -> Subject:
    found = [reads("mdsx", "iterate", "StreamingDataset", workload, shuffle=shuffle)]
    if not shuffle:
        found.append(reads("mdsx", "iterate", "Dataset", workload, shuffle=False, dicts=True))
    for loader in PEERS:
        found.append(reads(loader, "iterate", "", workload, shuffle=shuffle))
        if (loader, workload.name) == ("litdata", "tokens"):
            found.append(reads(loader, "iterate", "TokensLoader", workload, TOKENS_LOADER, shuffle=shuffle))
    name, words = ("shuffled", "shuffled") if shuffle else ("sequential", "in order")
    return Subject(f"{name}-{workload.name}", f"{workload.name}: sample by sample, {words}", found)


def _one(workload: Workload) -> Subject:
    found = [reads(loader, "random_one", "", workload) for loader in ("mdsx", *_RANDOM)]
    goals = (Goal(f"{workload.name}, random ds[i]: 5 x mosaicml-streaming", "mdsx", names(found, "mosaicml"), 5),)
    return Subject(f"random-{workload.name}", f"{workload.name}: random ds[i]", found, goals)


def _many(workload: Workload) -> Subject:
    found = [
        reads("mdsx", "random_many", "", workload, each=_MANY, dicts=True),
        reads("mdsx", "random_many", "columns", workload, each=_MANY),
        *(reads(loader, "random_many", "", workload, each=_MANY) for loader in _RANDOM),
        limit("memcpy, gather", "gather", **workload.arguments),
    ]
    goal = f"{workload.name}, random ds[[512 numbers]]: 20 x mosaicml-streaming"
    goals = (Goal(goal, "mdsx", names(found, "mosaicml"), 20),)
    return Subject(f"random{_MANY}-{workload.name}", f"{workload.name}: random ds[[{_MANY} numbers]]", found, goals)


def _arrayrecord(records: int) -> Iterator[Subject]:
    readers = {"ArrayRecordReader": True, "ArrayRecordDataSource": False}
    for at_once, name, words in ((False, "single", "one by one"), (True, "batched", "in one call")):

        def driven(loader: str, how: str, at_once: bool = at_once, **arguments: Any) -> Contestant:
            made = call(loader, "loaders:prepare_lorem", records=records)
            arguments |= {"records": records, "at_once": at_once}
            return contestant(loader, "loaders:lorem", how, arguments, made)

        found = [driven("mdsx", "")]
        if at_once:
            found.append(driven("mdsx", "columns", columns=True))
        found += [driven("grain", how, reader=reader) for how, reader in readers.items()]
        title = f"ArrayRecord's protocol: records of 200 lorem ipsum words, a random permutation, {words}"
        yield Subject(f"arrayrecord-{name}", title, found)
