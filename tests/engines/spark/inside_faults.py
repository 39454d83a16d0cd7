"""Faults in a cluster of two executors: every sample exactly once, and at no time a dataset that is half-written.

`stalling` writes half of a partition, says so in a file, and waits for another file: then a process is killed.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

import mdsx
from mdsx.engines.spark import write
from mdsx.format import filenames
from mdsx.writer.runs import Written
from tests.writer.runs.test_clean import age
from tools.servers.s3 import S3Server

PARTS, BATCHES, BATCH = 4, 10, 50
ROWS = PARTS * BATCHES * BATCH
SCHEMA = "id long, data binary"
WAIT = 150.0  # seconds: a machine may be busy


def stalling(folder: Path, part: int, attempt: int = 0, *, fails: bool = False) -> Callable[[Any], Iterator[Any]]:
    """Return a function for `mapInArrow` that makes the rows of a partition: their numbers, and bytes that are the
    number of the attempt. One attempt at `part` stalls midway."""

    def rows(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark import TaskContext

        for _ in batches:
            pass
        context = TaskContext.get()
        here, tried = context.partitionId(), context.attemptNumber()
        for batch in range(BATCHES):
            if batch == BATCHES // 2 and (here, tried) == (part, attempt):
                if fails:
                    raise RuntimeError("the first attempt fails")
                stall(folder)
            first = (here * BATCHES + batch) * BATCH
            data = [bytes([tried]) * 2000] * BATCH
            yield pa.RecordBatch.from_pydict({"id": range(first, first + BATCH), "data": data})

    return rows


def stall(folder: Path) -> None:
    """Write the number of this process to a file, and wait for another file."""
    (folder / "process").write_text(str(os.getpid()))
    (folder / "process").rename(folder / "stalled")
    wait_for((folder / "continue").exists)


def wait_for(condition: Callable[[], object], seconds: float = WAIT) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.02)


def frame(spark: Any, folder: Path, part: int = 1, **how: Any) -> Any:
    return spark.range(0, PARTS, 1, PARTS).mapInArrow(stalling(folder, part, **how), SCHEMA)


def python_workers(executor: psutil.Process) -> list[psutil.Process]:
    """Return the processes that run Python for an executor: the children of its daemon."""
    return [worker for daemon in executor.children() for worker in daemon.children()]


def stalled_executor(folder: Path) -> psutil.Process:
    """Return the executor where an attempt stalls: the parent of its worker's daemon."""
    worker = psutil.Process(int((folder / "stalled").read_text()))
    return worker.parents()[1]


class Watched:
    """A dataset that is being written. A thread looks at it all the time: if it is visible, it must be whole."""

    def __init__(self, url: Path) -> None:
        self.url = url
        self.found: set[int] = set()
        self.looks = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Watched:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.02):
            self.looks += 1
            with suppress(mdsx.MissingError):
                self.found.add(sum(1 for _ in mdsx.Dataset(self.url)))


def check(url: Path | str, watched: Watched | None = None, rows: int = ROWS) -> None:
    """Check that every sample is there once, that all of it is undamaged, and that no unfinished state was visible."""
    assert sorted(int(sample["id"]) for sample in mdsx.Dataset(url)) == list(range(rows))
    assert mdsx.verify(url).ok
    if watched is not None:
        assert watched.looks > 5
        assert watched.found <= {rows}


def folders(url: Path) -> list[str]:
    """Return the folders of all attempts. Hidden files, which killed processes leave, are objects of no storage."""
    return sorted({path.parent.name for path in url.glob("run-*/part-*/*") if not filenames.is_temporary(path.name)})


def only_what_counts(url: Path) -> None:
    """Check that nothing of the run is left but the parts of the dataset."""
    assert [name[: len("part-00000")] for name in folders(url)] == [f"part-{part:05}" for part in range(PARTS)]
    assert not list(url.glob("run-*/_run/*"))


@contextmanager
def in_background(work: Callable[[], Written]) -> Iterator[Callable[[], Written]]:
    """Begin some work; what it returns comes from a call of what is yielded."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(work)
        yield lambda: future.result(WAIT)


def check_two_attempts_at_once(save: Callable[[], Any], straggler: str, url: Path, folder: Path) -> None:
    """Run `save`, a job that stalls (see `frame`) in part 3, with speculation: of two attempts that write, one counts.

    `straggler`: whether the first attempt "stalls", or "continues" once the second one has begun.
    """
    with Watched(url) as watched, in_background(save) as saved:
        wait_for((folder / "stalled").exists)
        wait_for(lambda: list(url.glob("run-*/part-00003-*/shard.*")))
        if straggler == "continues":
            wait_for(lambda: len(list(url.glob("run-*/part-00003-*"))) == 2)  # the other attempt has begun
            (folder / "continue").touch()
        saved()
    check(url, watched)
    counts = attempt_of(url, 3)
    if straggler == "stalls":
        assert counts != 0  # the first one still stalls
    (folder / "continue").touch()
    wait_until_nothing_writes()
    age(url)
    mdsx.clean(url)  # what the attempt that does not count wrote after the end
    check(url)
    assert attempt_of(url, 3) == counts
    only_what_counts(url)


def attempt_of(url: Path, part: int) -> int:
    """Return the number of the one attempt that all rows of a part are of."""
    rows = range(part * BATCHES * BATCH, (part + 1) * BATCHES * BATCH)
    found = {sample["data"] for sample in mdsx.Dataset(url) if int(sample["id"]) in rows}
    (data,) = found
    assert data == data[:1] * 2000
    return int(data[0])


def wait_until_nothing_writes() -> None:
    """Wait until all tasks have ended. An attempt that Spark stops may write until then, and its Python even longer: it
    notices only when it reads on. So end the Python workers, too."""
    from pyspark import SparkContext

    tracker = SparkContext._active_spark_context._jsc.sc().statusTracker()
    wait_for(lambda: not any(executor.numRunningTasks() for executor in tracker.getExecutorInfos()))
    started_us = psutil.Process().parent()  # and the hosts of the cluster
    assert started_us is not None
    workers = [process for process in started_us.children(recursive=True) if is_worker(process)]
    for worker in workers:
        with suppress(psutil.NoSuchProcess):
            worker.kill()
    _, alive = psutil.wait_procs(workers, timeout=WAIT)
    assert not alive


def is_worker(process: psutil.Process) -> bool:
    """Return whether a process runs Python for an executor: a child of a daemon."""
    try:
        daemon = process.parent()
        return daemon is not None and all("pyspark.daemon" in each.cmdline() for each in (process, daemon))
    except psutil.Error:
        return False


def test_a_task_that_fails_is_repeated_and_leaves_nothing(spark: Any, tmp_path: Path) -> None:
    url = tmp_path / "out"
    with Watched(url) as watched:
        write(frame(spark, tmp_path, fails=True), str(url), shard_size=50_000)
    check(url, watched)
    only_what_counts(url)


@pytest.mark.parametrize("killed", ["python", "executor"])
def test_a_killed_process_is_replaced_and_leaves_nothing(killed: str, spark: Any, tmp_path: Path) -> None:
    url = tmp_path / "out"
    with (
        Watched(url) as watched,
        in_background(lambda: write(frame(spark, tmp_path), str(url), shard_size=50_000)) as written,
    ):
        wait_for((tmp_path / "stalled").exists)
        wait_for(lambda: list(url.glob("run-*/part-00001-*/shard.*")))  # half-written
        first = folders(url)
        executor = stalled_executor(tmp_path)
        for process in python_workers(executor) if killed == "python" else [executor]:
            process.send_signal(signal.SIGKILL)
        written()
    check(url, watched)
    only_what_counts(url)
    assert set(first) - set(folders(url))  # there was another attempt
    (tmp_path / "continue").touch()


def test_an_executor_lost_after_a_shuffle_loses_no_sample(spark: Any, tmp_path: Path) -> None:
    url = tmp_path / "out"
    shuffled = spark.range(0, ROWS, 1, 8).repartition(PARTS)

    def passes(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        for batch in batches:
            yield batch
            if TaskContext.get().partitionId() == 1 and TaskContext.get().attemptNumber() == 0:
                stall(tmp_path)

    with Watched(url) as watched, in_background(lambda: write(shuffled.mapInArrow(passes, "id long"), str(url))) as out:
        wait_for((tmp_path / "stalled").exists)
        stalled_executor(tmp_path).kill()  # its files of the shuffle are lost too
        (tmp_path / "continue").touch()
        out()
    check(url, watched)


def test_executors_write_to_object_storage_with_the_options_of_the_job(spark: Any, s3: S3Server, s3_url: str) -> None:
    """They have started before the server, so nothing in their environment points to it."""
    options = {"endpoint": s3.endpoint, "access_key_id": s3.key, "secret_access_key": s3.secret, "region": "us-east-1"}
    written = write(spark.range(0, ROWS, 1, PARTS), f"{s3_url}/out", storage_options=options)
    check(written.url)
