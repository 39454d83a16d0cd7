"""The main loop of a worker process.

A thread receives requests, so that the consumer never waits to send one. It also notices when the parent ends, in
whatever way, and then ends the worker.
"""

from __future__ import annotations

import os
import pickle
import signal
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import ForkingPickler, send_handle
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple

from mdsx.base.process import work_for
from mdsx.base.work.contract import Begin, Maker, Several
from mdsx.base.work.counts import Rows
from mdsx.base.work.failures import Failure
from mdsx.base.work.info import WorkerInfo, become
from mdsx.base.work.parcels import pack
from mdsx.base.work.slots import Sent, SlotWriter
from mdsx.errors import UsageError

GRACE = 1.0  # seconds that a worker has to end once asked

UNPICKLED = (
    "with multiprocessing_context='spawn' or 'forkserver', define the function or class in a module that workers can "
    "import, not in a notebook or under `if __name__ == '__main__'`; or give multiprocessing_context='fork'"
)


class Request(NamedTuple):
    """Make the results of `chunk`. Without a chunk: abandon all runs up to `run`."""

    run: int
    chunk: list[Any] | None
    free: list[int]  # slots that the worker may reuse
    dropped: list[int]  # slots that it must never reuse


class Answer(NamedTuple):
    """The results of a chunk, up to `failure` or to where its run was abandoned."""

    run: int
    new: list[tuple[int, int]]  # slots whose descriptors follow, with their sizes
    sent: list[Sent]
    failure: Failure | None


@dataclass(frozen=True)
class Work:
    """A worker's job. `begin` creates its maker, after `setup` and `init`; `longest`: the most tasks of a chunk;
    `views`: memory views in lists stay memory views; `hint`: the way out if a result cannot be pickled."""

    begin: Begin
    count: int
    longest: int
    seed: int
    rows: Rows
    setup: Callable[[WorkerInfo], object] | None
    init: Callable[[int], object] | None
    views: bool
    hint: str


class Sealed:
    """A value that a spawned process unpickles only when it opens it, so that it can report an error of unpickling."""

    def __init__(self, value: Any) -> None:
        self._value, self._pickled = value, b""

    def __getstate__(self) -> bytes:
        assert get_spawning_popen() is not None
        file = BytesIO()
        ForkingPickler(file, 5).dump(self._value)
        return file.getvalue()

    def __setstate__(self, pickled: bytes) -> None:
        self._value, self._pickled = None, pickled

    @property
    def is_copy(self) -> bool:
        """Whether this is in the spawned process."""
        return bool(self._pickled)

    def open(self) -> Any:
        return pickle.loads(self._pickled) if self._pickled else self._value


def serve(work: Sealed, number: int, requests: Any, answers: Any) -> None:
    """Answer requests until the parent ends or closes the pipe. Ignore Ctrl-C, which a terminal sends to all processes,
    and SIGTERM, which a scheduler sends to all of a job: the parent decides, and may want more batches."""
    for ending in (signal.SIGINT, signal.SIGTERM):  # a forked worker would have the parent's handlers
        signal.signal(ending, signal.SIG_IGN)
    inbox = _Inbox(requests)
    maker, failure = None, None
    longest, views, hint = 1, False, ""
    try:
        opened: Work = work.open()
        longest, views, hint = opened.longest, opened.views, opened.hint
        work_for(opened.rows.row(number))
        info = become(number, opened.count, opened.seed)
        if opened.setup is not None:
            opened.setup(info)
        if opened.init is not None:
            opened.init(number)
        maker = opened.begin(number)
    except BaseException as error:
        if isinstance(error, AttributeError | ImportError | pickle.UnpicklingError) and work.is_copy:
            error.add_note(f"mdsx: {UNPICKLED}")
        failure = Failure.of(error)
    outbox = _Outbox(answers, longest, views, hint)
    try:
        while (request := inbox.next()) is not None:
            outbox.slots.returned(request.free, request.dropped)
            if request.chunk is not None:
                outbox.answer(request.run, request.chunk, maker, failure, inbox)
    except ConnectionError:  # the parent closed the pipe or ended
        pass
    finally:
        if maker is not None:
            maker.close()


class _Inbox:
    """The parent's requests. `left`: the last run that it has abandoned."""

    def __init__(self, requests: Any) -> None:
        self.left, self.over = -1, False
        self._queue: SimpleQueue[Request | None] = SimpleQueue()
        self._requests = requests
        Thread(target=self._receive, name="mdsx-requests", daemon=True).start()

    def next(self) -> Request | None:
        return self._queue.get()

    def stopped(self, run: int) -> bool:
        """Whether the parent has abandoned `run`."""
        return self.over or run <= self.left

    def _receive(self) -> None:
        try:
            while True:
                request: Request = pickle.loads(self._requests.recv_bytes())
                if request.chunk is None:
                    self.left = request.run
                self._queue.put(request)
        except (EOFError, OSError):  # the parent closed the pipe or ended
            pass
        except BaseException:  # the parent reports that this worker ended, and where to look
            traceback.print_exc()
        self.over = True
        self._queue.put(None)
        time.sleep(GRACE)  # then a parent that is alive kills this process
        os._exit(1)


class _Outbox:
    """Makes answers and sends them."""

    def __init__(self, answers: Any, longest: int, views: bool, hint: str) -> None:
        self.slots = SlotWriter()
        self._answers, self._longest, self._views, self._hint = answers, longest, views, hint

    def answer(
        self, run: int, chunk: list[Any], maker: Maker[Any, Any] | None, failure: Failure | None, inbox: _Inbox
    ) -> None:
        """Send the maker's results of a chunk, or only `failure`."""
        sent, made = list[Sent](), None
        self.slots.begin()
        try:
            if maker is not None and not inbox.stopped(run):
                made = maker(chunk)
                more = len(chunk)
                while more > 0 and not inbox.stopped(run):
                    result = next(made)
                    results = len(result.cuts) if type(result) is Several else 1
                    more -= results
                    sent.append(self._put(result, -(-self._longest // results)))
        except StopIteration:
            failure = Failure.of(RuntimeError("a maker yielded fewer results than it had tasks"))
        except BaseException as error:
            failure = Failure.of(error)
        new, self.slots.new = self.slots.new, []
        answer = Answer(run, [(slot, size) for slot, size, _ in new], sent, failure)
        self._answers.send_bytes(pickle.dumps(answer, 5))
        for _, _, descriptor in new:
            send_handle(self._answers, descriptor, os.getppid())
            os.close(descriptor)
        with suppress(BaseException):  # closing the maker comes after the answer: the consumer does not wait for it
            getattr(made, "close", int)()

    def _put(self, result: Any, longest: int) -> Sent:
        try:
            parcel = pack(result, views=self._views)
        except Exception as error:
            raise UsageError(f"a worker's result cannot be pickled: {error}", hint=self._hint) from error
        return self.slots.put(parcel, longest)
