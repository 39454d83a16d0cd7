"""Tasks in worker processes, which report to their parent through pipes.

Each worker gets one task at a time. Workers are spawned, not forked. A worker ends with its parent, however the parent
ends, because the parent's next run may begin the same tasks. The first error kills all workers in the middle of their
tasks: the next run must be able to continue from the state that they leave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from mdsx.base.process.children import end_with_parent, holding_interrupts
from mdsx.errors import MdsxError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

Task_contra = TypeVar("Task_contra", contravariant=True)
Task = TypeVar("Task")
Result_co = TypeVar("Result_co", covariant=True)
Result = TypeVar("Result")
Report = Callable[..., object]

_Pipe: TypeAlias = "Connection[Any, Any]"
_GRACE = 5.0  # seconds that a worker has to end after its pipe has failed


class Work(Protocol[Task_contra, Result_co]):
    """Does a task, and calls `report` now and then. Itself, its reports and its result are pickled."""

    def __call__(self, task: Task_contra, report: Report) -> Result_co: ...


def deliver(report: Report) -> None:
    """Wait until all reports so far are certain to reach the caller, even if this process dies. Through a pipe, they
    always are."""
    if (wait := getattr(report, "deliver", None)) is not None:
        wait()


def map_in_processes(
    work: Work[Task, Result], tasks: Sequence[Task], processes: int, report: Report, *, name: str
) -> list[Result]:
    """Return the results of `work` for each task, in order. The tasks run in up to `processes` processes, or in this
    process if one suffices. `report` is called in this process with the reports of the tasks. `name`: the name of the
    processes.

    Raise the first MdsxError of a task, or MdsxError if a worker dies.
    """
    processes = min(processes, len(tasks))
    if processes <= 1:
        return [work(task, report) for task in tasks]
    from multiprocessing.connection import wait  # not before it is needed: it takes 20 ms

    results: dict[int, Result] = {}
    left = iter(enumerate(tasks))
    with _workers(work, processes, name) as workers:
        for connection in workers:
            with _noticing_death(workers[connection]):
                connection.send(next(left))
        while len(results) < len(tasks):
            ready: list[Any] = wait(list(workers))
            for connection in ready:
                with _noticing_death(workers[connection]):
                    kind, *values = connection.recv()
                match kind:
                    case "error":
                        raise values[0]
                    case "done":
                        results[values[0]] = values[1]
                        if (following := next(left, None)) is not None:
                            with _noticing_death(workers[connection]):
                                connection.send(following)
                    case _:
                        report(*values)
    return [results[number] for number in range(len(tasks))]


@contextmanager
def _noticing_death(worker: SpawnProcess) -> Iterator[None]:
    """Raise MdsxError if the pipe fails because its worker died, at any time."""
    try:
        yield
    except (EOFError, OSError):
        worker.join(_GRACE)
        hint = "out of memory? rerun" if (worker.exitcode or 0) < 0 else "see its error above, if it printed one"
        raise MdsxError(f"a worker died with exit code {worker.exitcode}", hint=hint) from None


@contextmanager
def _workers(work: Work[Any, Any], count: int, name: str) -> Iterator[dict[_Pipe, SpawnProcess]]:
    import multiprocessing

    context = multiprocessing.get_context("spawn")
    workers: dict[_Pipe, SpawnProcess] = {}
    try:
        with holding_interrupts(context):
            for _ in range(count):
                ours, theirs = context.Pipe()
                worker = context.Process(target=_serve, args=(work, theirs), name=name, daemon=True)
                worker.start()
                theirs.close()
                workers[ours] = worker
        yield workers
    finally:
        for worker in workers.values():
            worker.kill()  # not SIGTERM: workers may inherit from the parent that they ignore it
        for connection, worker in workers.items():
            worker.join()
            connection.close()


def _serve(work: Work[Any, Any], connection: _Pipe) -> None:
    end_with_parent()

    def send(*message: Any) -> None:
        try:
            connection.send(message)
        except ConnectionError:  # the parent was killed, so this process is about to be killed too
            raise SystemExit(1) from None

    while True:
        try:
            number, task = connection.recv()
        except (EOFError, ConnectionError):  # the same
            return
        try:
            result = work(task, lambda *values: send("report", *values))
        except MdsxError as error:
            send("error", error)
            return
        send("done", number, result)
