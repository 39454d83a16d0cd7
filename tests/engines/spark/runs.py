"""Runs tests in an environment of Spark, with a Spark of their own: a classic session, Connect, or a small cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tools.environment import PeerEnvironment
from tools.processes import free_port

ROOT = Path(__file__).parents[3]
HERE = Path(__file__).parent
LIMIT = 900.0  # seconds
CLUSTER = "local-cluster[2,1,1024]"


def open_session() -> Any:
    """Return a session as the variables say. In a program that `run_inside` has started."""
    from pyspark.sql import SparkSession

    master = os.environ["SPARK_MASTER"]
    builder = SparkSession.builder.remote("local[2]") if master == "connect" else SparkSession.builder.master(master)
    for setting in ["spark.ui.enabled=false", "spark.sql.shuffle.partitions=4", *os.environ["SPARK_SETTINGS"].split()]:
        builder = builder.config(*setting.split("=", 1))
    return builder.getOrCreate()


def variables(environment: PeerEnvironment, folder: Path, master: str, *settings: str) -> dict[str, str]:
    """Return the variables of a program with Spark, which then writes its own files to `folder` only."""
    home = folder / "home"
    home.mkdir(parents=True, exist_ok=True)
    for part in (environment.packages / "pyspark").iterdir():
        with suppress(FileExistsError):
            (home / part.name).symlink_to(part)
    return {
        **os.environ,
        "PATH": os.pathsep.join((os.environ["PATH"], str(Path(sys.executable).parent))),  # rclone is there
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": str(environment.python),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_MASTER": master,
        "SPARK_SETTINGS": " ".join(settings),
    }


@contextmanager
def cluster(environment: PeerEnvironment, folder: Path) -> Iterator[str]:
    """Run a cluster with two workers that have addresses of their own, as if on two hosts. Yield its master."""
    master = f"spark://127.0.0.1:{free_port()}"
    at = ["--host", "127.0.0.1", "--port", master.rpartition(":")[2]]
    starts = [("Master", "127.0.0.1", at)]
    for host in ("127.0.0.2", "127.0.0.3"):
        options = ["--host", host, "--cores", "1", "--memory", "1g", "--work-dir", str(folder / host), master]
        starts.append(("Worker", host, options))
    processes = []
    try:
        for role, host, options in starts:
            setting = {**variables(environment, folder / role, ""), "SPARK_LOCAL_IP": host, "SPARK_PUBLIC_DNS": host}
            program = [f"{setting['SPARK_HOME']}/bin/spark-class", f"org.apache.spark.deploy.{role.lower()}.{role}"]
            command = [*program, *options, "--webui-port", "0"]
            processes.append(subprocess.Popen(command, env=setting, start_new_session=True))
        yield master
    finally:
        for process in processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def run_inside(tests: str, folder: Path, master: str, *settings: str, version: str = "spark") -> str:
    """Run `tests` of this folder in the environment `version`, and return what pytest printed at the end: "3 passed".

    Raise AssertionError if a test fails.
    """
    environment = PeerEnvironment(version)
    environment.install()
    options = ("-x", "-p", "no:cacheprovider", f"--timeout={LIMIT:.0f}", f"--basetemp={folder / 'tests'}")
    process = subprocess.Popen(
        [str(environment.python), "-m", "pytest", *options, f"{HERE / tests}"],
        cwd=ROOT,
        env=variables(environment, folder, master, *settings),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        printed, _ = process.communicate(timeout=LIMIT)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, printed[-10_000:]
    return printed.splitlines()[-1]


def run_speculating(tests: str, folder: Path, *options: str) -> str:
    """Do what `run_inside` does in a cluster of two hosts: Spark starts no second attempt on a host where the first one
    runs."""
    environment = PeerEnvironment("spark")
    environment.install()
    speculate = ("spark.speculation=true", "spark.speculation.quantile=0.5", "spark.speculation.multiplier=1.1")
    at_once = ("spark.locality.wait=0", "spark.executor.memory=1g", "spark.driver.host=127.0.0.1")
    with cluster(environment, folder / "cluster") as master:
        return run_inside(tests, folder, master, *options, *speculate, *at_once)
