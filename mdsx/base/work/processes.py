"""Worker processes, each with a pipe for requests and one for answers.

The consumer's process sends each chunk to the next worker in turn, and receives the answers in the same order. Results
come in shared memory (slots.py); messages only say where they are.
"""

from __future__ import annotations

import multiprocessing
import pickle
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from math import inf
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import recv_handle
from multiprocessing.util import Finalize
from typing import Any

# NumPy imports this on first use. Import it before workers are forked: during an import, a worker may garbage-collect
# objects that it inherited.
import numpy.random  # noqa: F401

from mdsx.base.process import Owner, at_fork, holding_interrupts, naming_limits
from mdsx.base.work.contract import UNMEASURED, Begin, Chunks, Stop, Task, Waiting, chunk_lengths, results_of
from mdsx.base.work.counts import Counted, Rows
from mdsx.base.work.info import WorkerInfo
from mdsx.base.work.slots import SlotReader, found_in
from mdsx.base.work.worker import GRACE, UNPICKLED, Answer, Request, Sealed, Work, serve
from mdsx.errors import UsageError, shown

_LOOK = 0.2  # seconds between checks of a wait whether its run was stopped
_SPARE = 4  # unused slots of a worker that stay mapped, beside those in flight


class Processes:
    """Runs makers in `count` processes, which end with their run; if `persistent`, only with an error or `close`.

    `ahead`: the most prepared results that wait for the consumer; `longest`: the most tasks of a chunk; `seed`: draws
    the base seed at each start; `setup` and `init`: called in each worker before `begin`; `timeout`: seconds to wait
    for a chunk, 0 for no limit; `views` and `hint`: see `Work`.
    """

    def __init__(
        self,
        begin: Begin,
        count: int,
        *,
        ahead: int,
        longest: int = 1,
        seed: Callable[[], int] = int,
        persistent: bool = False,
        context: str | BaseContext | None = None,
        setup: Callable[[WorkerInfo], object] | None = None,
        init: Callable[[int], object] | None = None,
        timeout: float = 0,
        views: bool = False,
        hint: str = "return values that pickle can copy",
    ) -> None:
        self.persistent = persistent
        self._context = context_of(context)
        self._count, self._ahead = count, max(ahead, 1)
        self._longest = max(min(longest, ahead // count), 1)
        self._seed, self._timeout = seed, timeout
        self._spare = self._ahead // (count * self._longest) + _SPARE
        self._work: dict[str, Any] = {"begin": begin, "setup": setup, "init": init, "views": views, "hint": hint}
        self._work.update(count=count, longest=self._longest)
        self._counted = Counted()
        self._workers: list[_Worker] = []
        self._run = 0
        self._owner = Owner()
        # Also at this process's exit, before multiprocessing waits for daemons that ignore its SIGTERM.
        Finalize(self, _end, (self._workers, self._owner), exitpriority=0)

    def run(
        self, tasks: Iterable[Task], waiting: Waiting = UNMEASURED, stop: Stop | None = None
    ) -> Generator[tuple[Task, Any], None, None]:
        stop = stop or Stop()
        owner, steady = self._owner, False  # whether all messages are whole
        self._run += 1
        run, number = self._run, 0
        chunks = Chunks(tasks, chunk_lengths(self._count, self._longest))
        line, out, error = deque[tuple[_Worker, list[Task]]](), 0, None  # `out`: tasks not yet handed out
        try:
            with waiting:
                self.start()
            steady = True
            while not stop.asked:
                while error is None and (out == 0 or out + chunks.length <= self._ahead):
                    try:
                        chunk = next(chunks)
                    except StopIteration:
                        break
                    except Exception as planning:
                        error = planning
                        break
                    steady = False
                    worker = self._workers[number % self._count]
                    worker.ask(run, chunk)
                    line.append((worker, chunk))
                    number, out, steady = number + 1, out + len(chunk), True
                if not line:
                    if error is not None:
                        raise error
                    return
                worker, chunk = line.popleft()
                steady = False
                with waiting:
                    results = worker.results(run, self._timeout, stop)
                steady = True
                if results is None:
                    return
                for task in chunk:
                    yield task, next(results)
                    if not owner.here:
                        raise RuntimeError("the workers belong to the parent: begin another iteration after a fork")
                    if self._run != run:
                        raise RuntimeError("another run has begun: this one cannot continue")
                out -= len(chunk)
        except GeneratorExit:
            raise
        except BaseException:  # workers may be dead or hanging
            steady = False
            raise
        finally:
            if owner.here and self._run == run:
                if not steady or not self.persistent:
                    self.close()
                elif line or stop.asked:
                    self._leave(run)

    @property
    def totals(self) -> tuple[int, ...]:
        return self._counted.totals

    def close(self) -> None:
        """Ask the workers to end, and kill those that have not ended within a second."""
        if self._workers:
            self._counted = self._counted.then()
        _end(self._workers, self._owner)

    def start(self) -> None:
        """Start the workers, unless they are running."""
        if self._workers:
            return
        rows = Rows(self._count)
        self._counted = self._counted.then(rows)
        work = Sealed(Work(**self._work, seed=self._seed(), rows=rows))
        try:
            with naming_limits("the pipes of worker processes"), holding_interrupts(self._context):
                for number in range(self._count):
                    self._workers.append(_Worker(work, number, self._context, self._spare))
        except BaseException as error:  # some workers do not serve a run that needs all
            self.close()
            if isinstance(error, Exception):
                raise _not_started(error, self._context.get_start_method()) from error
            raise

    def _leave(self, run: int) -> None:
        try:
            for worker in self._workers:
                worker.ask(run, None)
        except BaseException:
            self.close()
            raise


def context_of(context: str | BaseContext | None) -> BaseContext:
    """Return the multiprocessing context; the platform's default for None. Raise UsageError."""
    if context is not None and not isinstance(context, str | BaseContext):
        expected = "fork, spawn, forkserver, or a context of multiprocessing"
        raise UsageError("multiprocessing_context is invalid", found=shown(context), expected=expected)
    if isinstance(context, BaseContext):
        return context
    if context is not None and context not in multiprocessing.get_all_start_methods():
        expected = ", ".join(multiprocessing.get_all_start_methods())
        raise UsageError("unknown multiprocessing_context", found=shown(context), expected=expected)
    return multiprocessing.get_context(context)


class _Worker:
    """A worker process, seen from its parent."""

    def __init__(self, work: Sealed, number: int, context: BaseContext, spare: int) -> None:
        self._number, self._method = number, context.get_start_method()
        self._slots = SlotReader(spare)
        self._began = False
        self._requests, theirs = context.Pipe()
        self._answers, answers = context.Pipe()
        _ours.update((self._requests, self._answers))
        # A daemon, like PyTorch's workers: it cannot start multiprocessing processes.
        process: BaseProcess = context.Process(  # type: ignore[attr-defined]  # of each context
            target=serve, args=(work, number, theirs, answers), name=f"mdsx-worker-{number}", daemon=True
        )
        try:
            process.start()
        except Exception:
            self.hang_up()
            raise
        finally:
            theirs.close()
            answers.close()
        self.process = process

    def ask(self, run: int, chunk: list[Any] | None) -> None:
        """Send a request."""
        request = pickle.dumps(Request(run, chunk, *self._slots.returns()), 5)
        with suppress(ConnectionError):  # the worker has ended, which its first task reports
            self._requests.send_bytes(request)

    def results(self, run: int, timeout: float, stop: Stop) -> Generator[Any, None, None] | None:
        """Wait for the worker's next answer of `run`. Return an iterator that yields its results and raises the error
        that follows them, or None if the run was stopped first."""
        while (answer := self._receive(timeout, stop)) is not None:
            memory = self._slots.take({each.slot for each in answer.sent if each.slot >= 0})
            if answer.run == run:
                return _unpacked(answer, memory)
            del memory  # of an abandoned run
        return None

    def hang_up(self) -> None:
        """Ask the worker to end."""
        self._requests.close()
        self._answers.close()

    def _receive(self, timeout: float, stop: Stop) -> Answer | None:
        deadline = time.monotonic() + (timeout or inf)
        while not (ready := wait([self._answers, self.process.sentinel], min(_LOOK, deadline - time.monotonic()))):
            if stop.asked:
                return None
            if time.monotonic() < deadline:
                continue
            hint = "give a larger timeout=, or find out what takes so long in transform"
            raise RuntimeError(f"worker {self._number} made no batch within timeout={timeout:g} seconds; {hint}")
        try:
            if self._answers not in ready and not self._answers.poll():
                raise EOFError
            answer: Answer = pickle.loads(self._answers.recv_bytes())
            for slot, size in answer.new:
                self._slots.add(slot, size, recv_handle(self._answers))
        except (EOFError, ConnectionError):
            raise self._died() from None
        self._began = True
        return answer

    def _died(self) -> RuntimeError:
        """Return the error of a worker that ended."""
        self.process.join(GRACE)
        code, hint = self.process.exitcode, "see its error above, if it printed one"
        if code is not None and code < 0:
            hint = "was it killed because memory ran out?"
        elif not self._began and self._method != "fork":
            hint = f"{_STDIN if _is_on_stdin() else _MAIN}; {UNPICKLED}"
        state = "before its first batch" if not self._began else "while it made a batch"
        return RuntimeError(f"worker {self._number} ended with exit code {code} {state}; {hint}")


_STDIN = "Python cannot start workers by spawn or forkserver from a program on stdin: save it as a file"
_MAIN = "with spawn or forkserver, a script must start workers below `if __name__ == '__main__':`"


def _is_on_stdin() -> bool:
    """Return whether Python reads the program from stdin. Notebooks, prompts and `python -c` have no file at all."""
    return getattr(sys.modules["__main__"], "__file__", None) == "<stdin>"


def _not_started(error: Exception, method: str) -> Exception:
    """Return the error of a worker that cannot be started."""
    if isinstance(error, AssertionError):
        hint = "give num_workers=0: a daemonic process, such as a worker of another pool, may not start processes"
        return UsageError("this process may not start worker processes", hint=hint)
    if isinstance(error, RuntimeError) and "bootstrapping" in str(error):
        return UsageError("a worker would start workers while it imports the script", hint=_MAIN)
    if isinstance(error, pickle.PicklingError | AttributeError | TypeError):
        return UsageError(f"the worker's arguments cannot be pickled for {method!r}: {error}", hint=UNPICKLED)
    return error


def _unpacked(answer: Answer, memory: dict[int, memoryview]) -> Generator[Any, None, None]:
    yield from results_of(found_in(sent, memory) for sent in answer.sent)
    if answer.failure is not None:
        raise answer.failure.again()


def _end(started: list[_Worker], owner: Owner) -> None:
    """Ask workers to end, and kill those that do not in time. Killing is safe at any instant: the kernel releases their
    resources."""
    workers, started[:] = list(started), []
    if not workers or not owner.here:
        return
    deadline = time.monotonic() + GRACE
    for worker in workers:
        worker.hang_up()
    try:
        for worker in workers:
            worker.process.join(max(deadline - time.monotonic(), 0))
    finally:
        for worker in workers:
            if worker.process.is_alive():
                worker.process.kill()
            worker.process.join()
            worker.process.close()


_ours: weakref.WeakSet[Connection] = weakref.WeakSet()
"""The parent's ends of all pipes. A forked child closes them, so that workers notice when the parent ends."""


def _hang_up_in_child() -> None:
    for connection in list(_ours):
        connection.close()
    _ours.clear()


at_fork(after_in_child=_hang_up_in_child)
