"""Starts a loader's host (host.py) in the loader's environment, and talks with it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_ROOT = Path(__file__).resolve().parent.parent.parent
_LAST_WORDS = 20.0  # seconds to end in
_STARTED = 180.0  # seconds in which a loader is imported


class HostFailed(Exception):
    """The loader could not be imported, or its host died."""


_hosts: set[Host] = set()


def stop_all() -> None:
    """End every host and all that it runs: the matrix was interrupted."""
    for host in list(_hosts):
        host.stop()


class Host:
    """The process that runs one loader's legs: see host.py."""

    def __init__(self, spec: str, python: Path, log: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(_ROOT), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [str(python), "-m", "tools.conformance.host", spec],
                cwd=_ROOT,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        self._log = log
        _hosts.add(self)
        self.versions: Mapping[str, str] = self._answer()["versions"]

    def request(self, limit: float, **values: Any) -> dict[str, Any]:
        """What the host answers; it ends what takes longer than `limit`, and has some seconds more for that."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({**values, "limit": limit}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise HostFailed(self._last_line()) from None
        return self._answer(limit + _STARTED)

    def stop(self) -> None:
        """It ends with its standard input, and everything that it runs."""
        with contextlib.suppress(BrokenPipeError):
            assert self._process.stdin is not None
            self._process.stdin.close()

    def close(self) -> None:
        """The same; returns when it has ended."""
        _hosts.discard(self)
        self.stop()
        try:
            self._process.wait(_LAST_WORDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _answer(self, limit: float = _STARTED) -> dict[str, Any]:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], limit)[0]:  # it answers with one line, when it has one
            raise HostFailed(f"the host gave no answer in {limit:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            raise HostFailed(self._last_line())
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise HostFailed(answer["error"])
        return answer

    def _last_line(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return lines[-1] if lines else "the host ended without a word"
