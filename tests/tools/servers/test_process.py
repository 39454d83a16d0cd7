"""The base of the servers that are programs."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tools.servers.process import Server

_IGNORES = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
_PROGRAM = f"{_IGNORES}; print('port 1', flush=True); time.sleep(60)"


class Stubborn(Server):
    listening = r"port (\d+)"
    ends_by = signal.SIGTERM

    def command(self, port: int) -> Sequence[str | Path]:
        return [sys.executable, "-c", _PROGRAM]


def test_a_server_that_does_not_end_is_ended_by_force(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.servers.process._END", 0.1)
    with Stubborn() as server:
        process = Path(f"/proc/{server.pid}")
        assert process.exists()
    assert not process.exists()
