"""Ctrl-C and SIGTERM in a real training from S3 end it at once. No resource leaks, no sample is lost or repeated."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import pytest

from tests import fork_server
from tests.fork_server import CONTEXT
from tests.torch.interrupted import LONG_STEP, run_piped
from tools.fault_proxy import Exchange, Proxy
from tools.servers.s3 import S3Server

N = 1003
STALL = 15.0  # seconds for which a download stalls, unless it is released; its own timeout is longer
SOON = 10.0  # many times what is needed
TIMEOUT = 120.0
WAYS = [(0, "fork"), (2, "fork"), (1, "spawn")]


class Forked:
    """The training in a process of the fork server, with the pipes that `subprocess.Popen` has."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        (stdin, to), (out, stdout), (errors, stderr) = (CONTEXT.Pipe(duplex=False) for _ in range(3))
        self._process = fork_server.start(run_piped, stdin, stdout, stderr, *arguments, environment=environment)
        self.pid = self._process.pid or 0
        self.stdin = os.fdopen(os.dup(to.fileno()), "w")
        self.stdout, self.stderr = (os.fdopen(os.dup(pipe.fileno())) for pipe in (out, errors))
        for pipe in (stdin, to, out, stdout, errors, stderr):
            pipe.close()

    def wait(self, timeout: float) -> int:
        self._process.join(timeout)
        assert self._process.exitcode is not None
        return self._process.exitcode


class Training:
    """`tests.torch.interrupted` in a process group of its own, as a terminal would start it."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], interpreter: bool) -> None:
        self.process: subprocess.Popen[str] | Forked
        if interpreter:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", "tests.torch.interrupted", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, **environment},
                start_new_session=True,
            )
        else:
            self.process = Forked(arguments, environment)
        self.errors = ""
        self._facts: Queue[dict[str, Any]] = Queue()
        self._readers = [threading.Thread(target=self._read_facts), threading.Thread(target=self._read_errors)]
        for reader in self._readers:
            reader.start()

    def _read_facts(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._facts.put(json.loads(line))

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self.errors = self.process.stderr.read()

    def until(self, **wanted: Any) -> dict[str, Any]:
        """Return the next fact of that name, and of that value if one is given."""
        (name, value), deadline = *wanted.items(), time.monotonic() + TIMEOUT
        while True:
            try:
                fact = self._facts.get(timeout=max(deadline - time.monotonic(), 0.0))
            except Empty:
                pytest.fail(f"no {name}; {self.errors}")
            if name in fact and value in (..., fact[name]):
                return fact

    def interrupt(self) -> float:
        """Ctrl-C, which comes to the workers too; returns when."""
        now = time.time()
        os.killpg(self.process.pid, signal.SIGINT)
        return now

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def wait(self) -> int:
        status = self.process.wait(TIMEOUT)
        for reader in self._readers:
            reader.join()
        return status

    def close(self) -> None:
        for kill in (os.killpg, os.kill):
            try:
                kill(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.wait()


@contextmanager
def training(
    proxy: Proxy, url: str, cache: Path, workers: int, method: str, *, interpreter: bool = False
) -> Iterator[Training]:
    """Start a training, in an `interpreter` of its own where its exit matters: that takes seconds."""
    started = Training([url, str(cache), str(workers), method], proxy.env(), interpreter)
    try:
        yield started
    finally:
        started.close()


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[Proxy]:
    with Proxy(s3) as running:
        yield running


def stall_shards(proxy: Proxy) -> Callable[[], None]:
    """Stall all downloads of shards; return when the first one stalls. What it returns ends all of this."""
    released = threading.Event()

    def stall(exchange: Exchange) -> None:
        deadline = time.monotonic() + STALL
        while not released.is_set() and time.monotonic() < deadline and not exchange.hang(0.05):
            pass

    rule = proxy.add(stall, key="*shard*")
    deadline = time.monotonic() + TIMEOUT
    while not rule.hits:
        assert time.monotonic() < deadline
        time.sleep(0.01)

    def release() -> None:
        proxy.clear()
        released.set()

    return release


def alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@pytest.mark.slow_if("method == 'spawn' or workers == 2")
@pytest.mark.parametrize(("workers", "method"), WAYS, ids=str)
def test_iteration_continues_after_ctrl_c(
    remote_url: str, tmp_path: Path, proxy: Proxy, workers: int, method: str
) -> None:
    """Ctrl-C comes while the first batch waits for a stalled download, and later during a training step."""
    with training(proxy, remote_url, tmp_path / "cache", workers, method) as run:
        run.until(waiting=0)
        release = stall_shards(proxy)
        time.sleep(0.5)
        since = run.interrupt()
        fact = run.until(raised=...)
        assert fact["raised"] == "KeyboardInterrupt"
        assert fact["time"] - since < SOON
        release()
        run.tell("go")
        assert not any(run.until(left=...)["left"].values())
        run.until(step=LONG_STEP)
        since = run.interrupt()
        fact = run.until(raised=...)
        assert fact["time"] - since < SOON
        run.tell("go")
        assert Counter(run.until(ids=...)["ids"]) == Counter(range(N))
        assert not any(run.until(left=...)["left"].values())
        assert run.wait() == 0
        assert "Exception ignored" not in run.errors


@pytest.mark.slow_if("workers == 2")
@pytest.mark.parametrize(("workers", "method"), WAYS[:2], ids=str)
def test_ctrl_c_ends_the_process_during_a_stalled_download(
    remote_url: str, tmp_path: Path, proxy: Proxy, workers: int, method: str
) -> None:
    with training(proxy, remote_url, tmp_path / "cache", workers, method, interpreter=True) as run:
        run.until(waiting=0)
        stall_shards(proxy)
        time.sleep(0.5)
        since = run.interrupt()
        run.until(raised=...)
        run.tell("end")
        assert run.wait() == -signal.SIGINT
        assert time.time() - since < SOON
        assert run.errors.count("\nKeyboardInterrupt") == 1
        assert "Exception ignored" not in run.errors


@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGKILL], ids=lambda kind: kind.name)
def test_workers_end_with_a_killed_training_during_stalled_downloads(
    remote_url: str, tmp_path: Path, proxy: Proxy, kind: signal.Signals
) -> None:
    with training(proxy, remote_url, tmp_path / "cache", 2, "fork") as run:
        workers = run.until(step=40)["children"]
        assert len(workers) == 2
        stall_shards(proxy)
        os.kill(run.process.pid, kind)
        assert run.process.wait(TIMEOUT) == -kind
        deadline = time.monotonic() + SOON
        while any(map(alive, workers)):
            assert time.monotonic() < deadline, "workers remain"
            time.sleep(0.02)
