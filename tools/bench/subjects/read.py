"""Reading sample by sample, in order and shuffled; reading at random; ArrayRecord's own protocol."""

from __future__ import annotations

from typing import Any

from tools.bench.subject import Contestant, Goal, Subject
from tools.bench.subjects import common
from tools.bench.subjects.common import PEERS, TOKENS_LOADER, Workload, contestant, limit, names, reads, workloads

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


def _arrayrecord(records: int) -> tuple[Subject, ...]:
    def driven(loader: str, function: str, how: str, **arguments: Any) -> Contestant:
        made = common.call(loader, "loaders:prepare_lorem", records=records)
        return contestant(loader, f"loaders:{function}", how, {"records": records, **arguments}, made)

    readers = (("ArrayRecordReader", True), ("ArrayRecordDataSource", False))
    one = [driven("mdsx", "lorem_one", "")]
    one += [driven("grain", "lorem_one", how, reader=reader) for how, reader in readers]
    every = [driven("mdsx", "lorem_all", "", columns=False), driven("mdsx", "lorem_all", "columns", columns=True)]
    every += [driven("grain", "lorem_all", how, reader=reader) for how, reader in readers]
    text = "records of 200 lorem ipsum words, a random permutation"
    return (
        Subject("arrayrecord-single", f"ArrayRecord's protocol: {text}, one by one", one),
        Subject("arrayrecord-batched", f"ArrayRecord's protocol: {text}, in one call", every),
    )
