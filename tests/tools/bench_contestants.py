"""Contestants for the tests of the benchmarks, and all of mdsx's own in one process."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tools.bench.subjects import MODULES
from tools.processes import Call

_SLOW = ("idle", "s3", "cache")  # wait for seconds, or need a server


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
    found: dict[str, bool] = {}
    prepared: dict[str, str] = {}
    for module in MODULES:
        for subject in importlib.import_module(f"tools.bench.subjects.{module}").subjects(scale):
            for contestant in subject.contestants:
                if contestant.kind == "peer" or subject.name.startswith(_SLOW):
                    continue
                more: dict[str, Any] = {"scratch": tempfile.mkdtemp(dir=directory)}
                if contestant.prepare is not None:
                    key = repr(contestant.prepare)
                    if key not in prepared:
                        prepared[key] = tempfile.mkdtemp(dir=directory)
                        _run(contestant.prepare, {"data": prepared[key]})
                    more["data"] = prepared[key]
                figures = _run(contestant.call, more)
                found[f"{subject.name}: {contestant.name}"] = figures[subject.figure] >= 0
    print(json.dumps(found), flush=True)
    os._exit(0)


def _run(call: Call, more: dict[str, Any]) -> Any:
    module, _, name = call.function.partition(":")
    function = getattr(importlib.import_module(module), name)
    if "scratch" not in inspect.signature(function).parameters:
        more.pop("scratch", None)
    return function(**call.arguments, **more)
