"""Runs calls in fresh processes: each leads a session, of which no process outlives the call or its limit."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tools.bench.subject import Call
from tools.peers.environments import PeerEnvironment

_ROOT = Path(__file__).resolve().parent.parent.parent
_LAST_LINES = 3

Figures = dict[str, Any]


class CallFailed(Exception):
    """It raised, died, or took longer than its limit; the text says which."""


def python_of(environment: str | None) -> Path:
    """The Python of an environment, which must have been made."""
    return Path(sys.executable) if environment is None else PeerEnvironment(environment).python


def call(
    what: Call,
    more: Mapping[str, Any],
    *,
    scratch: Path,
    limit: float,
    python: Callable[[str | None], Path] = python_of,
) -> Figures:
    """What the function returned. Its temporary files go to `scratch`."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(_ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": str(scratch),
        "TOKENIZERS_PARALLELISM": "false",
    }
    arguments = json.dumps({**what.arguments, **more})
    with (scratch / "stdout").open("wb") as output, (scratch / "stderr").open("wb") as errors:
        process = subprocess.Popen(
            [str(python(what.environment)), "-m", "tools.bench.child", what.function, arguments],
            cwd=_ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            raise CallFailed(f"made no end in {limit:.0f} s") from None
        finally:
            end_session(process.pid)
            process.wait()
    return _result((scratch / "stdout").read_text(), (scratch / "stderr").read_text(errors="replace"), process)


def _result(output: str, errors: str, process: subprocess.Popen[bytes]) -> Figures:
    try:
        result = json.loads(output.splitlines()[-1])
    except (IndexError, ValueError):
        last = " / ".join(errors.strip().splitlines()[-_LAST_LINES:])
        raise CallFailed(f"died with status {process.returncode}: {last}"[:500]) from None
    if not isinstance(result, dict):
        raise CallFailed(f"returned {type(result).__name__}, no figures")
    if "error" in result:
        raise CallFailed(str(result["error"]))
    return result


def session_members(session: int) -> list[int]:
    """The living processes of a session."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError):
                state, _, _, its = Path(entry.path, "stat").read_text().rpartition(")")[2].split()[:4]
                if int(its) == session and state not in "ZX":
                    found.append(int(entry.name))
    return found


def end_session(session: int) -> None:
    """SIGKILL to every process of a session that was started here."""
    while members := session_members(session):
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
