"""A worker's death raises an error, whatever the state of its pipe."""

from __future__ import annotations

import multiprocessing
import os
import struct
import time
from collections.abc import Callable
from typing import Any

import pytest

from mdsx import MdsxError
from mdsx.convert.parts import _noticing_death


def between_messages(pipe: Any) -> None:
    os._exit(3)


def in_the_middle_of_one(pipe: Any) -> None:
    os.write(pipe.fileno(), struct.pack("!i", 100) + b"some of it")
    os._exit(3)


def before_it_read_ours(pipe: Any) -> None:
    while not pipe.poll():
        time.sleep(0.001)
    os._exit(3)


@pytest.mark.parametrize("die", [between_messages, in_the_middle_of_one, before_it_read_ours])
def test_a_dead_worker_raises_an_error(die: Callable[[Any], None]) -> None:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    worker = context.Process(target=die, args=(theirs,))
    worker.start()
    theirs.close()
    with pytest.raises(MdsxError, match="a worker died with exit code 3; out of memory"), _noticing_death(worker):  # noqa: PT012
        ours.send("a part")
        ours.recv()
    ours.close()
