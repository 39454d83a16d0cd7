"""The tests' fork server: its processes start in milliseconds, with all modules imported.

Each test process has one. Loaders with `multiprocessing_context="forkserver"` get their workers from it.
"""

from __future__ import annotations

import multiprocessing
import os
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import TYPE_CHECKING, Any, TypeVar

T = TypeVar("T")
if TYPE_CHECKING:
    Answers = Connection[Any, Any]

CONTEXT = multiprocessing.get_context("forkserver")


def preload() -> None:
    """Set the modules that the server imports, before it starts."""
    CONTEXT.set_forkserver_preload(
        [
            "boto3",
            "mdsx.checks.damage",
            "mdsx.torch",
            "pytest",
            "tests.fuzz.hostile",
            "tests.writer.test_power_cut",
            "tests.frozen",
        ]
    )


def start(
    work: Callable[..., object], *arguments: Any, environment: Mapping[str, str] | None = None
) -> ForkServerProcess:
    """Start `work`, a function of a module, in a process with the environment of this one and these variables."""
    given = {**os.environ, **(environment or {})}
    process = CONTEXT.Process(target=_work, args=(given, work, arguments))
    process.start()
    return process


def call(work: Callable[..., T], *arguments: Any, timeout: float = 120.0) -> T:
    """Return what `work`, a function of a module, returns in a process that then ends, or raise what it raises."""
    return call_all(work, [arguments], timeout)[0]


def call_all(work: Callable[..., T], calls: Iterable[tuple[Any, ...]], timeout: float = 120.0) -> list[T]:
    """Do the same with the arguments of each call, in as many processes at once."""
    started: list[tuple[ForkServerProcess, Answers]] = []
    answers, deadline = [], time.monotonic() + timeout
    try:
        for arguments in calls:
            ours, theirs = CONTEXT.Pipe(duplex=False)
            started.append((start(_answer, theirs, work, arguments), ours))
            theirs.close()
        for process, ours in started:
            assert ours.poll(max(deadline - time.monotonic(), 0.0)), f"no answer within {timeout} seconds"
            good, found = ours.recv()
            process.join(timeout)
            assert process.exitcode == 0
            if not good:
                raise found
            answers.append(found)
    finally:
        for process, ours in started:
            process.kill()
            process.join()
            ours.close()
    return answers


def _work(environment: Mapping[str, str], work: Callable[..., object], arguments: tuple[Any, ...]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    work(*arguments)


def _answer(answers: Answers, work: Callable[..., object], arguments: tuple[Any, ...]) -> None:
    try:
        answers.send((True, work(*arguments)))
    except BaseException as error:
        error.add_note("".join(traceback.format_exception(error)))
        answers.send((False, error))
