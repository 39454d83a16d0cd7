"""Run a function in a forked child, with a deadline: a hang is a failure."""

from __future__ import annotations

import os
import pickle
import select
import signal
import traceback
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

DEADLINE = 60.0  # seconds, far more than needed


def forked(work: Callable[[], T], *, uid: int | None = None, deadline: float = DEADLINE) -> T:
    """Run `work` in a child process, and return or raise its result."""
    answers, pipe_in = os.pipe()
    child = os.fork()
    if child == 0:
        _be_child(work, uid, answers, pipe_in)
    os.close(pipe_in)
    answer = b""
    with os.fdopen(answers, "rb", buffering=0) as pipe:
        while select.select([pipe], [], [], deadline)[0] and (piece := pipe.read(2**16)):
            answer += piece
    if not answer:
        os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert answer, f"no answer within {deadline} seconds, or killed: status {status}"
    good, found = pickle.loads(answer)
    if not good:
        raise found
    return found  # type: ignore[no-any-return]


def _be_child(work: Callable[[], T], uid: int | None, answers: int, pipe_in: int) -> None:
    try:
        os.close(answers)
        if uid is not None:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
        try:
            answer = pickle.dumps((True, work()))
        except BaseException as error:
            error.add_note("".join(traceback.format_exception(error)))
            answer = pickle.dumps((False, error))
        while answer:
            answer = answer[os.write(pipe_in, answer) :]
    finally:
        os._exit(0)
