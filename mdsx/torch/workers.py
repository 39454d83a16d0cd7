"""The worker processes of a loader: requests, answers, and their end.

A worker maps each request for a run of batches to its answer. The rest, `Workers`, is in the loader's process.
"""

from __future__ import annotations

import multiprocessing
import pickle
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import accumulate, pairwise, repeat
from multiprocessing.reduction import ForkingPickler
from traceback import clear_frames, format_exception
from typing import Any, NamedTuple, TypedDict

from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from mdsx.errors import CorruptError, UsageError
from mdsx.loader import BatchMaker, PackedBatch, RankData, Short, presented, presented_info, skipped_lines
from mdsx.process import Counter, Counters, end_with_parent, work_for
from mdsx.shards import Columns, joined
from mdsx.stream import INFO_FIELDS, Batch, Meter, Place, RankReader, Steps, Task, in_lists, run_sizes
from mdsx.torch.dataloader import ending_soon, next_answer
from mdsx.torch.slots import SharedMemory, Slots
from mdsx.warn import leave_warnings_to_others

_ROW = 8 * len(Counter)  # bytes of a worker's counts
_PAGE = 4096
_SLOTS = 4  # for each worker: two that it fills, as PyTorch asks ahead, and two that were handed out


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
        self._options: dict[str, Any] = {**options, "num_workers": number}
        self._counted = _Counted.before(None)
        self._started: tuple[DataLoader[Any], _Asks] | None = None
        self._batching: Steps | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_started": None, "_batching": None, "_counted": _Counted.before(None)}

    @property
    def totals(self) -> tuple[int, ...]:
        """Return what all workers so far have counted, a total for each Counter."""
        return self._counted.totals

    def forget(self) -> None:
        """Start new processes for the next iteration, even if the present ones persist."""
        self._started = None

    def batches(
        self, data: RankData, batching: Steps, epoch: int, place: Place, meter: Meter
    ) -> Generator[tuple[Task, Any], None, None]:
        """Yield the tasks from there to the epoch's end with their batches. `meter` measures waiting for workers."""
        broken, waiting = True, meter.waiting
        while broken:  # after a broken run, make the next batch alone: it raises the error in its place
            workers, asks = self._start(data, batching, data.reached(epoch, place))
            asks.start(batching, epoch, place)
            broken, answers = False, None
            try:
                with waiting:
                    answers = iter(workers)
                while True:
                    with waiting:
                        answer = next_answer(answers)
                    if answer is None:
                        asks.check()
                        break
                    for task, batch in asks.batches(answer, data):
                        epoch, place = batching.after(task)
                        yield task, batch
                    if broken := answer.broken:
                        break
            except BaseException as error:
                clear_frames(error.__traceback__)  # PyTorch's frames are in a cycle that would keep the workers
                if not isinstance(error, GeneratorExit):  # some may be dead, or hang
                    self.forget()
                raise
            finally:
                asks.stop()
                stay = workers.persistent_workers and self._started is not None
                with ending_soon(None if stay else answers):
                    del answers, workers
                if not stay:
                    self._counted = _Counted.before(self._counted)

    def _start(self, data: RankData, batching: Steps, start: int) -> tuple[DataLoader[Any], _Asks]:
        """Start new processes unless they persist: the old ones may still write to their slots. `start`: the position
        from which on they read."""
        if self._started is None or self._batching != batching or not self._started[0].persistent_workers:
            packs = data.maker.packing is not None
            size = data.together(batching)
            slots = None
            if packs or not data.maker.one_by_one:
                slots = Slots(self._number * _SLOTS, _slot_bytes(data, batching, size))
            asks = _Asks(self._number, size, slots)
            data.warn_of_costs(batching)
            views = not packs and (slots is not None or data.zero_copy)
            reader = data.reader(batching, self._number, views=views, stand_in=data.maker.needs_stand_ins)
            worker = _Worker(data.maker, reader, slots)
            memory = SharedMemory(self._number * _ROW)
            self._counted = _Counted.before(self._counted, memory)
            options = {**self._options, "worker_init_fn": _BeginWorker(self._options.get("worker_init_fn"), memory)}
            workers = DataLoader(worker, batch_size=None, sampler=asks, collate_fn=_as_it_is, **options)
            if (workers.multiprocessing_context or multiprocessing).get_start_method() == "fork":
                reader.prepare(start)
            self._started, self._batching = (workers, asks), batching
        return self._started


class _Counted(NamedTuple):
    """What workers have counted: those that ended, and those that count in shared memory, a row of it each.

    It is replaced as a whole, so that a thread that reads it counts nothing twice."""

    ended: tuple[int, ...]
    memory: SharedMemory | None

    @classmethod
    def before(cls, earlier: _Counted | None, memory: SharedMemory | None = None) -> _Counted:
        """Return the totals of `earlier` as those of ended workers, and those of new ones in `memory`."""
        ended = list(earlier.totals) if earlier is not None else [0] * len(Counter)
        ended[Counter.IN_FLIGHT] = 0  # killed workers did not count it down
        return cls(tuple(ended), memory)

    @property
    def totals(self) -> tuple[int, ...]:
        if self.memory is None:
            return self.ended
        rows = _rows(self.memory).tolist()
        places = range(len(Counter))
        return tuple(self.ended[place] + sum(rows[place :: len(Counter)]) for place in places)


def _rows(memory: SharedMemory) -> memoryview:
    """Return the workers' counts, int64: a row of each worker."""
    return memory.bytes.data.cast("q")


def _slot_bytes(data: RankData, batching: Steps, batches: int) -> int:
    """Return room for a run: its fixed-size columns, and one and a half times its average encoded bytes; or for batches
    of groups."""
    if data.maker.packing is not None:
        return batches * (data.batch_bytes(batching) + _PAGE)
    columns = [column.type for column in data.view.schema.columns]
    samples = batching.step_samples // batching.world_size + 1
    fixed = sum(kind.nbytes * samples + 64 for kind in columns if kind.fixed_size)
    fixed += 8 * len(INFO_FIELDS) * samples + 64 if data.info is not None else 0
    encoded = any(kind.base in ("bytes", "jpeg", "png") for kind in columns)
    return batches * (fixed + (data.batch_bytes(batching) * 3 // 2 if encoded else 0))


class _Asks:
    """The sampler of the workers: the batches of the new iteration, in runs that grow from one batch each."""

    def __init__(self, workers: int, together: int, slots: Slots | None) -> None:
        self.slots = slots
        self._workers, self._together = workers, together
        self._tasks: Iterator[Task] = iter(())
        self._asked = deque[list[Task]]()  # runs whose answers did not come yet
        self._error: Exception | None = None  # of the task after these

    def start(self, batching: Steps, epoch: int, place: Place) -> None:
        """Begin at (epoch, place), up to its end."""
        self._tasks, self._error = batching.tasks(epoch, place), None
        self._asked.clear()

    def stop(self) -> None:
        """Ask for no more, and plan no more."""
        self._tasks = iter(())

    def batches(self, answer: _Answer, data: RankData) -> Iterator[tuple[Task, Any]]:
        """Yield the tasks of the next answer with their batches, or raise its error."""
        run = self._asked.popleft()
        if isinstance(answer.made, _Failed):
            raise answer.made.again()
        if self.slots is None:
            try:
                batch = pickle.loads(answer.made)
            except (OSError, EOFError) as error:  # PyTorch fetches each tensor's memory from the worker
                raise RuntimeError(
                    "a worker ended before its batch was taken: was it killed because memory ran out?"
                ) from error
            yield run[0], batch
            return
        columns = self.slots.take(answer.slot, answer.made, views=data.zero_copy)
        if answer.packed:
            cut: list[Columns] = [{} for _ in answer.packed]
            for (number, name), values in columns.items():
                cut[number][name] = values
            for task, packed, own in zip(run, answer.packed, cut, strict=False):
                yield task, data.maker.presented_groups(packed._replace(columns=own))
            return
        info = data.info.column if data.info is not None else None
        columns = {
            **presented(data.maker.kit, data.view.schema, columns),
            **({info: columns[info]} if info is not None else {}),
        }
        edges = pairwise(accumulate(answer.sizes, initial=0))
        for task, (start, stop), skipped in zip(run, edges, answer.skipped or repeat(()), strict=False):
            batch = {name: values[start:stop] for name, values in columns.items()}
            if info is not None:
                batch[info] = presented_info(data.maker.kit, batch[info])
            yield task, Short(batch, skipped) if skipped else batch

    def __iter__(self) -> Iterator[_Ask]:
        if self.slots is not None:  # persistent workers have dropped the requests of earlier iterations
            self.slots.release_all()
        tasks = iter(lambda: next(self._tasks, None), None)
        try:
            for run in in_lists(tasks, run_sizes(self._workers, self._together)):
                self._asked.append(run)
                yield _Ask(run, self.slots.reserve() if self.slots is not None else None)
        except Exception as error:  # PyTorch asks ahead, so it would raise this before batches that come earlier
            self._error = error

    def check(self) -> None:
        """Raise the error that ended planning. Call it after the last answer: it is that of the next task."""
        if self._error is not None:
            raise self._error


def _as_it_is(batch: Any) -> Any:
    return batch


# --- in a worker


class _Ask(NamedTuple):
    """A request to a worker: a run of batches, and where to put it."""

    run: list[Task]
    slot: int | None


class _Failed(NamedTuple):
    """An exception of a worker, as it was raised. PyTorch would make one from its text, without its attributes."""

    error: BaseException
    notes: Sequence[str]
    text: str  # its traceback

    @classmethod
    def of(cls, error: BaseException) -> _Failed:
        """Raise RuntimeError with the whole text if pickle cannot copy the exception."""
        text = "".join(format_exception(error))
        try:
            same = type(pickle.loads(pickle.dumps(error))) is type(error)
        except Exception:
            same = False
        if not same:
            raise RuntimeError(f"in a worker process:\n{text}") from None
        return cls(error, getattr(error, "__notes__", ()), text)

    def again(self) -> BaseException:
        """Return the exception, to be raised in the loader's process."""
        if self.notes:
            self.error.__notes__ = list(self.notes)
        self.error.__cause__ = WorkerTraceback(self.text)
        return self.error


class WorkerTraceback(Exception):
    """The cause of an exception that a worker raised: its traceback there, as text."""

    def __str__(self) -> str:
        return f"in a worker process:\n{self.args[0]}"


class _Answer(NamedTuple):
    """A worker's result: a pickled batch; with slots, the columns of a run in storage form, not cut yet, or those of
    batches of groups by (batch, name); or _Failed."""

    made: Any
    sizes: Sequence[int] = ()  # samples of the run's batches
    slot: int | None = None
    broken: bool = False  # only the run's first batches are here, because a later one failed
    skipped: Sequence[tuple[str, ...]] = ()  # samples left out of each batch; empty if there are none at all
    packed: Sequence[PackedBatch] = ()  # batches of groups, without their columns


class _Worker(TorchDataset[_Answer]):
    """The dataset of a worker process: maps each _Ask to its _Answer."""

    def __init__(self, maker: BatchMaker, reader: RankReader, slots: Slots | None) -> None:
        self._maker, self._reader, self._slots = maker, reader, slots

    def __getitem__(self, ask: _Ask) -> _Answer:
        try:
            return self._answer(ask)
        except KeyboardInterrupt:
            raise  # the main process got it too
        except BaseException as error:
            return _Answer(_Failed.of(error))

    def _answer(self, ask: _Ask) -> _Answer:
        run, slots = ask.run, self._slots
        if slots is None:
            return _Answer(_packed(next(self._maker.assembled(self._reader, run))))
        if self._maker.packing is not None:
            return self._groups(ask, slots)
        try:
            columns = next(self._reader.read(run, joined=True)).columns
        except Exception as error:
            if self._maker.on_error == "skip" and isinstance(error, CorruptError):
                return self._sound(ask)
            if len(run) == 1:
                raise
            run = run[:1]  # first the batches before the error
            columns = next(self._reader.read(run, joined=True)).columns
        return _Answer(slots.put(ask.slot, columns), self._reader.shares(run), ask.slot, broken=len(run) < len(ask.run))

    def _groups(self, ask: _Ask, slots: Slots) -> _Answer:
        """Return the batches of groups of a run; after an error, those before it."""
        batches = list[PackedBatch]()
        try:
            batches += self._maker.packed(self._reader, ask.run)
        except Exception:
            if not batches:
                raise
        columns = {
            (number, name): values for number, batch in enumerate(batches) for name, values in batch.columns.items()
        }
        return _Answer(
            slots.put(ask.slot, columns),
            slot=ask.slot,
            broken=len(batches) < len(ask.run),
            packed=[batch._replace(columns={}) for batch in batches],
        )

    def _sound(self, ask: _Ask) -> _Answer:
        """Return the batches of a run without damaged samples; after another error, those before it."""
        batches = list[Batch]()
        try:
            batches += self._reader.read_each(ask.run)
        except Exception:
            if not batches:
                raise
        columns = joined([batch.columns for batch in batches])
        return _Answer(
            self._slots.put(ask.slot, columns) if self._slots is not None else columns,
            [len(batch.positions) for batch in batches],
            ask.slot,
            broken=len(batches) < len(ask.run),
            skipped=[skipped_lines(batch.damaged) for batch in batches],
        )


class _BeginWorker:
    """Initialises a worker: it ends with its parent, however the parent ends.

    Ctrl-C reaches all processes of a terminal, but only the main process decides what happens then.
    """

    def __init__(self, then: Callable[[int], None] | None, counts: SharedMemory) -> None:
        self._then, self._counts = then, counts

    def __call__(self, worker: int) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        work_for(Counters(_rows(self._counts)[worker * len(Counter) : (worker + 1) * len(Counter)]))
        if worker > 0:
            leave_warnings_to_others()
        end_with_parent()
        if self._then is not None:
            self._then(worker)


def _packed(batch: Any) -> bytes:
    """Pickle a batch here: PyTorch's queue would drop one that fails, and its reader would wait for ever."""
    try:
        return bytes(ForkingPickler.dumps(batch))
    except Exception as error:
        raise UsageError(
            f"what transform or collate_fn made cannot go to another process: {error}",
            hint="return tensors, arrays, numbers, str or bytes (of a memory view that zero_copy gave, bytes(view)), "
            "or use num_workers=0",
        ) from error
