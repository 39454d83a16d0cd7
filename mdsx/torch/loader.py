"""StreamingDataLoader: a rank's batches, ready ahead, with a state that resumes exactly.

The loader alone knows the position: it gives out tasks `(epoch, start, stop)`, to a thread or to worker processes, and
counts what `next()` returns. So what was prepared ahead is never lost, and the state fits any number of workers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from multiprocessing.process import BaseProcess
from traceback import clear_frames
from typing import Any
from weakref import WeakSet, ref

# NumPy imports these two when they are first used. They must be there before workers are forked: what a worker inherits
# of other loaders may be collected during an import, and break it.
import numpy.ma
import numpy.random  # noqa: F401
import torch
from torch.utils.data import DataLoader, _utils
from torch.utils.data._utils.pin_memory import pin_memory as pin

from mdsx.errors import UsageError
from mdsx.order import Weight
from mdsx.stream import Background, Batching, Phases, Task
from mdsx.torch.batches import Collate
from mdsx.torch.dataset import StreamingDataset, check_tail
from mdsx.torch.handover import Asks, BeginWorker, Produce, Worker
from mdsx.torch.slots import Slots

_READY_BYTES = 2**23  # batches kept ready by the thread, at about this many bytes
_READY_BATCHES = 64
_TOGETHER_BYTES = 2**21
_TOGETHER = 16
_GRACE = 1.0  # seconds
_SLOTS = 4  # for each worker: two that it fills, as PyTorch asks ahead, and two with what was handed out


class StreamingDataLoader:
    """Iterates `dataset` epoch by epoch: `for batch in loader` is one epoch, or what is left of it after a resume.

    - `batch_size`: samples per rank; the global batch is that times the world size.
    - `num_workers`: 0 prepares batches in a background thread, which is the fast way unless `transform` is heavy;
      n > 0 in n processes. Neither changes which samples are in a batch.
    - `drop_last`: leave out the samples that do not fill the epoch's last batch; else they are split over the ranks.
    - `collate_fn`: list of samples -> batch; default PyTorch's where the dataset has a `transform`. Without either, a
      batch is a dict of columns: fixed-size ones as tensors [n, ...], variable-size ones as lists of n values.
    - `pin_memory`, `prefetch_factor`, `persistent_workers`, `multiprocessing_context`, `worker_init_fn`, `timeout`: as
      for PyTorch's DataLoader.

    An exception (of `transform`, say) comes out of `next()` in its place; the position does not advance, and `next()`
    may be called again.
    """

    def __init__(
        self,
        dataset: StreamingDataset,
        batch_size: int,
        num_workers: int = 0,
        drop_last: bool = True,
        collate_fn: Collate | None = None,
        pin_memory: bool = False,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        multiprocessing_context: Any = None,
        worker_init_fn: Callable[[int], None] | None = None,
        timeout: float = 0,
    ) -> None:
        if not isinstance(dataset, StreamingDataset):
            raise UsageError("the dataset is not a StreamingDataset", found=type(dataset).__name__)
        if dataset.batch_size is not None and dataset.batch_size != batch_size:
            raise UsageError("batch_size differs from the dataset's", found=batch_size, expected=dataset.batch_size)
        if num_workers < 0:
            raise UsageError("num_workers must be at least 0", found=num_workers)
        self.dataset = dataset
        self.batch_size = batch_size
        self.num_workers = num_workers
        self.drop_last = drop_last
        self.collate_fn = collate_fn
        self.pin_memory = pin_memory
        Batching(dataset.course.epoch_samples, batch_size, 1, drop_last)  # checks it now, not in the first epoch
        self._begun: Batching | None = None
        self._progress = copy(dataset.progress)  # the loader goes on by itself
        self._last: ref[_Epoch] | None = None  # weak: an iteration ends where its user drops it
        self._worker_options = {
            "num_workers": num_workers,
            "prefetch_factor": prefetch_factor,
            "persistent_workers": persistent_workers,
            "multiprocessing_context": multiprocessing_context,
            "worker_init_fn": BeginWorker(worker_init_fn),
            "timeout": timeout,
        }
        self._workers: tuple[DataLoader[Any], Asks] | None = None
        self._workers_batching: Batching | None = None
        if num_workers == 0 and (prefetch_factor is not None or persistent_workers):
            raise UsageError("prefetch_factor and persistent_workers need num_workers > 0")

    @property
    def _batching(self) -> Batching:
        """As the ranks are now, which may be known only after the loader was made; in an iteration, as it began."""
        return self._begun or self.dataset.batching(self.batch_size, self.drop_last)

    @property
    def epoch(self) -> int:
        """The epoch in which the next batch lies: 0 at first, the state's after a resume."""
        return self._progress.epoch

    @property
    def remaining(self) -> int:
        """Batches left in that epoch."""
        return self._batching.count(self._progress.position)

    def __len__(self) -> int:
        """Batches of a whole epoch, the same on every rank."""
        return self._batching.count()

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is of `epoch`, from its start (or from a position in it that was loaded).

        So is one from which no batch was taken yet.
        """
        self._leave()
        self._progress.set_epoch(epoch)

    @property
    def sampler(self) -> StreamingDataLoader:
        """Itself: frameworks call `loader.sampler.set_epoch(epoch)` before each epoch."""
        return self

    def state_dict(self) -> dict[str, Any]:
        """Where the run stands: a few numbers, the same on every rank after the same number of batches."""
        return self.dataset.identity.state(self._progress.epoch, self._progress.position)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next iteration goes on where `state` stands, on any number of ranks and workers, with any batch size.

        An iteration from which no batch was taken yet goes on there too. Raises StateError that names the field where
        the state is of another dataset or order.
        """
        epoch, position, phases = self.dataset.identity.check(state)
        self._leave()
        self._progress.load(epoch, position)
        self._use_phases(phases)

    def reweight(self, proportions: Sequence[Weight] | Mapping[str, Weight]) -> None:
        """From the next batch on, the components of the dataset's mixture have these proportions.

        A list in the order of the components, or a mapping from their names. Each component goes on where it stands.
        Call it on every rank at the same place, between two batches or two epochs; the state carries it.
        """
        before = self.dataset.phases
        self.dataset.reweight_at(proportions, self._progress)
        if self.dataset.phases != before:
            self._restart()

    def _use_phases(self, phases: Phases) -> None:
        if phases != self.dataset.phases:
            self.dataset.use_phases(phases)
            self._restart()

    def _restart(self) -> None:
        """Drop what was prepared in the order before."""
        if (iteration := self._iteration) is not None:
            iteration.reopen()
        self._workers = None

    def __iter__(self) -> Iterator[Any]:
        self._stop()
        batching = self._batching
        check_tail(batching, self._progress.position, per_sample=self._per_sample)
        self._progress.begin(batching)
        self._begun = batching
        iteration = _Epoch(self)
        self._last = ref(iteration)
        return iteration

    def _start_workers(self) -> tuple[DataLoader[Any], Asks]:
        """New ones, unless they persist: what those before were asked for may still be written to their slots."""
        batching = self._batching
        if self._workers is None or self._workers_batching != batching or not self._workers[0].persistent_workers:
            slots = None if self._per_sample else Slots(self.num_workers * _SLOTS, self._slot_bytes)
            asks = Asks(self.num_workers, self._together, slots)
            reader = self.dataset.reader(batching, self.num_workers, views=slots is not None or self.dataset.zero_copy)
            worker = Worker(self.dataset, reader, self.collate_fn, slots)
            workers = DataLoader(worker, batch_size=None, sampler=asks, collate_fn=_as_it_is, **self._worker_options)
            self._workers, self._workers_batching = (workers, asks), batching
        return self._workers

    @property
    def _iteration(self) -> _Epoch | None:
        """The one that was begun last, where it still is."""
        return self._last() if self._last is not None else None

    def _leave(self) -> None:
        """Leave the iteration, unless nothing was taken from it yet: then it starts anew, where it will."""
        if (iteration := self._iteration) is not None and iteration.fresh:
            iteration.reopen()
        else:
            self._stop()

    def _stop(self) -> None:
        if (iteration := self._iteration) is not None:
            iteration.stop()
        self._last = self._begun = None

    def _open(self) -> Generator[Any, None, None]:
        """Batches from where the run stands to the epoch's end, prepared ahead."""
        return self._from_workers() if self.num_workers > 0 else self._from_thread()

    def _from_thread(self) -> Generator[Any, None, None]:
        tasks = self._batching.tasks(self._progress.epoch, self._progress.position)
        size, together = self._batch_bytes, self._together
        produce = Produce(self.dataset, self.dataset.reader(self._batching), tasks, self.collate_fn, together)
        depth = min(max(_READY_BYTES // max(size, 1), 2), _READY_BATCHES)
        background = Background(produce, max(depth // together, 1))
        try:
            for batches in background:
                yield from batches
        finally:
            background.close()

    def _from_workers(self) -> Generator[Any, None, None]:
        broken = True
        while broken:  # where a run breaks off, what comes next is made by itself: its error comes in its place
            workers, asks = self._start_workers()
            asks.start(self._batching, self._progress.epoch, self._progress.position)
            broken, answers = False, None
            try:
                answers = iter(workers)
                for answer in answers:
                    yield from asks.batches(answer, self.dataset)
                    if broken := answer.broken:
                        break
            except BaseException as error:
                clear_frames(error.__traceback__)  # PyTorch's are in a cycle, which would keep the workers
                if not isinstance(error, GeneratorExit):  # some of them may be dead, or stand
                    self._workers = None
                raise
            finally:
                stay = workers.persistent_workers and self._workers is not None
                with _end_soon(None if stay else answers):
                    del answers, workers

    @property
    def _together(self) -> int:
        """Batches that cross threads or processes together: what hands them over costs as much as copying 100 kB."""
        if self._per_sample:
            return 1
        return min(max(_TOGETHER_BYTES // max(self._batch_bytes, 1), 1), _TOGETHER)

    @property
    def _per_sample(self) -> bool:
        """Whether samples are made one by one, not columns."""
        return self.dataset.transform is not None or self.collate_fn is not None

    @property
    def _slot_bytes(self) -> int:
        """Room for a run: all of its fixed-size columns, and one and a half times the average of encoded bytes."""
        columns = [column.type for column in self.dataset.view.schema.columns]
        fixed = sum(kind.nbytes * self.batch_size + 64 for kind in columns if kind.fixed_size)
        encoded = any(kind.base in ("bytes", "jpeg", "png") for kind in columns)
        return self._together * (fixed + (self._batch_bytes * 3 // 2 if encoded else 0))

    @property
    def _batch_bytes(self) -> int:
        return self.dataset.view.sample_bytes * self.batch_size


class _Epoch(Iterator[Any]):
    """One iteration over what is left of an epoch; in a forked child, which has none of its threads, it is dead."""

    def __init__(self, loader: StreamingDataLoader) -> None:
        _alive.add(self)
        self._pid = os.getpid()
        self.fresh = True  # no batch was taken yet
        self._loader = loader
        self._epoch = loader._progress.epoch
        self._source: Generator[Any, None, None] | None = None
        self._over = False
        self._left = False

    def __next__(self) -> Any:
        loader, progress = self._loader, self._loader._progress
        if self._pid != os.getpid():
            raise UsageError("this iteration belongs to the process that began it", hint="begin one in this process")
        if self._left:
            raise UsageError("this iteration was left: another one was begun, or a state loaded, on its loader")
        if self.fresh:
            self._epoch = progress.epoch
        if not self._over and loader.remaining == 0:
            progress.end()
            self._over = True
        if self._over:
            raise StopIteration
        try:
            if self._source is None:
                self._source = loader._open()
            batch = next(self._source)
            if loader.pin_memory and torch.cuda.is_available():
                batch = pin(batch)  # type: ignore[no-untyped-call]  # PyTorch's own, untyped
        except BaseException as error:
            self._close()
            if isinstance(error, StopIteration):
                raise RuntimeError("the batches ended before the epoch did") from error
            raise
        self.fresh = False
        start = progress.position
        stop = min(start + loader._batching.global_batch, loader._batching.samples)
        progress.hand_out(Task(self._epoch, start, stop), loader._batching)
        if progress.epoch != self._epoch:
            self._over = True
            self._close()
        return batch

    def reopen(self) -> None:
        """The next batch is made anew."""
        self._close()

    def stop(self) -> None:
        """Leave this iteration."""
        self._left = not self._over
        self._close()

    def _close(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            source.close()

    def __del__(self) -> None:
        self._close()


_alive: WeakSet[_Epoch] = WeakSet()
_of_the_parent: list[Any] = []


def _forget_in_child() -> None:
    """What a parent's iterations began is kept for ever: to end it here would end the parent's workers."""
    _of_the_parent.extend(iteration._source for iteration in _alive)
    for iteration in _alive:
        iteration._source = None


os.register_at_fork(after_in_child=_forget_in_child)


@contextmanager
def _end_soon(answers: Any) -> Iterator[None]:
    """PyTorch waits five seconds for each worker that is at something, before it ends it; here one for all of them.

    A worker may be ended at any instant: what it holds is the kernel's to give back.
    """
    workers: Sequence[BaseProcess] = getattr(answers, "_workers", ())
    if getattr(answers, "_worker_pids_set", False):  # one that is found dead meanwhile would break off the ending
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
        worker.join(before)  # it was told to end, and so killed, if need be


def _as_it_is(batch: Any) -> Any:
    return batch
