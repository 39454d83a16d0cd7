"""A worker process ignores Ctrl-C, and ends when its parent ends for any reason."""

from __future__ import annotations

import multiprocessing
import os
import select
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from mdsx.base.process.children import end_with_parent, holding_interrupts

PARENT = """
import multiprocessing, os, signal, sys, time
from mdsx.base.process.children import end_with_parent, holding_interrupts

def work():
    end_with_parent()
    os.kill(os.getpid(), signal.SIGINT)
    print("working", flush=True)
    time.sleep(1000)

if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    worker = context.Process(target=work)
    with holding_interrupts(context):
        worker.start()
    time.sleep(1000)
"""


def test_a_child_ignores_interrupts_but_ends_with_its_parent() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"working\n"
        parent.kill()
        ready, _, _ = select.select([parent.stdout], [], [], 60)
        assert ready
        assert os.read(parent.stdout.fileno(), 1) == b"", "the child has the pipe's other end, until it ends"


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("in_a_thread", [False, True])
def test_an_interrupt_waits_until_the_processes_have_started(in_a_thread: bool, method: str) -> None:
    """The kernel delivers it to any thread that has not blocked it."""
    context: Any = multiprocessing.get_context(method)
    before = signal.getsignal(signal.SIGINT)
    child = context.Process(target=interrupt)

    def start() -> None:
        with holding_interrupts(context):
            thread.submit(interrupt).result() if in_a_thread else interrupt()
            child.start()

    with ThreadPoolExecutor(1) as thread:
        thread.submit(int).result()  # begins with nothing blocked
        with pytest.raises(KeyboardInterrupt):
            start()
    assert signal.getsignal(signal.SIGINT) == before
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    child.join()
    assert child.exitcode == 0, "it does not see an interrupt, from its first instruction on"


FORK_SERVER = """
import multiprocessing, signal
from mdsx.base.process import holding_interrupts

def blocked(pipe):
    pipe.send(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()))

if __name__ == "__main__":
    context = multiprocessing.get_context("forkserver")
    def child():
        ours, theirs = context.Pipe()
        context.Process(target=blocked, args=(theirs,)).start()
        return ours
    with holding_interrupts(context):
        first = child()
    print(first.recv(), child().recv())
"""


def test_processes_that_a_fork_server_makes_later_see_interrupts(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(FORK_SERVER)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False False\n"


def test_a_thread_other_than_the_main_one_holds_nothing() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen: list[object] = []

    def in_a_thread() -> None:
        with holding_interrupts(multiprocessing.get_context("fork")):
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=in_a_thread)
    thread.start()
    thread.join()
    assert seen == [before], "threads cannot change it"


def test_a_process_without_a_parent_continues() -> None:
    before = threading.active_count()
    end_with_parent()
    assert threading.active_count() == before
