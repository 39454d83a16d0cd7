"""A link of known latency and bandwidth in front of a local server: see link.py, which does it, in its own process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import TracebackType

from tools.bench.link import Counts

_PROXY = Path(__file__).with_name("link.py")


class Throttle:
    """The proxy to `target` ("host:port"), on a free port of 127.0.0.1, while the context lasts.

    `rtt` in seconds; `rate` in bytes a second, None for as fast as it goes.
    """

    def __init__(self, target: str, *, rtt: float = 0.0, rate: float | None = None) -> None:
        self._target = target.removeprefix("http://")
        self._rtt = rtt
        self._rate = rate
        self._process: subprocess.Popen[str] | None = None
        self._port = 0

    def __enter__(self) -> Throttle:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def endpoint(self) -> str:
        return f"http://{self.address}"

    def start(self) -> None:
        rate = [] if self._rate is None else ["--rate", str(self._rate)]
        command = [sys.executable, "-I", str(_PROXY), self._target, "--rtt", str(self._rtt * 1e3), *rate]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._port = json.loads(self._line())["port"]

    def stop(self) -> None:
        """End the proxy and its connections; does nothing where it has ended."""
        process, self._process = self._process, None
        if process is not None:
            process.communicate()  # the end of its standard input is its own

    def counts(self) -> Counts:
        """What went through it since it started."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return Counts(**json.loads(self._line()))

    def _line(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the proxy ended")
        return line
