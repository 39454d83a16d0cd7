"""A worker process ignores Ctrl-C, and ends when its parent ends for any reason."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading

from mdsx.base.process.children import end_with_parent, ignoring_interrupts

PARENT = """
import multiprocessing, os, signal, sys, time
from mdsx.base.process.children import end_with_parent, ignoring_interrupts

def work():
    end_with_parent()
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    os.kill(os.getpid(), signal.SIGINT)
    print("working", flush=True)
    time.sleep(1000)

if __name__ == "__main__":
    worker = multiprocessing.get_context("fork").Process(target=work)
    with ignoring_interrupts():
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


def test_interrupts_are_ignored_only_meanwhile() -> None:
    before = signal.getsignal(signal.SIGINT)
    with ignoring_interrupts():
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    assert signal.getsignal(signal.SIGINT) == before
    seen: list[object] = []

    def in_a_thread() -> None:
        with ignoring_interrupts():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=in_a_thread)
    thread.start()
    thread.join()
    assert seen == [before], "threads cannot change it"


def test_a_process_without_a_parent_continues() -> None:
    before = threading.active_count()
    end_with_parent()
    assert threading.active_count() == before
