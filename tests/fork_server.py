"""The tests' fork server: its processes start in milliseconds, with all modules imported.

Each test process has one. Loaders with `multiprocessing_context="forkserver"` get their workers from it.
"""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable, Mapping
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
        ["boto3", "mdsx.damage", "mdsx.torch", "pytest", "tests.fuzz.hostile", "tests.writer.test_power_cut"]
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
    ours, theirs = CONTEXT.Pipe(duplex=False)
    process = start(_answer, theirs, work, arguments)
    theirs.close()
    try:
        assert ours.poll(timeout), f"no answer within {timeout} seconds"
        good, found = ours.recv()
        process.join(timeout)
        assert process.exitcode == 0
    finally:
        process.kill()
        process.join()
        ours.close()
    if not good:
        raise found
    return found  # type: ignore[no-any-return]


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
