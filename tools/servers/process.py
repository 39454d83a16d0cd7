"""The base of the local servers that are programs: each runs on a free port of 127.0.0.1 and ends with its parent."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self
from urllib.request import urlopen

from tools.processes import end_with_parent

_START, _END = 30.0, 10.0  # seconds


class Server:
    """A server process, which runs while the context lasts. A class of it defines `command` and `listening`."""

    listening: str
    """A regular expression for what the program prints when it can be used, with the port as its group."""
    ends_by = signal.SIGKILL
    """What `stop` sends."""
    secret = ""
    """What no message may show."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._port = 0
        self._environment = environment or {}
        self._process: subprocess.Popen[bytes] | None = None

    def command(self, port: int) -> Sequence[str | Path]:
        """Return the command that starts it on this port; 0 is any free one."""
        raise NotImplementedError

    def env(self) -> dict[str, str]:
        """Return the environment in which mdsx uses only this server."""
        raise NotImplementedError

    def make_bucket(self, name: str) -> str:
        """Create a bucket and return its URL."""
        raise NotImplementedError

    def whole(self, path: str) -> tuple[dict[str, str], bytes]:
        """Return the headers and bytes of the object that a request's path and query name."""
        with urlopen(self.endpoint + path) as answer:
            return {name.lower(): value for name, value in answer.headers.items()}, answer.read()

    def refusal(self, status: int, name: str) -> bytes:
        """Return the body of an answer with this status and this name of an error."""
        return f'<?xml version="1.0"?><Error><Code>{name}</Code><Message>injected</Message></Error>'.encode()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start, at the same port if it ran before, and wait until it answers."""
        command = self.command(self._port)
        with tempfile.NamedTemporaryFile() as log:
            self._process = subprocess.Popen(
                command,
                env={**os.environ, **self._environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C goes to the parent, which then stops it
                preexec_fn=end_with_parent,
            )
            deadline = time.monotonic() + _START
            while not (found := re.search(self.listening, said := Path(log.name).read_text())):
                if self._process.poll() is not None or time.monotonic() > deadline:
                    self.stop()
                    raise RuntimeError(f"{Path(command[0]).name} did not start: {said[-2000:]}")
                time.sleep(0.02)
            self._port = int(found[1])

    def stop(self) -> None:
        """End the server, if it runs: by force if it does not end by itself."""
        if self._process is not None:
            self._process.send_signal(self.ends_by)
            try:
                self._process.wait(_END)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


def program(name: str, package: str) -> str:
    """Return the path of a program that a Python package installs, or that is on PATH."""
    found = shutil.which(name, path=f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        raise RuntimeError(f"{name} is not installed: pip install {package}")
    return found
