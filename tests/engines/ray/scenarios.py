"""Jobs with a real Ray of several worker processes, each in a process of its own: `start(python, name, folder, ...)`.

The functions with the names of the scenarios run in Ray's environment. What they return is printed as JSON.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import mdsx
from mdsx.engines.ray import Datasink, read

ROOT = Path(__file__).parents[3]
ROWS, BLOCKS = 1000, 40
COLUMNS = {"id": "int64", "text": "str"}
SHARD_SIZE = 2048  # bytes of about four blocks
MODULE = "tests.engines.ray.scenarios"
DEADLINE = 240.0


def start(python: Path, name: str, *arguments: str | Path, tasks: str = "") -> subprocess.Popen[str]:
    """Start a scenario with the Python of Ray's environment. `tasks`: what goes wrong in a task, once."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0", "TASKS": tasks}
    command = [str(python), "-m", MODULE, name, *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )


def result(process: subprocess.Popen[str]) -> Any:
    """Return what a scenario returned, or raise what it printed last."""
    try:
        out, errors = process.communicate(timeout=DEADLINE + 30)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    if process.returncode:
        raise RuntimeError(errors[-3000:])
    return json.loads(out.splitlines()[-1])


def wait_for(path: Path) -> None:
    until = time.monotonic() + DEADLINE
    while not path.exists():
        if time.monotonic() > until:
            raise TimeoutError(str(path))
        time.sleep(0.01)


def first(path: Path) -> bool:
    """Return whether this is the first call for `path`, in any process."""
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def rows(blocks: int = BLOCKS) -> Any:
    import ray

    def with_text(batch: dict[str, Any]) -> dict[str, Any]:
        return {"id": batch["id"], "text": [f"sample {number}" for number in batch["id"]]}

    return ray.data.range(ROWS, override_num_blocks=blocks).map_batches(with_text)


# --- what goes wrong


class Failing(Datasink):
    """A sink whose task number 3 fails once, in the way that the variable TASKS says."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "out", COLUMNS, shard_size=SHARD_SIZE)
        self._folder, self._how = folder, os.environ["TASKS"]

    def write(self, blocks: Iterable[Any], ctx: Any) -> Any:
        if ctx.task_idx != 3 or not self._how or not first(self._folder / "failed"):
            return super().write(blocks, ctx)
        if self._how == "straggles":
            self._start_attempt()
            os.kill(os.getpid(), signal.SIGKILL)
        if self._how == "hangs":
            self._start_attempt()
            time.sleep(DEADLINE)
        done = super().write(blocks if self._how == "result" else self._failing(blocks), ctx)
        os.kill(os.getpid(), signal.SIGKILL)
        return done

    def _failing(self, blocks: Iterable[Any]) -> Iterator[Any]:
        for number, block in enumerate(blocks):
            if number == 2:
                if self._how == "raises":
                    raise RuntimeError("as asked")
                os.kill(os.getpid(), signal.SIGKILL)
            yield block

    def _start_attempt(self) -> None:
        """Start a process that continues an attempt whatever happens to the worker and to the driver."""
        job = self._folder / "job.pickle"
        job.write_bytes(pickle.dumps(self._job))
        subprocess.Popen([sys.executable, "-m", MODULE, "attempt", str(self._folder)], start_new_session=True)
        wait_for(self._folder / "attempt-writes")


def attempt(folder: Path) -> str:
    """Write task 3's part until the file `end` is there."""
    job = pickle.loads((folder / "job.pickle").read_bytes())

    def batches() -> Iterator[dict[str, Any]]:
        for number in range(100):
            yield {"id": [number], "text": ["late"]}
            if number == 50:
                (folder / "attempt-writes").touch()
                wait_for(folder / "end")

    done: str = job.write(3, batches()).folder
    (folder / "attempt-ended").write_text(done)
    return done


# --- scenarios


def fails(folder: Path) -> dict[str, Any]:
    """Write with a task that fails once."""
    sink = Failing(folder)
    rows().write_datasink(sink, ray_remote_args={"retry_exceptions": True, "max_retries": 3})
    return {"samples": sink.written.samples, "fingerprint": sink.written.fingerprint}


def fails_for_good(folder: Path) -> str:
    """Write with a task that raises and is not repeated. Return the error."""
    try:
        rows().write_datasink(Failing(folder))
    except RuntimeError as error:
        return type(error).__name__
    return "nothing"


def together(folder: Path) -> str:
    """Write while another driver writes to the same place."""

    class Waiting(Failing):
        def on_write_start(self, schema: Any = None) -> None:
            super().on_write_start(schema)
            (folder / f"began-{os.getpid()}").touch()

        def on_write_complete(self, write_result: Any) -> None:
            until = time.monotonic() + DEADLINE
            while len(list(folder.glob("began-*"))) < 2 and time.monotonic() < until:
                time.sleep(0.01)
            super().on_write_complete(write_result)

    try:
        rows().write_datasink(Waiting(folder))
    except mdsx.ChangedError:
        return "late"
    return "written"


def shapes(folder: Path) -> dict[str, Any]:
    """Write data of several kinds, and read them."""
    import pandas as pd
    import ray

    found: dict[str, Any] = {}

    def write(name: str, dataset: Any, columns: Any = None, **options: Any) -> None:
        sink = Datasink(folder / name, columns, **options)
        try:
            dataset.write_datasink(sink)
        except mdsx.UsageError as error:
            found[name] = str(error)
        else:
            found[name] = dict(sink.written.columns) if columns is None else sink.written.shards

    def images(batch: dict[str, Any]) -> dict[str, Any]:
        pixels = np.stack([np.full((4, 5, 3), number % 256, np.uint8) for number in batch["id"]])
        return {"image": pixels, "mask": pixels[..., 0] > 99, "name": [f"{number}" for number in batch["id"]]}

    def ragged(batch: dict[str, Any]) -> dict[str, Any]:
        return {"values": [np.full((int(number) % 3, 2), number, np.float32) for number in batch["id"]]}

    def frame(batch: Any) -> Any:
        return pd.DataFrame({"id": batch["id"], "text": [None if number % 2 else "even" for number in batch["id"]]})

    write("images", ray.data.range(300).map_batches(images))
    write("ragged", ray.data.range(9).map_batches(ragged, batch_size=9))
    write("frames", ray.data.range(10).map_batches(frame, batch_format="pandas"))
    write("nulls", ray.data.range(10).map_batches(lambda batch: {"none": [None] * len(batch["id"])}))
    write("objects", ray.data.range(10).map_batches(lambda batch: {"object": [object() for _ in batch["id"]]}))
    write("empty", ray.data.range(10).filter(lambda row: False), {"id": "int64"})
    write("nothing", ray.data.from_items([]))
    write("other", ray.data.range(10), {"id": "int64", "more": "int8"})
    write("small blocks", rows(500), COLUMNS, shard_size="4KiB")
    for name in ("same", "again"):
        write(name, rows(), COLUMNS, shard_size="4KiB")
    write("same", rows(), COLUMNS)
    before = ray.data.DataContext.get_current().max_errored_blocks
    ray.data.DataContext.get_current().max_errored_blocks = 3
    write("tolerant", rows(), COLUMNS)
    ray.data.DataContext.get_current().max_errored_blocks = before

    some = read(folder / "same", columns={"number": "id"}, override_num_blocks=3)
    found["read"] = [row["number"] for row in some.take_all()]
    found["count"] = some.count()
    chosen = read(mdsx.Dataset(folder / "images").select(10, 20), columns=["image"])
    found["read images"] = [row["image"][0][0][0] for row in chosen.take_all()]
    rows().write_parquet(str(folder / "parquet"))
    mdsx.index_parquet(folder / "parquet")
    found["read parquet"] = sorted(row["id"] for row in read(folder / "parquet", columns=["id"]).take_all())
    return found


def main(name: str, *arguments: str) -> None:
    if name == "attempt":
        attempt(Path(arguments[0]))
        return
    import ray

    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    ray.init(
        "local",
        num_cpus=3,
        include_dashboard=False,
        object_store_memory=100 * 2**20,
        log_to_driver=False,
        _temp_dir=folder,
    )
    try:
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.execution_options.preserve_order = True
        print(json.dumps(globals()[name](Path(arguments[0]), *arguments[1:]), default=int))
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
