"""The shuffled loader, with 0 and 2 workers, and batches of 32 and 512."""

from __future__ import annotations

from typing import Any

from tools.bench.subject import Contestant, Goal, Subject
from tools.bench.subjects.common import contestant, limit
from tools.bench.workloads import SIZES, samples_of

_LIMIT = 120.0


def subjects(scale: float) -> tuple[Subject, ...]:
    return tuple(_loader(workload, batch_size, scale) for workload in SIZES for batch_size in (32, 512))


def _loader(workload: str, batch_size: int, scale: float) -> Subject:
    samples = samples_of(workload, scale)
    made = {"workload": workload, "samples": samples}
    how = {"samples": samples, "batch_size": batch_size}

    def driven(loader: str, title: str, prepare: dict[str, Any], **more: Any) -> list[Contestant]:
        ways = [(workers, f"{title}, {workers} workers".removeprefix(", ")) for workers in (0, 2)]
        return [contestant(loader, "loader", way, prepare, workers=workers, **more, **how) for workers, way in ways]

    found = driven("mdsx", "", made)
    if workload == "text":
        found.append(contestant("mdsx", "loader", "0 workers, dicts", made, workers=0, dicts=True, **how))
    found += driven("litdata", "", made)
    if workload == "tokens":
        found += driven("litdata", "TokensLoader", {**made, "tokens_loader": True}, tokens_loader=True)
    found.append(limit("memcpy", "copy", workload=workload, samples=samples))
    found.append(limit("memcpy, gather", "gather", workload=workload, samples=samples))
    return Subject(
        name=f"loader-{workload}-{batch_size}",
        title=f"{workload}: shuffled loader, batch {batch_size}",
        figure="samples/s",
        unit="samples/s",
        contestants=tuple(found),
        goals=_goals(workload, batch_size, [each.name for each in found]),
        limit=_LIMIT,
    )


def _goals(workload: str, batch_size: int, names: list[str]) -> tuple[Goal, ...]:
    return ()
