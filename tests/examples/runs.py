"""Runs the programs in examples/ as their users do: several ranks, killed and started again on another number."""

from __future__ import annotations

import faulthandler
import importlib
import multiprocessing
import os
import runpy
import shutil
import signal
import socket
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from tests import fork_server
from tools.environment import PeerEnvironment

EXAMPLES = Path(__file__).parents[2] / "examples"
TIMEOUT = 200
T = TypeVar("T")
_FORK = multiprocessing.get_context("fork")


class Start(NamedTuple):
    """One start of a program: on how many ranks, and the step in which its last rank kills itself (None: never)."""

    ranks: int
    killed_in: int | None = None


class Trained(NamedTuple):
    """How each start ended, rank by rank; how often each sample was trained on, in each epoch; and rank 0's output."""

    statuses: list[list[int | None]]
    epochs: list[Counter[int]]
    printed: str


class Followed(NamedTuple):
    """How each start of a pretraining ended, its steps by number, and the ids that the plan says for each."""

    statuses: list[list[int | None]]
    steps: dict[int, Any]
    expected: list[list[int]]
    printed: str


class Compared(NamedTuple):
    """The steps of a whole run, of one that was killed and resumed on as many ranks, and of one on others."""

    statuses: list[list[int | None]]
    whole: dict[int, Any]
    same: dict[int, Any]
    other: dict[int, Any]
    epochs: list[Counter[int]]  # of the last


class Programs:
    """A process that imports what the programs use, once, and runs them on ranks that it forks."""

    def __init__(self) -> None:
        self._server, theirs = fork_server.CONTEXT.Pipe()
        self._process = fork_server.start(_serve, theirs)
        theirs.close()

    def run(self, program: str, data: str, folder: Path, starts: Sequence[Start]) -> Trained:
        """Run a program of examples/."""
        return self.call(_run, program, data, folder, starts)

    def compare(self, program: str, data: str, folder: Path, start: Start, others: int, *more: str) -> Compared:
        """Run a program on the ranks of `start`, whole and killed, and resume it on as many ranks and on `others`."""
        return self.call(_compare, program, data, folder, start, others, *more)

    def follow(
        self, program: str, data: str, folder: Path, starts: Sequence[Start], plan: Mapping[str, Any]
    ) -> Followed:
        """Run a program of examples/ that follows `pretraining.plan(**plan)`."""
        return self.call(_follow, program, data, folder, starts, plan)

    def close(self) -> None:
        self._server.close()
        self._process.join(TIMEOUT)
        self._process.kill()

    def call(self, work: Callable[..., T], *arguments: Any) -> T:
        """Call a function where the modules of examples/ can be imported."""
        self._server.send((work, arguments))
        good, answer = self._server.recv()
        assert good, answer
        found: T = answer
        return found


def _serve(requests: Connection[Any, Any]) -> None:
    sys.path[:0] = [str(EXAMPLES), str(PeerEnvironment("frameworks").packages)]
    while True:
        try:
            work, arguments = requests.recv()
        except EOFError:
            return
        try:
            requests.send((True, work(*arguments)))
        except BaseException:
            requests.send((False, traceback.format_exc()))


def _compare(program: str, data: str, folder: Path, start: Start, others: int, *more: str) -> Compared:
    again = Start(start.ranks)
    first = _run(program, data, folder / "whole", [again], *more)
    statuses = [*first.statuses, *_run(program, data, folder / "same", [start], *more).statuses]
    shutil.copytree(folder / "same", folder / "other")
    statuses += _run(program, data, folder / "same", [again], *more).statuses
    last = _run(program, data, folder / "other", [Start(others)], *more)
    steps: Any = importlib.import_module("data").steps
    recorded = [steps(folder / name) for name in ("whole", "same", "other")]
    whole, same, other = ({number: tuple(step) for number, step in found.items()} for found in recorded)
    return Compared([*statuses, *last.statuses], whole, same, other, last.epochs)


def write_corpus(url: str) -> None:
    """Write the corpus of the pretraining examples."""
    pretraining: Any = importlib.import_module("pretraining")
    pretraining.write(url)


def killed(statuses: list[int | None]) -> bool:
    """Whether the last rank killed itself, and no other finished: each failed without it, or was ended."""
    return statuses[-1] == -signal.SIGKILL and all(status != 0 for status in statuses)


def _follow(program: str, data: str, folder: Path, starts: Sequence[Start], plan: Mapping[str, Any]) -> Followed:
    layout = [str(plan["layout"])] if "layout" in plan else []
    trained = _run(program, data, folder, starts, *layout)
    steps: Any = importlib.import_module("data").steps
    pretraining: Any = importlib.import_module("pretraining")
    found = {number: tuple(step) for number, step in steps(folder).items()}
    expected = pretraining.expected(data, pretraining.plan(**plan), len(found))
    return Followed(trained.statuses, found, expected, trained.printed)


def _run(program: str, data: str, folder: Path, starts: Sequence[Start], *more: str) -> Trained:
    importlib.invalidate_caches()  # the frameworks may have been installed just now
    for name in (program.removesuffix(".py"), "torch._dynamo"):  # what the ranks would import, each by itself
        importlib.import_module(name)
    statuses = [run_ranks(program, data, folder, start, *more) for start in starts]
    epochs: Any = importlib.import_module("data").epochs
    return Trained(statuses, epochs(folder), (folder.parent / f"{folder.name}.0.log").read_text())


def run_ranks(
    program: str, data: str, folder: Path, start: Start, *more: str, addressed: bool = False, numbered: bool = False
) -> list[int | None]:
    """Run a program on ranks that this process forks, and return how they ended. When one fails, end the others.

    `more`: its arguments after these. `numbered`: they also say the rank and the number of ranks; `addressed`: and,
    before these, where the ranks meet.
    """
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = str(found.getsockname()[1])
    shared = {"WORLD_SIZE": start.ranks, "LOCAL_WORLD_SIZE": start.ranks, "MASTER_ADDR": "127.0.0.1"}
    shared |= {"MASTER_PORT": port, "GROUP_RANK": 0, "TORCHELASTIC_RUN_ID": "none", "OMP_NUM_THREADS": 1}
    ranks = [
        _FORK.Process(
            target=_rank,
            args=(
                {name: str(value) for name, value in {**shared, "RANK": rank, "LOCAL_RANK": rank}.items()},
                [str(EXAMPLES / program), data, str(folder), *more]
                + [f"127.0.0.1:{port}"] * addressed
                + [str(rank), str(start.ranks)] * (addressed or numbered),
                start.killed_in if rank == start.ranks - 1 else None,
                folder.parent / f"{folder.name}.{rank}.log",
            ),
        )
        for rank in range(start.ranks)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        for process in ranks:
            process.start()
        deadline = time.monotonic() + TIMEOUT
        running = list(ranks)
        while running and all(process.exitcode in (None, 0) for process in ranks):
            wait([process.sentinel for process in running], max(deadline - time.monotonic(), 0))
            running = [process for process in running if process.exitcode is None]
            assert time.monotonic() < deadline
        for process in running:  # a rank has failed: a launcher ends the others
            process.kill()  # JAX takes SIGTERM for a notice, and would wait
        for process in ranks:
            process.join()
        return [process.exitcode for process in ranks]
    finally:
        for process in ranks:
            process.kill()
            process.join()


def _rank(environment: dict[str, str], arguments: list[str], killed_in: int | None, log: Path) -> None:
    """Be one rank, as torchrun starts it. What it prints goes to a log."""
    os.environ.update(environment)
    sys.argv = arguments
    out = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    os.dup2(out, 1)
    os.dup2(out, 2)
    faulthandler.dump_traceback_later(TIMEOUT - 20, exit=True)
    data: Any = importlib.import_module("data")
    record = data.record

    def killing(run: str | Path, step: int, numbers: Iterable[int], *more: Any) -> None:
        record(run, step, numbers, *more)
        if step == killed_in:
            os.kill(os.getpid(), signal.SIGKILL)

    data.record = killing
    runpy.run_path(arguments[0], run_name="__main__")
