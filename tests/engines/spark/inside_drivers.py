"""Two drivers at one place: at once, and one that begins after another has died."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import psutil

import mdsx
from mdsx.engines.spark import write
from mdsx.writer.runs import Written
from tests.engines.spark.inside_faults import (
    WAIT,
    Watched,
    check,
    folders,
    frame,
    in_background,
    only_what_counts,
    python_workers,
    wait_for,
)
from tests.engines.spark.runs import CLUSTER, open_session
from tests.writer.runs.test_clean import age


def test_of_two_drivers_at_once_one_succeeds(spark: Any, tmp_path: Path) -> None:
    url = tmp_path / "out"

    def driver(number: int) -> Written | Exception:
        (tmp_path / str(number)).mkdir()
        try:
            return write(frame(spark, tmp_path / str(number), number), str(url), shard_size=50_000)
        except mdsx.ChangedError as error:
            return error

    with Watched(url) as watched, ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(driver, number) for number in (0, 1)]
        wait_for(lambda: len(list(url.glob("run-*/_run/*"))) == 2)  # both have begun
        for number in (0, 1):
            (tmp_path / str(number) / "continue").touch()
        results = [future.result(WAIT) for future in futures]
    check(url, watched)
    only_what_counts(url)
    assert sorted(type(result).__name__ for result in results) == ["ChangedError", "Written"]


def test_a_driver_that_dies_is_followed_by_another(spark: Any, tmp_path: Path) -> None:
    """An executor of the first driver is paused when the driver dies. It wakes up while the second one writes."""
    url = tmp_path / "out"
    (tmp_path / "first").mkdir()
    process = get_context("spawn").Process(target=first_driver, args=(tmp_path / "first", url))
    process.start()
    wait_for((tmp_path / "first" / "stalled").exists, 2 * WAIT)
    wait_for(lambda: list(url.glob("run-*/part-00001-*/shard.*")))
    theirs = psutil.Process(process.pid).children(recursive=True)
    paused = [child for child in theirs if "CoarseGrainedExecutorBackend" in command(child)]
    workers = [worker for executor in paused for worker in python_workers(executor)]
    assert len(paused) == 2
    assert workers
    for executor in paused:
        executor.suspend()
    for dying in (psutil.Process(process.pid), *(child for child in theirs if child not in [*paused, *workers])):
        with suppress(psutil.NoSuchProcess):
            if "pyspark.daemon" not in command(dying):
                dying.kill()
    process.join()
    before = folders(url)
    with Watched(url) as watched, in_background(lambda: write(frame(spark, tmp_path), str(url))) as written:
        wait_for((tmp_path / "stalled").exists)
        (tmp_path / "first" / "continue").touch()
        for executor in paused:
            executor.resume()
        psutil.wait_procs([*paused, *workers], WAIT)  # they write what they have, and end
        (tmp_path / "continue").touch()
        written()
    check(url, watched)
    assert set(before) < set(folders(url))  # a driver removes nothing of another run
    age(url)
    mdsx.clean(url)
    check(url)
    only_what_counts(url)


def command(process: psutil.Process) -> str:
    """Return how a process was started; "" if it has ended."""
    with suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline())
    return ""


def first_driver(folder: Path, url: Path) -> None:
    os.environ["SPARK_MASTER"] = CLUSTER
    write(frame(open_session(), folder), str(url), shard_size=50_000)
