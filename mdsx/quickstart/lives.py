"""One life of the training: a process, from its start to its end or until it is killed."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from mdsx.errors import MdsxError

_SEED = 7
_OUTPUT = 4000  # characters of it in an error


class Step(NamedTuple):
    """What the training prints after each step."""

    step: int
    loss: float
    samples: tuple[int, ...]


@dataclass(frozen=True)
class Life:
    """A training of the dataset `url`, whose checkpoint is in `folder`."""

    url: str
    folder: Path
    batch_size: int
    workers: int

    @property
    def torch(self) -> bool:
        """Return whether it trains with PyTorch: if that is installed."""
        return importlib.util.find_spec("torch") is not None

    def steps(self) -> Generator[Step, None, None]:
        """Run the training and yield each step. Closing the generator kills the process. Raise MdsxError if it
        fails."""
        given = {**vars(self), "folder": str(self.folder), "seed": _SEED, "torch": self.torch}
        command = [sys.executable, "-m", "mdsx.quickstart.program", json.dumps(given)]
        alone = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")  # set if this runs inside a job
        environment = {name: value for name, value in os.environ.items() if name not in alone}
        with (self.folder / "stderr").open("w+b") as errors:
            pipe = subprocess.PIPE
            process = subprocess.Popen(command, 0, stdin=pipe, stdout=pipe, stderr=errors, env=environment)
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    found = json.loads(line)
                    yield Step(found["step"], found["loss"], tuple(found["samples"]))
                    with suppress(BrokenPipeError):  # it has ended
                        process.stdin.write(b"\n")
                if process.wait():
                    errors.seek(0)
                    output = errors.read().decode(errors="replace")[-_OUTPUT:]
                    raise MdsxError(f"the training ended with status {process.returncode}:\n{output}")
            finally:
                process.kill()
                process.wait()
                process.stdin.close()
                process.stdout.close()
