"""Ctrl-C while a dataset is written: it ends at once, publishes nothing, leaves no thread, and a resume continues."""

from __future__ import annotations

import os
import signal
import threading
import time
from functools import partial
from pathlib import Path

from tests.conftest import Often
from tests.forks import forked
from tests.writer.jobs import contents, watch, write

COUNT = 40  # samples: five shards


def interrupted(root: Path, at: int) -> tuple[bool, list[str], list[str]]:
    """Return whether a real SIGINT before disk change `at` ended the job, the changes, and the remaining threads."""
    changes: list[str] = []

    def hook(what: str, file: str) -> None:
        changes.append(f"{what} {os.path.basename(file)}")
        if len(changes) - 1 == at:
            os.kill(os.getpid(), signal.SIGINT)

    signal.signal(signal.SIGINT, signal.default_int_handler)
    watch(hook)
    try:
        write(root, COUNT)
    except KeyboardInterrupt:
        end = time.monotonic() + 30  # nobody waits for a thread that was just starting; it ends by itself
        while (threads := names_of_threads()) and time.monotonic() < end:
            time.sleep(0.001)
        return True, changes, threads
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the answer changes nothing on disk
    return False, changes, names_of_threads()


def names_of_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("mdsx")]


def test_ctrl_c_before_any_disk_change_loses_nothing(tmp_path: Path, often: Often) -> None:
    undisturbed = tmp_path / "undisturbed"
    _, whole, _ = forked(partial(interrupted, undisturbed, -1))
    every = often(3, long=1)
    late = 0
    for at in sorted({*range(0, len(whole), every), *range(len(whole) - 12, len(whole))}):
        root = tmp_path / f"{at}"
        ended, changes, threads = forked(partial(interrupted, root, at))
        assert ended or at >= len(changes) - 2
        assert not threads
        if at > (changes.index("replace index.json") if "replace index.json" in changes else len(changes)):
            late += 1  # the shards were durable, and the index existed
            assert contents(root)["index.json"] == contents(undisturbed)["index.json"]
        else:
            assert not (root / "index.json").exists()
        write(root, COUNT)
        assert contents(root) == contents(undisturbed), f"interrupted before change {at}"
    assert late
