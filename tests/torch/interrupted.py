"""A training that is interrupted: tells what it does line by line as JSON, and goes on when it is told to.

Run as: interrupted.py URL CACHE WORKERS METHOD. "waiting" is told before each `next()`, "step" in the training step
after it. At an exception its type and traceback are told; then a line comes in: `end` ends the process by it, `go` goes
on with the same iteration; where it was raised by `next()`, what is left is told first: threads, children, descriptors.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import Any

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset

PATIENCE = 30.0  # seconds for what was begun to end
LONG_STEP = 120  # samples after which a step takes longer
CONNECTIONS = 64  # that the process's S3 client keeps for the next dataset


def tell(**facts: Any) -> None:
    print(json.dumps({**facts, "time": time.time()}), flush=True)


def descriptors() -> set[str]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add(f"{name} {os.readlink(f'/proc/self/fd/{name}')}")
        except OSError:
            continue  # the one that listed them
    return {name for name in found if "pipe:" not in name or int(name.split()[0]) not in helpers("_fd", "_alive_fd")}


def children() -> set[int]:
    found: set[int] = set()
    for task in os.listdir("/proc/self/task"):
        try:
            found |= set(map(int, Path(f"/proc/self/task/{task}/children").read_text().split()))
        except OSError:
            continue
    return found - helpers("_pid", "_forkserver_pid")


def helpers(*names: str) -> set[int]:
    """Those attributes of Python's own helper processes, which end with this one."""
    both = resource_tracker._resource_tracker, forkserver._forkserver
    return {value for one in both for name in names if isinstance(value := getattr(one, name, None), int)}


class Left:
    """What is there now that was not there when this was made."""

    def __init__(self) -> None:
        self._before = self._now()

    def _now(self) -> dict[str, set[Any]]:
        gc.collect()
        threads = {f"{thread.name} {thread.ident}" for thread in threading.enumerate()}
        return {"threads": threads, "children": children(), "descriptors": descriptors()}

    def wait(self) -> dict[str, list[Any]]:
        """Return what is left once that is nothing but the connections of the S3 client, or patience is over."""
        deadline = time.monotonic() + PATIENCE
        while True:
            left = {kind: sorted(found - self._before[kind]) for kind, found in self._now().items()}
            sockets = [name for name in left["descriptors"] if "socket:" in name]
            if len(sockets) <= CONNECTIONS:
                left["descriptors"] = sorted(set(left["descriptors"]) - set(sockets))
            if not any(left.values()) or time.monotonic() > deadline:
                return left
            time.sleep(0.05)


def main() -> None:
    url, cache, workers, method = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    data = StreamingDataset(url, seed=4, cache=mdsx.Cache(cache, limit="60kB"))
    options: dict[str, Any] = {"num_workers": int(workers), "drop_last": False}
    if int(workers):
        options["multiprocessing_context"] = multiprocessing.get_context(method)
    loader = StreamingDataLoader(data, 40, **options)
    left, ids = Left(), list[int]()
    batches = iter(loader)
    while True:
        try:
            waiting = True
            tell(waiting=len(ids))
            batch = next(batches)
            waiting = False
            ids += batch["id"].tolist()
            tell(step=len(ids), children=sorted(children()))
            time.sleep(2.0 if len(ids) == LONG_STEP else 0.02)  # training
            del batch
        except StopIteration:
            break
        except BaseException as error:
            tell(raised=type(error).__name__, traceback=traceback.format_exc())
            if sys.stdin.readline() == "end\n":
                raise
        else:
            continue
        if waiting:
            tell(left=left.wait())
    tell(ids=ids)
    del batches, loader, data
    tell(left=left.wait())


if __name__ == "__main__":
    main()
