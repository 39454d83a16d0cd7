"""How time and memory are measured."""

from __future__ import annotations

import contextlib
import gc
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import psutil

from tools.watch import Watch

Figures = dict[str, Any]
Result = TypeVar("Result")

SECONDS = 2.0  # to measure at least, if an epoch is short
LONG_EPOCH = 4.0  # seconds; a first epoch that takes longer counts, since it is no mere warm-up
ENOUGH = 8.0  # seconds after which an epoch is left


def rate_of_epochs(epoch: Callable[[], Iterable[Any]], batch: int, samples: int) -> Figures:
    """Iterate epochs of `samples` samples that come `batch` at a time, and return samples a second.

    The time of an epoch is measured from its first batch. The first epoch is a warm-up, unless it is long. "first batch
    s" is the time from creating the very first iterator to its first batch. An epoch has several batches.
    """
    clock = time.perf_counter
    check = max(1, 64 // batch)  # batches between two looks at the clock
    end = clock() + 5 * SECONDS + ENOUGH  # epochs may take long to start
    first: float | None = None
    epochs: list[tuple[int, float]] = []  # samples that counted, seconds that they took
    while True:
        begun = clock()
        iterator = iter(epoch())
        next(iterator)
        started = clock()
        if first is None:
            first = started - begun
        batches = 0
        for batches, _ in enumerate(iterator, 1):
            if batches % check == 0 and clock() - started > ENOUGH:
                break
        epochs.append((min(batches * batch, samples - batch), clock() - started))
        lasting = epochs[-1][1] > LONG_EPOCH
        if lasting or clock() > end or sum(took for _, took in epochs[1:]) > SECONDS:
            break
    timed = epochs[-1:] if lasting else epochs[1:] or epochs
    return {"samples/s": sum(count for count, _ in timed) / sum(took for _, took in timed), "first batch s": first}


def rate_of_calls(read: Callable[[int], Any], each: int) -> Figures:
    """Call `read` with 0, 1, 2, ...; each call reads `each` samples. Return samples a second, after a warm-up."""
    clock = time.perf_counter
    number = 0
    for duration in (SECONDS / 4, SECONDS):
        started, begin = clock(), number
        while clock() - started < duration:
            for _ in range(max(1, 64 // each)):
                read(number)
                number += 1
        took = clock() - started
    return {"samples/s": (number - begin) * each / took}


def timed(work: Callable[[], Result]) -> tuple[Result, float]:
    """Return the result of `work`, and its seconds. No garbage collection in them walks what was made before: 60,000
    samples that wait to be written cost 70 ms in some runs."""
    gc.collect()
    gc.freeze()
    started = time.perf_counter()
    result = work()
    return result, time.perf_counter() - started


class PeakMemory(Watch):
    """The peak memory of this process and its children while the context lasts, in MiB, sampled every 50 ms.

    `rss`: resident, what is shared counted in every process; `pss`: what is shared counted once; `anonymous`:
    without what is mapped from files.
    """

    interval = 0.05

    def __init__(self) -> None:
        super().__init__()
        self._peaks: Counter[str] = Counter()

    def figures(self) -> Figures:
        return {f"peak {name} MiB": value / 2**20 for name, value in self._peaks.items()}

    def look(self) -> None:
        self._peaks |= sum(map(memory_of, _family()), Counter[str]())


def memory_of(process: psutil.Process) -> Counter[str]:
    """Bytes of a process, if it lives: `rss`, `pss`, `anonymous`, and `private`, which no other process shares."""
    found = Counter[str]()
    with contextlib.suppress(psutil.Error):
        info = process.memory_full_info()
        found.update(rss=info.rss, pss=info.pss, anonymous=info.rss - info.shared, private=info.uss)
    return found


def peak(process: int | str = "self") -> int:
    """Return the most memory that a process had at a time, in bytes."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    return 1024 * int(found[1]) if found else 0


def cpu_seconds() -> float:
    """Return the processor time that this process and its children have taken."""
    seconds = 0.0
    for process in _family():
        with contextlib.suppress(psutil.Error):
            seconds += sum(process.cpu_times()[:2])
    return seconds


def _family() -> list[psutil.Process]:
    this = psutil.Process()
    return [this, *this.children(recursive=True)]
