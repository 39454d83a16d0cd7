"""How contestants take the time, and the memory. Standard library alone: it works in every environment."""

from __future__ import annotations

import contextlib
import importlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from tools.bench.processes import session_members

Figures = dict[str, Any]

SECONDS = 2.0  # that are measured at least, where an epoch is short
LONG_EPOCH = 4.0  # seconds from which on the first epoch counts, as it is no mere warming up
ENOUGH = 8.0  # seconds after which an epoch is left


def rate_of_epochs(epoch: Callable[[], Iterable[Any]], batch: int, samples: int) -> Figures:
    """Iterates epochs of `samples` samples that come `batch` at a time, and returns samples a second.

    Of each epoch the time from its first batch on counts. The first epoch is for warming up, unless it lasts. "first
    batch s" is the time to the very first batch, from the making of its iterator on. An epoch has several batches.
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
        batches, left = 0, False
        for batches, _ in enumerate(iterator, 1):
            if batches % check == 0 and clock() - started > ENOUGH:
                left = True
                break
        epochs.append((min(batches * batch, samples - batch), clock() - started))
        lasting = left or epochs[-1][1] > LONG_EPOCH
        if lasting or clock() > end or sum(took for _, took in epochs[1:]) > SECONDS:
            break
    timed = epochs[-1:] if lasting else epochs[1:] or epochs
    return {"samples/s": sum(count for count, _ in timed) / sum(took for _, took in timed), "first batch s": first}


def rate_of_calls(read: Callable[[int], Any], each: int) -> Figures:
    """Calls `read` with 0, 1, 2, ..., each of which reads `each` samples; returns samples a second. First warms up."""
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


@contextlib.contextmanager
def stopwatch(figures: Figures, samples: int, size: int = 0) -> Iterator[None]:
    """Put samples (and bytes) a second of the block into `figures`."""
    started = time.perf_counter()
    yield
    took = time.perf_counter() - started
    figures["samples/s"] = samples / took
    if size:
        figures["bytes/s"] = size / took


class PeakMemory:
    """The most memory that this process and its children had at any of many looks, in MiB, within the block.

    `rss`: resident, what is shared counted in every process; `pss`: what is shared counted once; `anonymous`:
    without what is mapped from files.
    """

    _EVERY = 0.05

    def __init__(self) -> None:
        self._peaks = {"rss": 0, "pss": 0, "anonymous": 0}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def figures(self) -> Figures:
        return {f"peak {name} MiB": value / 1024 for name, value in self._peaks.items()}

    def _watch(self) -> None:
        while True:
            found = [memory_of(pid) for pid in session_members(os.getsid(0))]
            for name, peak in self._peaks.items():
                self._peaks[name] = max(peak, sum(each[name] for each in found))
            if self._stop.wait(self._EVERY):
                return


def memory_of(pid: int) -> dict[str, int]:
    """KiB of a process: `rss`, `pss`, `anonymous`, and `private`, what no other process shares."""
    found = dict.fromkeys(("rss", "pss", "anonymous", "private"), 0)
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
            name, value = line.split()[:2]
            kind = name.rstrip(":").lower().partition("_")[0]
            if kind in found and not name.startswith("Pss_"):
                found[kind] += int(value)
    return found


def idle_cpu(batches: Iterable[Any], seconds: float = 5.0) -> Figures:
    """Processor seconds of this process and its children in `seconds` in which nobody reads.

    They begin two seconds after the first batches, when what is prepared ahead is ready.
    """
    iterator = iter(batches)
    for _ in range(3):
        next(iterator, None)
    time.sleep(2.0)
    before = _cpu_seconds()
    time.sleep(seconds)
    return {"cpu s": _cpu_seconds() - before}


def _cpu_seconds() -> float:
    ticks = 0
    for pid in session_members(os.getsid(0)):
        with contextlib.suppress(OSError):
            values = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(values[11]) + int(values[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def peak_memory(function: str, **arguments: Any) -> Figures:
    """Another measurement, `module:name`, and the most memory that it had on the way."""
    module, _, name = function.partition(":")
    with PeakMemory() as memory:
        figures: Figures = getattr(importlib.import_module(module), name)(**arguments)
    return {**figures, **memory.figures()}
