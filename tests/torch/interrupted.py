"""A training that is interrupted. It prints what it does as JSON lines, and continues on request.

Run as: interrupted.py URL CACHE WORKERS METHOD. It prints "waiting" before each `next()`, and "step" in the training
step after it. On an exception it prints the type and the traceback, then reads a line: `end` lets the exception end the
process, `go` continues the same iteration. If `next()` raised the exception, it first prints which threads, children
and descriptors remain.
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
import warnings
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset

if TYPE_CHECKING:
    Pipe = Connection[Any, Any]

PATIENCE = 30.0  # seconds for started work to end
LONG_STEP = 120  # samples after which a step takes longer
CONNECTIONS = 64  # kept by the process's S3 client for the next dataset


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
    """Return what exists now and did not exist when this object was made."""

    def __init__(self) -> None:
        self._before = self._now()

    def _now(self) -> dict[str, set[Any]]:
        gc.collect()
        threads = {f"{thread.name} {thread.ident}" for thread in threading.enumerate()}
        return {"threads": threads, "children": children(), "descriptors": descriptors()}

    def wait(self) -> dict[str, list[Any]]:
        """Return what remains, as soon as only the S3 client's connections remain or patience runs out."""
        deadline = time.monotonic() + PATIENCE
        while True:
            left = {kind: sorted(found - self._before[kind]) for kind, found in self._now().items()}
            sockets = [name for name in left["descriptors"] if "socket:" in name]
            if len(sockets) <= CONNECTIONS:
                left["descriptors"] = sorted(set(left["descriptors"]) - set(sockets))
            if not any(left.values()) or time.monotonic() > deadline:
                return left
            time.sleep(0.05)


def run_piped(stdin: Pipe, stdout: Pipe, stderr: Pipe, *arguments: str) -> None:
    """Do the same in a process of the fork server, in a session of its own."""
    os.setsid()
    for number, pipe in enumerate((stdin, stdout, stderr)):
        os.dup2(pipe.fileno(), number)
        pipe.close()
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
    warnings.simplefilter("ignore")
    main(*arguments)


def main(url: str, cache: str, workers: str, method: str) -> None:
    gc.freeze()  # what was imported, so that `Left` takes no time
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
    main(*sys.argv[1:])
