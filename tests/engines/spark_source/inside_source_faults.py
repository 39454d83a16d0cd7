"""Faults under writes with `format("mdsx")` in a cluster of two executors: every sample once, or no dataset."""

from __future__ import annotations

import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.engines.spark.inside_faults import (
    PARTS,
    Watched,
    check,
    folders,
    frame,
    in_background,
    only_what_counts,
    python_workers,
    stalled_executor,
    wait_for,
)


def save(df: Any, url: Path) -> None:
    """Save in any thread. Spark finds Python's data sources in the thread's active session: see docs/engines.md."""
    df.sparkSession.createDataFrame([], "id long")
    df.write.format("mdsx").mode("append").option("shard_size", "50000").save(str(url))


def saving(df: Any, url: Path) -> Callable[[], Any]:
    return lambda: save(df, url)


def test_a_task_that_fails_is_repeated_and_leaves_nothing(spark: Any, tmp_path: Path) -> None:
    url = tmp_path / "out"
    with Watched(url) as watched:
        save(frame(spark, tmp_path, fails=True), url)
    check(url, watched)
    only_what_counts(url)


@pytest.mark.parametrize("killed", ["python", "executor"])
def test_a_killed_process_is_replaced_and_leaves_nothing(killed: str, spark: Any, tmp_path: Path) -> None:
    url = tmp_path / "out"
    with Watched(url) as watched, in_background(saving(frame(spark, tmp_path), url)) as saved:
        wait_for((tmp_path / "stalled").exists)
        wait_for(lambda: list(url.glob("run-*/part-00001-*/shard.*")))  # half-written
        first = folders(url)
        executor = stalled_executor(tmp_path)
        for process in python_workers(executor) if killed == "python" else [executor]:
            process.send_signal(signal.SIGKILL)
        saved()
    check(url, watched)
    only_what_counts(url)
    assert set(first) - set(folders(url))  # there was another attempt
    (tmp_path / "continue").touch()


def test_of_two_writes_at_once_one_succeeds(spark: Any, tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    url = tmp_path / "out"

    def write(number: int) -> str:
        (tmp_path / str(number)).mkdir()
        try:
            save(frame(spark, tmp_path / str(number), number), url)
        except PySparkException as error:
            return str(error)
        return ""

    with Watched(url) as watched, ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(write, number) for number in (0, 1)]
        wait_for(lambda: all((tmp_path / str(number) / "stalled").exists() for number in (0, 1)))  # both have begun
        for number in (0, 1):
            (tmp_path / str(number) / "continue").touch()
        errors = sorted(future.result() for future in futures)
    check(url, watched)
    only_what_counts(url)
    assert errors[0] == ""
    assert "another run has finished a dataset here meanwhile" in errors[1]


def test_a_job_that_fails_leaves_nothing_and_another_one_succeeds(spark: Any, tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    url = tmp_path / "out"
    rows = spark.range(0, 100, 1, PARTS).selectExpr("assert_true(id < 90)", "id")
    with pytest.raises(PySparkException):
        save(rows.select("id", rows[0]), url)
    assert not [path for path in url.rglob("*") if path.is_file()]
    save(frame(spark, tmp_path, part=-1), url)
    check(url)
