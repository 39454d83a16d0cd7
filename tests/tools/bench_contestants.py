"""Contestants for the tests of the benchmarks, and all of mdsx's own in one process."""

from __future__ import annotations

import json
import os
import pkgutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tools.bench.subjects import all_subjects
from tools.processes import Call

_SLOW = (
    "idle",
    "s3",
    "mds-",
    "tar-",
    "convert-",
    "spark",
    "ranks",
    "gpu",
    "cache",
)  # they wait, or need what others install


def talk(value: int) -> dict[str, Any]:
    print("hello")
    subprocess.run(["echo", "hello from a child"], check=True)
    return {"value": value, "pid": os.getpid(), "temporary": tempfile.gettempdir()}


def fail() -> None:
    raise ValueError("it broke")


def die() -> None:
    print("last words", file=sys.stderr)
    sys.stderr.flush()
    os._exit(3)


def hang(scratch: str) -> None:
    _fork_sleeper()
    Path(scratch, "session").write_text(str(os.getsid(0)))
    time.sleep(1000)


def leave_child() -> dict[str, Any]:
    _fork_sleeper()
    return {"session": os.getsid(0)}


def _fork_sleeper() -> None:
    if os.fork() == 0:
        time.sleep(1000)


def run_all(directory: str, scale: float) -> None:
    """Every measurement of mdsx and of the machine, of local subjects; prints whether each had its figure."""
    tempfile.tempdir = directory
    found: dict[str, bool] = {}
    prepared: dict[str, str] = {}
    for subject in all_subjects(scale):
        for contestant in subject.contestants:
            if contestant.kind == "peer" or subject.name.startswith(_SLOW):
                continue
            more: dict[str, Any] = {}
            if contestant.prepare is not None:
                key = repr(contestant.prepare)
                if key not in prepared:
                    prepared[key] = more["data"] = tempfile.mkdtemp()
                    _run(contestant.prepare, more)
                more["data"] = prepared[key]
            figures = _run(contestant.call, more)
            shown = figures.keys() & {subject.figure, *subject.more}
            found[f"{subject.name}: {contestant.name}"] = bool(shown) and min(map(figures.get, shown)) >= 0
    print(json.dumps(found), flush=True)
    os._exit(0)


def _run(call: Call, more: dict[str, Any]) -> Any:
    return pkgutil.resolve_name(call.function)(**call.arguments, **more)
