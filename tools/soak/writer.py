"""A writer that is killed and resumed until its dataset is finished, then begins another, on disk or on S3."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

import mdsx
from tools.soak.plan import Data
from tools.soak.processes import GAVE_UP, Process, start
from tools.soak.samples import COLUMNS, columns_of

_AT_ONCE = 50
_PAUSE = 0.02  # seconds: so that writing takes long enough to be killed


def write(url: str, data: Data) -> None:
    """Write all of `data`, from where it was left."""
    columns = {name: COLUMNS[name] for name in data.columns}
    try:
        with mdsx.Writer(url, columns, shard_size=data.shard_size, compression=data.compression, resume=True) as out:
            ids = islice(data.ids, out.samples, None)
            while some := list(islice(ids, _AT_ONCE)):
                out.write_batch(columns_of(data.columns, some))
                time.sleep(_PAUSE)
    except mdsx.MdsxError as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        sys.exit(GAVE_UP)


def contents(root: Path) -> dict[str, bytes]:
    """The files of a dataset, except the writer's own."""
    files = (path for path in sorted(root.rglob("*")) if path.is_file() and "_mdsx" not in path.parts)
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


class WriterJob:
    """Writes `data` again and again, below `url`, which is `root` on this machine."""

    def __init__(
        self, name: str, data: Data, url: str, root: Path, expected: Mapping[str, bytes], environment: Mapping[str, str]
    ) -> None:
        self.name = name
        self.finished = self.kills = self.resumes = self.looks = 0
        self.failures: list[str] = []
        self._data, self._url, self._root = data, url, root
        self._expected = expected
        self._environment = environment
        self._process: Process | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def tick(self, output: Path) -> None:
        """Start it if it does not run; check what it finished."""
        process = self._process
        if process is not None and process.status is None:
            return
        if process is not None and process.status == 0:
            self._look()
            self.finished += 1
            shutil.rmtree(self._root / str(self.finished - 1), ignore_errors=True)
        elif process is not None and process.status != GAVE_UP:
            self.failures.append(f"writer {self.name} ended with {process.status}: {process.last_words()}")
        self._start(output)

    def kill(self, output: Path) -> None:
        """SIGKILL; then resume it."""
        if self._process is None or self._process.status is not None:
            return
        self._process.kill()
        self.kills += 1
        self._look()
        self._start(output)

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()

    def finish(self, output: Path, limit: float) -> None:
        """Let it finish its dataset, within `limit` seconds."""
        before, deadline = self.finished, time.monotonic() + limit
        while self.finished == before and not self.failures:
            if time.monotonic() > deadline:
                self.failures.append(f"writer {self.name} made no end in {limit:.0f} s")
            self.tick(output)
            time.sleep(0.1)
        self.end()

    def _start(self, output: Path) -> None:
        self.resumes += 1
        self._process = start(write, output, self._environment, f"{self._url}/{self.finished}", self._data)

    def _look(self) -> None:
        """If there is an index, all files must be as an undisturbed writer leaves them."""
        root = self._root / str(self.finished)
        done = self._process is not None and self._process.status == 0
        if done or (root / "index.json").exists():
            self.looks += 1
            if contents(root) != self._expected:
                self.failures.append(f"writer {self.name}: dataset {self.finished} is not as expected")
