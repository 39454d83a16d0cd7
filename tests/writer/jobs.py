"""A job that writes a dataset and goes on where it was left, in a process of its own that can be killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Mapping
from itertools import islice
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from mdsx.writer import Writer

COLUMNS = {"id": "int64", "text": "str", "more": "json?"}
SHARD_SIZE = 1000

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload([__name__, "boto3"])

Hook = Callable[[str, str], None]
"""Called before each change of the disk with what is about to happen, and to which file."""


def sample(number: int) -> dict[str, Any]:
    more = None if number % 3 else {"n": number, "ä": [number] * (number % 4)}
    return {"id": number, "text": "é" * (number * 7 % 40), "more": more}


def write(url: str | Path, count: int, **options: Any) -> int:
    """Writes samples 0 to count - 1, as far as they are not there. Returns how many were."""
    with Writer(url, COLUMNS, **{"shard_size": SHARD_SIZE, "resume": True, **options}) as out:
        before = out.samples
        for one in islice(map(sample, range(count)), before, None):
            out.write(one)
    return before


def start(
    url: str | Path,
    count: int,
    *,
    hook: Hook | None = None,
    environment: Mapping[str, str] | None = None,
    **options: Any,
) -> ForkServerProcess:
    """Starts `write` in a process; `hook`, which must be a function of a module or a partial of one, may kill it."""
    process = _CONTEXT.Process(target=_run, args=(str(url), count, hook, dict(environment or {}), options))
    process.start()
    return process


def _run(url: str, count: int, hook: Hook | None, environment: Mapping[str, str], options: dict[str, Any]) -> None:
    os.environ.update(environment)
    if hook is not None:
        for name in ("open", "write", "fsync", "replace", "unlink", "rmdir", "mkdir"):
            _watch(name, hook)
    write(url, count, **options)


def _watch(name: str, hook: Hook) -> None:
    original = getattr(os, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        hook(name, str(args[-1] if name == "replace" else args[0]))
        return original(*args, **kwargs)

    setattr(os, name, call)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class DieAt:
    """Dies before the n-th change of the disk."""

    def __init__(self, changes: int) -> None:
        self.left = changes

    def __call__(self, what: str, file: str) -> None:
        self.left -= 1
        if self.left < 0:
            die()


class DieBefore:
    """Dies before the file of that name appears."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, what: str, file: str) -> None:
        if what == "replace" and os.path.basename(file) == self.name:
            die()


class DieLast:
    """Dies before the file of that name appears, but leaves those of any other name a while to appear first."""

    def __init__(self, name: str, others: str) -> None:
        self.name = name
        self.others = others

    def __call__(self, what: str, file: str) -> None:
        if what == "replace" and os.path.basename(file) == self.name:
            end = time.monotonic() + 0.5
            while time.monotonic() < end and not os.path.exists(os.path.join(os.path.dirname(file), self.others)):
                time.sleep(0.005)
            die()


def killed(process: ForkServerProcess) -> bool:
    """Waits for the end of a process: True if it was killed, False if it finished."""
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode != 0


def kill_after(process: ForkServerProcess, root: Path, *, shards: int) -> None:
    """Kills a process when it has stored so many more shards."""
    before = stored(root)
    while process.is_alive() and stored(root) < before + shards:
        time.sleep(0.0002)
    process.kill()


def stored(root: Path) -> int:
    return sum(1 for _ in root.glob("shard.*"))


Contents = dict[str, bytes | None]
"""Files with their bytes, and folders."""


def contents(root: Path) -> Contents:
    """Every file below `root`, hidden ones too, and every folder (None)."""
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None for path in sorted(root.rglob("*"))
    }
