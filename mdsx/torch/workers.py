"""The worker processes of a loader, as its own process sees them: requests, answers, and their end."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate, count, islice, pairwise, zip_longest
from multiprocessing.process import BaseProcess
from traceback import clear_frames
from typing import Any, TypedDict

from torch.utils.data import DataLoader, _utils

from mdsx.stream import Batching, Task
from mdsx.torch.assembly import tensors
from mdsx.torch.rank_data import RankData
from mdsx.torch.skipping import Short
from mdsx.torch.slots import Slots
from mdsx.torch.worker import Answer, Ask, BeginWorker, Failed, Worker, unpacked

_SLOTS = 4  # for each worker: two that it fills, as PyTorch asks ahead, and two that were handed out
_GRACE = 1.0  # seconds


class WorkerOptions(TypedDict, total=False):
    """Options of PyTorch's `DataLoader` for worker processes, for `StreamingDataLoader(num_workers=n)` with n > 0.

    Attributes:
        prefetch_factor: Batches that each worker prepares ahead.
        persistent_workers: Whether workers stay for the next epoch.
        multiprocessing_context: "fork", "spawn", "forkserver", or a context of `multiprocessing`.
        worker_init_fn: Called in each worker with its number.
        timeout: Seconds to wait for a batch from a worker; 0 waits for ever.
    """

    prefetch_factor: int | None
    persistent_workers: bool
    multiprocessing_context: Any
    worker_init_fn: Callable[[int], None] | None
    timeout: float


class Workers:
    """`count` worker processes. A copy, also by pickle, starts its own."""

    def __init__(self, number: int, options: WorkerOptions) -> None:
        self._number = number
        self._options: dict[str, Any] = {
            **options,
            "num_workers": number,
            "worker_init_fn": BeginWorker(options.get("worker_init_fn")),
        }
        self._started: tuple[DataLoader[Any], _Asks] | None = None
        self._batching: Batching | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_started": None, "_batching": None}

    def forget(self) -> None:
        """Start new processes for the next iteration, even if the present ones persist."""
        self._started = None

    def batches(self, data: RankData, batching: Batching, epoch: int, position: int) -> Generator[Any, None, None]:
        """Yield the batches from there to the epoch's end."""
        broken = True
        while broken:  # after a broken run, make the next batch alone: it raises the error in its place
            workers, asks = self._start(data, batching)
            asks.start(batching, epoch, position)
            broken, answers = False, None
            try:
                answers = iter(workers)
                while (answer := _next(answers)) is not None:
                    for batch in asks.batches(answer, data):
                        position += batching.global_batch
                        yield batch
                    if broken := answer.broken:
                        break
            except BaseException as error:
                clear_frames(error.__traceback__)  # PyTorch's frames are in a cycle that would keep the workers
                if not isinstance(error, GeneratorExit):  # some may be dead, or hang
                    self.forget()
                raise
            finally:
                stay = workers.persistent_workers and self._started is not None
                with _end_soon(None if stay else answers):
                    del answers, workers

    def _start(self, data: RankData, batching: Batching) -> tuple[DataLoader[Any], _Asks]:
        """Start new processes unless they persist: the old ones may still write to their slots."""
        if self._started is None or self._batching != batching or not self._started[0].persistent_workers:
            size = data.together(batching)
            slots = None if data.one_by_one else Slots(self._number * _SLOTS, _slot_bytes(data, batching, size))
            asks = _Asks(self._number, size, slots)
            data.warn_of_costs(batching)
            views = slots is not None or data.zero_copy
            reader = data.reader(batching, self._number, views=views, stand_in=data.one_by_one)
            worker = Worker(data, reader, slots)
            workers = DataLoader(worker, batch_size=None, sampler=asks, collate_fn=_as_it_is, **self._options)
            self._started, self._batching = (workers, asks), batching
        return self._started


def _slot_bytes(data: RankData, batching: Batching, batches: int) -> int:
    """Return room for a run: its fixed-size columns, and one and a half times its average encoded bytes."""
    columns = [column.type for column in data.view.schema.columns]
    fixed = sum(kind.nbytes * batching.batch_size + 64 for kind in columns if kind.fixed_size)
    encoded = any(kind.base in ("bytes", "jpeg", "png") for kind in columns)
    return batches * (fixed + (data.batch_bytes(batching) * 3 // 2 if encoded else 0))


class _Asks:
    """The sampler of the workers: the batches of the new iteration, in runs that grow from one batch each."""

    def __init__(self, workers: int, together: int, slots: Slots | None) -> None:
        self.slots = slots
        self._workers, self._together = workers, together
        self._tasks: Iterator[Task] = iter(())

    def start(self, batching: Batching, epoch: int, position: int) -> None:
        """Begin at (epoch, position), up to its end."""
        self._tasks = batching.tasks(epoch, position)

    def batches(self, answer: Answer, data: RankData) -> Iterator[Any]:
        """Yield the batches of an answer, or raise its error."""
        if isinstance(answer.made, Failed):
            raise answer.made.again()
        if self.slots is None:
            yield unpacked(answer.made)
            return
        columns = self.slots.take(answer.slot, answer.made, views=data.zero_copy)
        columns = tensors(data.view.schema, columns)
        edges = pairwise(accumulate(answer.sizes, initial=0))
        for (start, stop), skipped in zip_longest(edges, answer.skipped):
            batch = {name: values[start:stop] for name, values in columns.items()}
            yield Short(batch, skipped) if skipped else batch

    def __iter__(self) -> Iterator[Ask]:
        if self.slots is not None:  # persistent workers have dropped the requests of earlier iterations
            self.slots.release_all()
        for number in count():
            run = list(islice(self._tasks, min(2 ** min(number // self._workers, 30), self._together)))
            if not run:
                return
            yield Ask(run, self.slots.reserve() if self.slots is not None else None)


def _next(answers: Any) -> Answer | None:
    """Return the next answer, or None at the end.

    When a worker dies, PyTorch raises an error wherever the main thread is. Allow that only here, where the loader
    waits for a batch, and not in the middle of the user's code.
    """
    signals: Any = _utils.signal_handling
    if not answers._worker_pids_set:
        signals._set_worker_pids(id(answers), tuple(worker.pid for worker in answers._workers))
        answers._worker_pids_set = True
        signals._error_if_any_worker_fails()  # one that died in between
    try:
        answer: Answer | None = next(answers, None)
        return answer
    finally:
        if answers._worker_pids_set:  # not after the last answer, when they end
            signals._remove_worker_pids(id(answers))
            answers._worker_pids_set = False


@contextmanager
def _end_soon(answers: Any) -> Iterator[None]:
    """Wait one second for all busy workers before killing them; PyTorch waits five for each.

    A worker may be killed at any instant: the kernel releases what it holds.
    """
    workers: Sequence[BaseProcess] = getattr(answers, "_workers", ())
    if getattr(answers, "_worker_pids_set", False):  # a worker found dead now would interrupt the shutdown
        _utils.signal_handling._remove_worker_pids(id(answers))  # type: ignore[attr-defined]  # PyTorch's C
        answers._worker_pids_set = False
    del answers
    before = _utils.MP_STATUS_CHECK_INTERVAL
    _utils.MP_STATUS_CHECK_INTERVAL = _GRACE / max(len(workers), 1)
    try:
        yield
    finally:
        _utils.MP_STATUS_CHECK_INTERVAL = before
    for worker in workers:
        worker.join(before)  # PyTorch asked it to end, and kills it if it does not


def _as_it_is(batch: Any) -> Any:
    return batch
