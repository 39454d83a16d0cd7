"""What is done in a loader's own environment, in a fresh process for each: read an epoch, or write a dataset."""

from __future__ import annotations

import importlib
import os
import signal
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

from tools.bench.processes import session_members
from tools.conformance.adaptors import adaptor, use_temporary_files_in
from tools.conformance.host import torchrun_environment
from tools.conformance.task import Consumed, Task
from tools.faults.cases import DATA
from tools.peers.shared_memory import have_own_shared_memory

_KILL_AT = 5  # batches
_TRACKER = b"resource_tracker"


def read(loader: str, task: dict[str, Any], kill_worker: bool, scratch: str) -> dict[str, str]:
    """Epoch 0, into the task's log, as it comes. Returns the error with which it ended, if any."""
    chosen, what = adaptor(loader), Task.from_json(task)
    if chosen.shares_memory:
        with suppress(OSError):  # what it leaves there goes with this process, where the machine allows that
            have_own_shared_memory()
    use_temporary_files_in(Path(scratch, "tmp"))
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])
    os.environ.update(torchrun_environment(0, 1, port, nodes=False))
    chosen.warm()
    with what.log_file(0).open("a") as log:
        try:
            for step, ids in enumerate(chosen.open(what, []).batches(0), 1):
                log.write(Consumed(0, step, tuple(ids)).to_line())
                log.flush()
                if kill_worker and step == _KILL_AT:
                    _kill_a_worker()
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"}
    return {"error": ""}


def write(loader: str, directory: str, shard: int, deed: str, at: int, scratch: str) -> dict[str, str]:
    """A dataset by the loader's own writer; `deed` is done when sample `at` is made: "raise", "kill" or nothing."""
    chosen = adaptor(loader)
    use_temporary_files_in(Path(scratch, "tmp"))
    chosen.warm()
    module: Any = importlib.import_module(f"tools.conformance.adaptors.{loader}")
    text_of = module.text_of

    def text_or_deed(number: int) -> str:
        if deed and number == at:
            if deed == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise ValueError("this sample cannot be made")
        return str(text_of(number))

    module.text_of = text_or_deed
    try:
        chosen.write(Path(directory), DATA.ids, shard)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"error": ""}


def prepare(loader: str, directory: str) -> dict[str, str]:
    """The dataset that is read."""
    chosen = adaptor(loader)
    chosen.warm()
    chosen.prepare(Path(directory), DATA)
    return {}


def _kill_a_worker() -> None:
    for pid in sorted(session_members(os.getsid(0))):
        if pid != os.getpid() and _TRACKER not in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
            return
    raise AssertionError("it has no worker")
