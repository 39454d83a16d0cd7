"""The loader to a device: batches copied from pinned memory, with 1 to 16 processes or threads.

The device is $MDSX_BENCH_DEVICE, or else cuda if there is one, and the CPU if not.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from tools.bench.measure import Figures, rate_of_epochs
from tools.bench.subject import Contestant, Subject
from tools.bench.subjects import Workload, reads, workloads
from tools.peers import Lazy, Peer, Reading

torch = Lazy("torch")
_COUNTS = (1, 2, 4, 8, 16)
_BATCH = 256
_WAYS = (("mdsx", "threads"), ("mdsx", "workers"), ("litdata", "workers"), ("lancedb", "workers"))


def subjects(scale: float) -> list[Subject]:
    sizes = {each.name: each for each in workloads(scale)}
    return [_subject(sizes["tokens"]), _subject(sizes["images"], decoded=True)]


def _subject(workload: Workload, **how: Any) -> Subject:
    def way(loader: str, kind: str, count: int) -> Contestant:
        words = f"{count} {kind if count > 1 else kind[:-1]}"
        made: dict[str, Any] = {kind: count, **how}
        return reads(loader, to_device, words, workload, **made)

    return Subject(
        name=f"gpu-{workload.name}",
        title=f"{workload.name}{', JPEGs decoded' if how else ''}: shuffled loader to the device, batch {_BATCH}",
        contestants=[way(*each, count) for each in _WAYS for count in _COUNTS],
        more=("first batch s", "MB/s"),
        limit=120.0,
        gpu=True,
    )


def to_device(peer: Peer, data: str, workload: str, samples: int, **how: Any) -> Figures:
    """The rate of a loader whose batches go to the device."""
    device = torch.device(os.environ.get("MDSX_BENCH_DEVICE") or ("cuda" if torch.cuda.is_available() else "cpu"))
    size = min(_BATCH, samples // 3)
    batches = peer.loader(Reading(data, workload, size, **how))
    moved = [0, 0]  # batches, bytes

    def epoch() -> Iterator[None]:
        for batch in batches:
            for value in batch.values() if isinstance(batch, dict) else [batch]:
                tensor = torch.as_tensor(value)
                tensor = tensor.pin_memory() if device.type == "cuda" and not tensor.is_pinned() else tensor
                moved[1] += tensor.to(device, non_blocking=True).nbytes
            moved[0] += 1
            if device.type == "cuda":
                torch.cuda.current_stream().synchronize()
            yield

    figures = rate_of_epochs(epoch, size, samples)
    return {**figures, "MB/s": figures["samples/s"] * moved[1] / (moved[0] * size) / 1e6}
