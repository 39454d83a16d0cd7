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
    """Writes `data` again and again, below `url`, which is `root` on this machine; what it prints goes to `output`."""

    def __init__(
        self,
        name: str,
        data: Data,
        url: str,
        root: Path,
        expected: Mapping[str, bytes],
        output: Path,
        environment: Mapping[str, str],
    ) -> None:
        self.name = name
        self.finished = self.kills = 0
        self.failures: list[str] = []
        self._data, self._url, self._root = data, url, root
        self._expected = expected
        self._output, self._environment = output, environment
        self._process: Process | None = None

    def tick(self) -> None:
        """Start it if it does not run; check what it finished."""
        process = self._process
        if process is not None:
            if process.status is None:
                return
            if process.status == 0:
                self._look()
                self.finished += 1
                shutil.rmtree(self._root / str(self.finished - 1), ignore_errors=True)
            elif process.status != GAVE_UP:
                self.failures.append(f"writer {self.name} ended with {process.status}: {process.last_words()}")
        self._start()

    def kill(self) -> None:
        """SIGKILL; then resume it."""
        if self._process is not None and self._process.status is None:
            self._process.kill()
            self.kills += 1
            self._look()
            self._start()

    def finish(self, limit: float) -> None:
        """Let it finish its dataset, within `limit` seconds."""
        before, deadline = self.finished, time.monotonic() + limit
        while self.finished == before and not self.failures:
            if time.monotonic() > deadline:
                self.failures.append(f"writer {self.name} made no end in {limit:.0f} s")
            self.tick()
            time.sleep(0.1)
        if self._process is not None:
            self._process.kill()

    def _start(self) -> None:
        url = f"{self._url}/{self.finished}"
        self._process = start(write, self._output, self._environment, url, self._data)

    def _look(self) -> None:
        """If there is an index, all files must be as an undisturbed writer leaves them."""
        root = self._root / str(self.finished)
        done = self._process is not None and self._process.status == 0
        if (done or (root / "index.json").exists()) and contents(root) != self._expected:
            self.failures.append(f"writer {self.name}: dataset {self.finished} is not as expected")
