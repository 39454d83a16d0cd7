"""A training job under torchrun that can be killed as a whole: torchrun, each rank, each worker."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

from tools.processes import ROOT
from tools.quickstart.run import Report, Run

_STALLED = 120.0  # seconds without a step
_LAST_WORDS = 15.0  # seconds to end in


class JobFailed(Exception):
    """The training ended with an error, or is stuck; the text has the end of the job's output."""


class Job:
    """`run` under torchrun. All processes hold the pipe of its standard output: when that ends, all have ended."""

    def __init__(self, run: Run, environment: Mapping[str, str]) -> None:
        self.run = run
        self._log = Path(run.logs) / f"run{run.number}.log"
        self._lines: queue.Queue[str | None] = queue.Queue()
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
        program = ["-m", "tools.quickstart.train", run.to_json()]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*torchrun, "--nproc-per-node", str(run.ranks), *program],
                cwd=ROOT,
                env={
                    **os.environ,
                    **environment,
                    "OMP_NUM_THREADS": "1",
                    "TMPDIR": run.logs,
                },
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # a process group of its own, to be killed as one
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def steps(self) -> Iterator[Report]:
        """Yield the reports of rank 0 until the job ends."""
        while True:
            try:
                line = self._lines.get(timeout=_STALLED)
            except queue.Empty:
                raise JobFailed(f"no step in {_STALLED:.0f} s\n{self._tail()}") from None
            if line is None:
                break
            yield Report(**json.loads(line))
        if self._process.wait(_LAST_WORDS):
            raise JobFailed(f"torchrun ended with status {self._process.returncode}\n{self._tail()}")

    def kill(self) -> None:
        """SIGKILL to every process of the job, at once; return when all have ended."""
        self._signal_groups(signal.SIGKILL)
        self._reader.join(_LAST_WORDS)
        self._process.wait(_LAST_WORDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End what still runs of the job: by torchrun, and if that takes too long, by SIGKILL."""
        if self._reader.is_alive():
            if self._process.poll() is None:
                self._process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_LAST_WORDS)
            self.kill()

    def _signal_groups(self, number: signal.Signals) -> None:
        groups = [self._process.pid] if self._process.poll() is None else []
        for rank in range(self.run.ranks):
            with contextlib.suppress(FileNotFoundError, ValueError):  # a rank that had not started yet
                groups.append(int(self.run.group_file(rank).read_text()))
        for group in groups:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, number)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._lines.put(line)
        self._lines.put(None)

    def _tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-30:])
