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


PUBLISHED = "replace index.json"


def interrupted(root: Path, at: int, since: str | None = None) -> tuple[bool, list[str], list[str]]:
    """Return whether a real SIGINT before disk change `at` ended the job, the changes, and the remaining threads.

    With `since`, `at` counts from that change on: the number of those before it depends on the threads.
    """
    changes: list[str] = []

    def hook(what: str, file: str) -> None:
        changes.append(f"{what} {os.path.basename(file)}")
        first = 0 if since is None else changes.index(since) if since in changes else len(changes)
        if len(changes) - 1 - first == at:
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
    every = often(9, long=1)
    early = [(at, None) for at in range(0, len(whole), every)]
    last = [(at, PUBLISHED) for at in range(len(whole) - whole.index(PUBLISHED))]
    late = 0
    for number, (at, since) in enumerate((*early, *last)):
        root = tmp_path / f"{number}"
        ended, changes, threads = forked(partial(interrupted, root, at, since))
        published = changes.index(PUBLISHED) if PUBLISHED in changes else len(changes)
        place = at if since is None else published + at
        assert ended or place >= len(changes) - 2
        assert not threads
        if place > published:
            late += 1  # the shards were durable, and the index existed
            assert contents(root)["index.json"] == contents(undisturbed)["index.json"]
        else:
            assert not (root / "index.json").exists()
        write(root, COUNT)
        assert contents(root) == contents(undisturbed), f"interrupted before change {place}"
    assert late >= len(last) - 1
