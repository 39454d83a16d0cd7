"""What a loader does in a fresh process of its environment: read an epoch, or write a dataset."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import msgspec

from tools.conformance.matrix import EVEN
from tools.conformance.task import Consumed, Task, sample_of
from tools.peers import Layout, ready, use_temporary_files_in
from tools.processes import free_port, members, torchrun_environment

_KILL_AT = 5  # batches
_FAIL_AT = EVEN.samples * 5 // 8  # the sample at which a writer fails
_TRACKER = b"resource_tracker"


def read(loader: str, task: dict[str, Any], kill_worker: bool, scratch: str) -> dict[str, str]:
    """Read epoch 0 and log each batch. Return the error that ended it, if any."""
    use_temporary_files_in(Path(scratch, "tmp"))
    os.environ.update(torchrun_environment(0, 1, free_port()))
    chosen, what = ready(loader), msgspec.convert(task, Task)
    with what.log_file(0).open("a", buffering=1) as log:
        try:
            for step, ids in enumerate(chosen.open(what, []).batches(0), 1):
                log.write(Consumed(0, step, tuple(ids)).to_line())
                if kill_worker and step == _KILL_AT:
                    _kill_a_worker()
        except Exception as error:
            return {"raised": f"{type(error).__name__}: {error}"}
    return {"raised": ""}


def write(loader: str, directory: str, shard: int, deed: str, scratch: str) -> dict[str, str]:
    """Write the dataset as an ordinary job does. One sample raises an error or kills the process, if `deed` says so."""

    def make(number: int) -> dict[str, Any]:
        if number == _FAIL_AT and deed == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if number == _FAIL_AT and deed == "raise":
            raise ValueError("this sample cannot be made")
        return sample_of(number)

    use_temporary_files_in(Path(scratch, "tmp"))
    try:
        ready(loader).write(Path(directory), "text", EVEN.ids, make, Layout(shard=shard))
    except Exception as error:
        return {"raised": f"{type(error).__name__}: {error}"}
    return {"raised": ""}


def prepare(loader: str, directory: str) -> dict[str, str]:
    """Write the dataset that is read."""
    ready(loader).prepare(Path(directory), EVEN)
    return {}


def _kill_a_worker() -> None:
    for pid in sorted(members(session=os.getsid(0))):
        if pid != os.getpid() and _TRACKER not in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
            return
    raise AssertionError("it has no worker")
