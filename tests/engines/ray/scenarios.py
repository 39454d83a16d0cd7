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
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import mdsx
from mdsx.engines.ray import Datasink, read
from mdsx.writer import write_part

ROOT = Path(__file__).parents[3]
ROWS, BLOCKS = 1000, 40
COLUMNS = {"id": "int64", "text": "str"}
SHARD_SIZE = 2048  # bytes of about four blocks
MODULE = "tests.engines.ray.scenarios"
DEADLINE = 240.0


def start(python: Path | str, name: str, folder: Path, *, tasks: str = "", address: str = "") -> subprocess.Popen[str]:
    """Start a scenario with the Python of Ray's environment.

    `tasks`: what goes wrong in a task, once; `address`: that of a cluster, by default one for the scenario alone."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0", "TASKS": tasks}
    environment["RAY_ADDRESS"] = address
    command = [str(python), "-m", MODULE, name, str(folder)]
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
        if self._how in ("straggles", "hangs"):
            self._pass_on()
        if self._how == "straggles":
            os.kill(os.getpid(), signal.SIGKILL)
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

    def _pass_on(self) -> None:
        """Let `LateAttempt` write in place of this task. "hangs": until the driver is killed."""
        (self._folder / "job.new").write_bytes(pickle.dumps(self._job))
        (self._folder / "job.new").rename(self._folder / "job")
        wait_for(self._folder / "attempt-writes")
        if self._how == "hangs":
            time.sleep(DEADLINE)


class LateAttempt:
    """An attempt at task 3 that Ray takes for lost, and that still writes: in this process, which Ray cannot end."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._end = folder, threading.Event()
        self._pool = ThreadPoolExecutor(1)
        self._done = self._pool.submit(self._write)

    def _write(self) -> str:
        wait_for(self._folder / "job")
        job = pickle.loads((self._folder / "job").read_bytes())
        folder: str = write_part(job, 3, self._batches()).folder
        return folder

    def _batches(self) -> Iterator[dict[str, Any]]:
        for number in range(200):
            yield {"id": [number], "text": ["late"]}
            if number == 150:  # shards are stored already
                (self._folder / "attempt-writes").touch()
                self._end.wait()

    def end(self) -> str:
        """Let it write the rest. Return its folder."""
        assert not self._done.done()
        self._end.set()
        return self._done.result()


class OnOtherNodes(Datasink):
    """A sink whose tasks on other nodes than the driver's wait. TASKS says which of them:

    - "first": the first one, after some blocks, until its node is lost. It leaves the file `writes`.
    - "none": none of them, but all tasks on the driver's node, until there is `continue`. Others leave `done-<task>`.
    """

    def __init__(self, folder: Path) -> None:
        import ray

        super().__init__(folder / "out", COLUMNS, shard_size=SHARD_SIZE)
        self._folder, self._how = folder, os.environ["TASKS"]
        self._here = ray.get_runtime_context().get_node_id()

    def write(self, blocks: Iterable[Any], ctx: Any) -> Any:
        import ray

        here = ray.get_runtime_context().get_node_id() == self._here
        if self._how == "none" and here:
            wait_for(self._folder / "continue")
        if self._how == "first" and not here and first(self._folder / "waits"):
            return super().write(self._waiting(blocks), ctx)
        done = super().write(blocks, ctx)
        if self._how == "none" and not here:
            (self._folder / f"done-{ctx.task_idx}").touch()
        return done

    def _waiting(self, blocks: Iterable[Any]) -> Iterator[Any]:
        for number, block in enumerate(blocks):
            if number == 2:
                (self._folder / "writes").touch()
                time.sleep(DEADLINE)
            yield block


# --- scenarios


def fails(folder: Path) -> dict[str, Any]:
    """Write with a task that fails once."""
    sink = Failing(folder)
    rows().write_datasink(sink, ray_remote_args={"retry_exceptions": True, "max_retries": 3})
    return {"samples": sink.written.samples, "fingerprint": sink.written.fingerprint}


def on_nodes(folder: Path) -> dict[str, Any]:
    """Write on a cluster of several nodes."""
    sink = OnOtherNodes(folder)
    rows().write_datasink(sink)
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
        try:
            sink = Datasink(folder / name, columns, **options)
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


def reads(folder: Path) -> dict[str, list[int]]:
    """Read the column `id` of each dataset in `folder`, and of selections of one, with several numbers of tasks."""

    def ids(source: Any, **options: Any) -> list[int]:
        return [int(row["id"]) for row in read(source, columns=["id"], **options).take_all()]

    found = {path.name: ids(path, override_num_blocks=5) for path in sorted(folder.iterdir())}
    dataset = mdsx.Dataset(folder / "mdsx")
    found["every 7th"] = ids(dataset.select(range(0, ROWS, 7)), override_num_blocks=3)
    found["none"] = ids(dataset.select(0, 0))
    found["many tasks"] = ids(dataset, override_num_blocks=500)
    found["limit"] = [int(row["id"]) for row in read(dataset).limit(10).take_all()]
    return found


@contextmanager
def connected() -> Iterator[None]:
    """Join the cluster that RAY_ADDRESS names, or start Ray in a folder with a short path."""
    import ray

    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    new = {"num_cpus": 3, "include_dashboard": False, "object_store_memory": 100 * 2**20, "_temp_dir": folder}
    address = os.environ.get("RAY_ADDRESS")
    ray.init(address or "local", log_to_driver=False, **({} if address else new))
    try:
        yield
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


def main(name: str, folder: str) -> None:
    import ray

    with connected():
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.execution_options.preserve_order = True
        found = globals()[name](Path(folder))
    print(json.dumps(found, default=int))  # last: Ray itself prints the deaths of workers


if __name__ == "__main__":
    main(*sys.argv[1:])
