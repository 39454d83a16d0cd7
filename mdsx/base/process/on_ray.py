"""Tasks on a Ray cluster: the counterpart of `pool.py`.

Rules:
- Ray retries a task whose worker or node dies. So a task must be safe to repeat, even while the attempt that Ray
  believes dead is still running. A report has the totals of its task so far, not increments.
- Reports go through one actor on the caller's node. Each task sends its reports twice a second, in one message.
- A task returns its error as a result, so that Ray neither retries nor wraps it. The first error ends all other tasks.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, TypeAlias

from mdsx.base.process.pool import Report, Result, Task, Work
from mdsx.base.process.ray_nodes import cause, check_nodes, import_ray, joined, on_node
from mdsx.errors import MdsxError, UsageError

_RETRIES = 5  # of a task whose worker or node died
_PENDING = 1000  # tasks submitted to Ray: more than a cluster runs at once, so that it can scale up
_POLL, _SEND_EVERY = 0.2, 0.5  # seconds
_MOST_MESSAGES = 1000  # that a task collects before it sends them
_ENDING = 30.0  # seconds to wait for cancelled tasks

_Messages: TypeAlias = list[tuple[Any, ...]]


def map_on_ray(
    work: Work[Task, Result],
    tasks: Sequence[Task],
    at_once: int | None,
    report: Report,
    *,
    name: str,
    paths: Iterable[str] = (),
) -> list[Result]:
    """Return the results of `work` for each task, in order. Up to `at_once` Ray tasks run concurrently, by default as
    many as the cluster has CPUs.

    Use the cluster that this process has joined. Otherwise join the one that `ray.init()` finds, or start one on this
    machine, and leave it at the end. `report` is called in this process with the reports of the tasks. `name`: the name
    of the Ray tasks. `paths`: local files and folders that every node must have.

    Raise the first MdsxError of a task; UsageError if a node lacks a path or has other versions; MdsxError if a task's
    workers die repeatedly.
    """
    if not tasks:
        return []
    ray = import_ray()
    with joined(ray):
        check_nodes(ray, paths)
        with _Run(ray, work, report, name) as run:
            return run.map(tasks, at_once or _PENDING)


# --- the tasks


class _Mailbox:
    """A Ray actor that keeps the reports of tasks until the caller takes them."""

    def __init__(self) -> None:
        self._messages: _Messages = []

    def put(self, messages: _Messages) -> None:
        self._messages += messages

    def take(self) -> _Messages:
        messages, self._messages = self._messages, []
        return messages


class _Sender:
    """Sends the reports of a task to the mailbox in batches."""

    def __init__(self, mailbox: Any) -> None:
        self._mailbox, self._sent, self._at = mailbox, None, time.monotonic()
        self._messages: _Messages = []

    def __call__(self, *values: Any) -> None:
        self._messages.append(values)
        if len(self._messages) >= _MOST_MESSAGES or time.monotonic() - self._at > _SEND_EVERY:
            self.send()

    def send(self) -> None:
        self.wait()
        self._sent = self._mailbox.put.remote(self._messages)
        self._messages, self._at = [], time.monotonic()

    def deliver(self) -> None:
        """Send all pending reports, and wait until the mailbox has them."""
        if self._messages:
            self.send()
        self.wait()

    def wait(self) -> None:
        """Wait until the mailbox has the reports that were sent. If it dies, its reports are lost, but not the task."""
        if self._sent is not None:
            ray = import_ray()
            with suppress(ray.exceptions.RayActorError):
                ray.get(self._sent)


def _attempt(work: Work[Task, Result], task: Task, mailbox: Any) -> tuple[Result | None, MdsxError | None]:
    """Do a task. Return its result, or its error."""
    report = _Sender(mailbox)
    try:
        return work(task, report), None
    except MdsxError as error:
        return None, error
    finally:
        report.deliver()


class _Run:
    """The tasks of one call. A context manager, whose exit cancels all tasks that remain."""

    def __init__(self, ray: Any, work: Work[Any, Any], report: Report, name: str) -> None:
        self._ray, self._report = ray, report
        self._running: dict[Any, int] = {}
        try:
            self._work = ray.put(work)
        except (TypeError, AttributeError) as error:
            hint = "the function and the inputs must not hold open files, locks or connections"
            raise UsageError(f"the work cannot be pickled for the cluster: {error}", hint=hint) from None
        here = on_node(ray, ray.get_runtime_context().get_node_id())
        actor = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1, scheduling_strategy=here)(_Mailbox)
        self._mailbox = actor.remote()
        self._attempt = ray.remote(num_cpus=1, max_retries=_RETRIES)(_attempt).options(name=name)

    def map(self, tasks: Sequence[Any], at_once: int) -> list[Any]:
        results: dict[int, Any] = {}
        left = iter(enumerate(tasks))
        while len(results) < len(tasks):
            for number, task in islice(left, at_once - len(self._running)):
                self._running[self._attempt.remote(self._work, task, self._mailbox)] = number
            self._ray.wait(list(self._running), timeout=_POLL)
            done, _ = self._ray.wait(list(self._running), num_returns=len(self._running), timeout=0)
            self._deliver()
            for reference in done:
                results[self._running.pop(reference)] = self._result(reference)
        self._deliver()
        return [results[number] for number in range(len(tasks))]

    def _deliver(self) -> None:
        for values in self._ray.get(self._mailbox.take.remote()):
            self._report(*values)

    def _result(self, reference: Any) -> Any:
        """Return the result of a finished task. Raise its error."""
        try:
            result, error = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as failed:
            raise MdsxError(f"a task failed on the cluster: {cause(failed)}") from failed
        except self._ray.exceptions.RayError as lost:
            hint = "out of memory? rerun with fewer processes, or give Ray's workers more"
            raise MdsxError(f"the workers of a task died {_RETRIES + 1} times: {lost}", hint=hint) from lost
        if error is not None:
            raise error
        return result

    def __enter__(self) -> _Run:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(self._ray.exceptions.RayError):
            for reference in self._running:
                self._ray.cancel(reference, force=True)
            if self._running:  # the next run must be able to continue from the state that they leave
                self._ray.wait(list(self._running), num_returns=len(self._running), timeout=_ENDING)
            self._ray.kill(self._mailbox)
