"""How time and memory are measured."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import psutil

from tools.watch import Watch

Figures = dict[str, Any]
Result = TypeVar("Result")

SECONDS = 1.0  # to measure at least, over several epochs if they are short
WARM_UP = 2.0  # seconds of the first epoch that do not count, or all of it if it is shorter
LONGEST = 15.0  # seconds after which no further epoch begins


def rate_of_epochs(epoch: Callable[[], Iterable[Any]], batch: int, samples: int) -> Figures:
    """Iterate epochs of `samples` samples that come `batch` at a time, and return samples a second.

    An epoch is measured from its first batch, after the warm-up. "first batch s" is the time from creating the very
    first iterator to its first batch, "next epoch ms" that from an epoch's last batch to the first one of the next
    epoch, in the median. An epoch has several batches.
    """
    clock = time.perf_counter
    check = max(1, 64 // batch)  # batches between two looks at the clock
    end = clock() + LONGEST
    warming, gaps, first, last = True, list[float](), 0.0, 0.0
    counted, took, kept = 0, 0.0, (0, 0.0)  # kept: the warm-up, which counts if nothing follows
    while took <= SECONDS and (clock() < end or not kept[1]):
        begun = clock()
        iterator = iter(epoch())
        next(iterator)
        started = clock()
        first = first or started - begun
        gaps += [started - last] if last else []
        before = number = 0
        for number, _ in enumerate(iterator, 1):
            last = clock()
            if number % check == 0 and last - started > (WARM_UP if warming else SECONDS - took):
                if not warming:
                    break
                warming, started, before = False, last, number
        found = min(number * batch, samples - batch) - before * batch, clock() - started
        if warming:
            warming, kept = False, found
        else:
            counted, took = counted + found[0], took + found[1]
            kept = kept if kept[1] else found
    if not counted:
        counted, took = kept
    figures = {"samples/s": counted / took, "first batch s": first}
    return figures | ({"next epoch ms": 1000 * median(gaps)} if gaps else {})


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


class PeakAnonymous(Watch):
    """The most memory while the context lasts that is not mapped from files, in bytes, sampled every 50 ms: of this
    process, or of the largest of its children."""

    interval = 0.05

    def __init__(self, *, children: bool) -> None:
        super().__init__()
        self._children, self.peak = children, 0

    def look(self) -> None:
        this = psutil.Process()
        for process in this.children(recursive=True) if self._children else [this]:
            with contextlib.suppress(psutil.Error):
                found = process.memory_info()
                self.peak = max(self.peak, found.rss - found.shared)


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


def cpu_seconds(without: Collection[int] = ()) -> float:
    """Return the processor time that this process and its children have taken, but for some that still run."""
    seconds = sum(os.times()[:4])  # with children that have ended
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            seconds += sum(process.cpu_times()[:4]) if process.pid not in without else 0.0
    return seconds
