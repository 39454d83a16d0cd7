"""StreamingDataLoader: a rank's batches, ready ahead, with a state that resumes exactly.

Only the loader's run knows the position (see mdsx/stream/run.py). The loader hands tasks `(epoch, start, stop)` to a
thread or to worker processes, and its run counts what `next()` returns. So a state skips no batch that was prepared
ahead, and fits any number of workers.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any, Unpack
from weakref import WeakSet, ref

# NumPy imports these two on first use. Import them before workers are forked: a worker may garbage-collect inherited
# loaders during an import, which breaks it.
import numpy.ma
import numpy.random  # noqa: F401
import torch
from torch.utils.data._utils.pin_memory import pin_memory as pin

from mdsx.errors import UsageError, shown
from mdsx.mosaicml import STREAMING_DATA_LOADER, explain
from mdsx.order import Phases, Weight
from mdsx.process import Owner, at_fork
from mdsx.progress import StatusLine
from mdsx.stream import (
    Batching,
    GroupBatching,
    Iteration,
    Layout,
    MaxTokens,
    Meter,
    Pack,
    Place,
    Plan,
    Run,
    Steps,
    Task,
    batches_ahead,
    check_skipped,
    checked_share,
)
from mdsx.torch.assembly import Collate, OnError, Short
from mdsx.torch.collation import VALID, Uneven
from mdsx.torch.dataset import StreamingDataset
from mdsx.torch.stats import Stats, stats_of
from mdsx.torch.workers import WorkerOptions, Workers

_log = logging.getLogger("mdsx")

_FAILURES = 3  # of one batch in a row, until the error says how to skip it
_RECENT = 20  # statistics that the progress line remembers, one for each time it is written


class LoaderOptions(WorkerOptions, total=False):
    """More arguments of `StreamingDataLoader`, beside those of `WorkerOptions`.

    Attributes:
        max_skipped: With on_error="skip": the share of samples that may fail, 0 to 1. `next()` raises a SkippedError
            once more than this share of the samples read so far on this rank, or of 1,000 if these are fewer, were left
            out. The counts are those of `stats()`: a resumed program counts from 0.
    """

    max_skipped: float | None


class StreamingDataLoader:
    """The batches of a `StreamingDataset`, epoch by epoch: one `for` is one epoch, or the rest of it after a resume.

        loader = StreamingDataLoader(StreamingDataset(url, seed=7), batch_size=32)
        while loader.epoch < epochs:
            for batch in loader:
                ...

    This loop is correct after a resume, after an error, and when it is run again. A batch is a dict of columns: those
    of a fixed size as tensors [n, ...], the others as lists of n values. With `transform` or `collate_fn`, it is what
    `collate_fn` makes of a list of samples.

    `next()` raises an exception, of `transform` for example, at the batch that it prevents. The position does not
    advance: `next()` on the same iterator and a new `for` both continue with that batch. After `break`, Ctrl-C or an
    exception in the body of the loop, the next `for` is the next epoch, with a warning; call `resume()` before it to
    take the rest of the epoch that was left. Without shuffling, it is the same epoch again.

    A copy of a loader, also by pickle, is independent of it and at the same position.

    Args:
        dataset: What to read.
        batch_size: Samples per rank, or packed rows. The global batch is that times the world size. It is not given
            with `mdsx.MaxTokens`.
        batching: `mdsx.Pack` or `mdsx.MaxTokens`: packed rows or length-bounded batches instead of batches of samples,
            see docs/batches.md. A `transform` is applied to each sample before it is packed.
        epoch_steps: The number of batches of an epoch, with `batching`. The groups of samples then continue from one
            epoch into the next: none is left out.
        drop_last: Whether samples that do not fill the epoch's last batch are left out. Otherwise they are split over
            the ranks as a shorter batch.
        collate_fn: From a list of samples to a batch. The default is `mdsx.torch.collate` if the dataset has a
            `transform`.
        uneven: What a rank without samples in the last batch gets. "empty": a batch of 0 samples with the structure of
            the others. "repeat": a sample of another rank, and in every batch a mask, bool [n], which is False for that
            sample: the key "valid", or for a batch that is no dict, the second of the pair (batch, mask).
        on_error: "skip" leaves out samples that are damaged, or for which `transform` raises. Each is logged (by the
            logger "mdsx") and counted in `stats().skipped`. Positions count it, so ranks keep equal numbers of
            batches. A batch with no sample left is what `uneven` says. Errors of `collate_fn` and of storage are
            raised.
        pin_memory: Whether tensors are copied to pinned memory.
        progress: Whether to show one line with the epoch's progress and the statistics of the last ten seconds. It is
            shown on rank 0, on stderr, if that is a terminal or a notebook.
        num_workers: 0 prepares batches in a background thread, which is faster unless `transform` is slow; n > 0 in n
            processes. Neither changes which samples are in a batch.
        options: `max_skipped`, see `mdsx.torch.LoaderOptions`; and more about worker processes, see
            `mdsx.torch.WorkerOptions`.

    Raises:
        UsageError: An argument is invalid, or differs from the dataset's.
    """

    @explain("StreamingDataLoader", STREAMING_DATA_LOADER)
    def __init__(
        self,
        dataset: StreamingDataset,
        batch_size: int | None = None,
        *,
        batching: Layout | None = None,
        epoch_steps: int | None = None,
        drop_last: bool = True,
        collate_fn: Collate | None = None,
        uneven: Uneven = "empty",
        on_error: OnError = "raise",
        pin_memory: bool = False,
        progress: bool = False,
        num_workers: int = 0,
        **options: Unpack[LoaderOptions],
    ) -> None:
        if not isinstance(dataset, StreamingDataset):
            raise UsageError("the dataset is not a StreamingDataset", found=type(dataset).__name__)
        batch_size = _rows(batch_size, batching, epoch_steps, collate_fn, uneven)
        if dataset._batch_size is not None and dataset._batch_size != batch_size:
            raise UsageError("batch_size differs from the dataset's", found=batch_size, expected=dataset._batch_size)
        if dataset._drop_last is not None and dataset._drop_last != drop_last:
            raise UsageError(
                "drop_last differs from the dataset's",
                found=drop_last,
                expected=dataset._drop_last,
                hint=f"give drop_last={dataset._drop_last} to the loader, or none to the dataset",
            )
        if unknown := set(options) - set(LoaderOptions.__annotations__):
            raise TypeError(f"StreamingDataLoader() got an unexpected keyword argument {min(unknown)!r}")
        max_skipped = options.pop("max_skipped", None)
        prefetch_factor = options.get("prefetch_factor")
        for name, value, least in (("num_workers", num_workers, 0), ("prefetch_factor", prefetch_factor, 1)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
                raise UsageError(f"{name} must be an integer of at least {least}", found=shown(value))
        self.dataset = dataset
        self.batch_size = batch_size
        self.num_workers = num_workers
        self.drop_last = drop_last
        self.collate_fn = collate_fn
        self.pin_memory = pin_memory
        Batching(dataset._data.course.epoch_samples, batch_size, 1, drop_last)  # checks it now, not in the first epoch
        if uneven not in ("empty", "repeat"):
            raise UsageError("uneven must be 'empty' or 'repeat'", found=shown(uneven))
        self._data, self._run = dataset._data.copy(), copy(dataset._run)
        self._data.uneven = uneven
        if on_error not in ("raise", "skip"):
            raise UsageError("on_error must be 'raise' or 'skip'", found=shown(on_error))
        self._data.on_error = on_error
        self._max_skipped = checked_share(max_skipped, on_error)
        self._data.collate = collate_fn
        if batching is not None:
            self._data.group(batching, epoch_steps)
            self._run = self._run_of_groups(dataset._run)
        self._progress = progress
        self._meter = Meter()
        if uneven == "repeat" and not self._data.per_sample and VALID in dataset.columns:
            raise UsageError(f"there is a column {VALID!r}, which uneven='repeat' adds", hint="rename it by columns=")
        self._checked_tail = False
        self._current: ref[_Epoch] | None = None  # weak: an iteration ends when its user drops it
        self._workers = Workers(num_workers, options)
        if num_workers == 0 and (prefetch_factor is not None or options.get("persistent_workers")):
            raise UsageError("prefetch_factor and persistent_workers need num_workers > 0")
        if (known := self._data.known_steps(batch_size, drop_last)) is not None:
            self._check_tail(known)
        dataset._loaders.add(self)

    def __getstate__(self) -> dict[str, Any]:
        return {
            **self.__dict__,
            "_data": self._data.copy(),
            "_run": copy(self._run),
            "_current": None,
            "_meter": Meter(),
            "_workers": copy(self._workers),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.dataset._loaders.add(self)

    @property
    def _batching(self) -> Steps:
        """Use the ranks of now, which may be unknown when the loader is made; in an iteration, those at its start."""
        iteration = self._iteration
        if iteration is not None and self._run.has(iteration):
            return iteration.batching
        return self._data.steps(self.batch_size, self.drop_last, self._meter.counters)

    @property
    def epoch(self) -> int:
        """Return the epoch of the next batch."""
        return self._run.coming[0]

    @property
    def remaining(self) -> int:
        """Return the number of batches left in that epoch. Raise TypeError as `len` does."""
        return self._batching.count(self._run.coming[1])

    def __len__(self) -> int:
        """Return the number of batches of a whole epoch, the same on every rank.

        With `batching`, raise a TypeError if that is not known: it depends on the lengths of all samples. `plan` counts
        them, and `epoch_steps` fixes it.
        """
        batching = self._batching
        return batching.count(batching.start(*self._run.coming))

    def plan(self, epoch: int | None = None) -> Plan:
        """Return what an epoch of groups has (default: that of the next batch), from a pass over the lengths.

        Afterwards `len(loader)` and `remaining` are known for that epoch.

        Raises:
            UsageError: The loader has no `batching`.
        """
        batching = self._batching
        if not isinstance(batching, GroupBatching):
            raise UsageError("only a loader with batching= has a plan", hint="len(loader) is its number of batches")
        return batching.plan(self._run.coming[1].epoch if epoch is None else epoch)

    def stats(self) -> Stats:
        """Return what this loader has done so far on this rank, in all its processes. It takes some microseconds.

        Any thread may call it at any time, also while `next()` waits. A copy of a loader counts from 0.
        """
        return stats_of(self._meter, self._workers.totals)

    def set_epoch(self, epoch: int) -> None:
        """Make the next pass `epoch` from its start; an iteration under way ends.

        Nothing changes if that epoch comes next anyway, so it undoes neither a resume nor an open pass.
        """
        self._run.set_epoch(epoch)
        self._close_if_left()

    def resume(self) -> None:
        """Make the next `for` take the rest of the epoch that was left. Change nothing if none was."""
        self._run.resume()

    @property
    def sampler(self) -> StreamingDataLoader:
        """Return the loader itself: frameworks call `loader.sampler.set_epoch(epoch)` before each epoch."""
        return self

    def state_dict(self) -> dict[str, Any]:
        """Return the position: a few numbers, the same on every rank after the same number of batches.

        Loading it gives the rest of the epoch, also if the epoch was left.
        """
        return self._data.state(self._run.epoch, self._run.position)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Make the next pass continue at `state`, on any number of ranks and workers, with any batch size.

        An iteration from which no batch was taken yet continues there too; one under way ends.

        Raises:
            StateError: The state is of another dataset or order. The error names the field.
        """
        before = self._data.phases
        epoch, position, phases = self._data.check(state)
        self._data.use_phases(phases)  # first, as it may refuse them
        self._run.load(epoch, position)
        self._close_if_left()
        self._restart_if_changed(before)

    def reweight(self, proportions: Sequence[Weight] | Mapping[str, Weight]) -> None:
        """Change the proportions of the mixture's components, from the next batch on.

        Give a list in the order of the components, or a mapping from their names. Each component continues where it is.
        The proportions hold up to the next entry of the mixture's schedule, if there is one. A mixture in runs (`run=`)
        changes with its next run; with `batching`, a mixture changes at the end of the window (see docs/batches.md).
        Call it on every rank at the same position, between two batches or two epochs. The state holds the proportions.

        Raises:
            UsageError: The dataset is no mixture, or the proportions do not fit its components.
        """
        before = self._data.phases
        self._data.reweight(proportions, self._data.reached(self._run.epoch, self._run.position))
        self._restart_if_changed(before)

    def _restart_if_changed(self, before: Phases) -> None:
        """Drop what was prepared in the old order."""
        if self._data.phases != before:
            self._replace_iteration(None)
            self._workers.forget()

    def _close_if_left(self) -> None:
        if (iteration := self._iteration) is not None and not self._run.has(iteration):
            iteration.close()

    def _replace_iteration(self, iteration: _Epoch | None) -> None:
        """Drop what the iteration before `iteration` prepared: if it continues, it makes that again."""
        if (before := self._iteration) is not None:
            before.close()
        if iteration is not None:
            self._current = ref(iteration)

    def __iter__(self) -> Iterator[Any]:
        batching = self._data.steps(self.batch_size, self.drop_last, self._meter.counters)
        self._check_tail(batching)
        batching.check(self._run.coming[0])
        return _Epoch(self, batching)

    def _run_of_groups(self, before: Run) -> Run:
        """Return a run of groups that begins at the dataset's epoch."""
        if before.position:
            hint = "give the state to load_state_dict() of the loader"
            raise UsageError("the dataset has a position, which a loader with batching= does not take over", hint=hint)
        assert self._data.groups is not None
        groups = self._data.groups
        continuous = groups.epoch_steps is not None
        run = Run(shuffled=self._data.shuffle, start=groups.first_place, continuous=continuous)
        run.set_epoch(before.epoch)
        return run

    def _check_tail(self, batching: Steps) -> None:
        """Raise UsageError if a rank will have no samples in a batch and `collate_fn` cannot make an empty one."""
        if not isinstance(batching, Batching):
            return
        position = self._run.coming[1]
        size = batching.last_size(position)
        if self.collate_fn is None or self._data.uneven == "repeat" or self._checked_tail:
            return
        if 0 < size < batching.world_size:
            self._data.check_empty(self._run.coming[0], batching.samples - size)
            self._checked_tail = True

    @property
    def _iteration(self) -> _Epoch | None:
        """The iteration that prepared batches last, if alive."""
        return self._current() if self._current is not None else None

    def _open(self, batching: Steps, epoch: int, place: Place) -> Generator[tuple[Task, Any], None, None]:
        """Yield tasks with their batches to the epoch's end, prepared ahead."""
        if self.num_workers > 0:
            return self._workers.batches(self._data, batching, epoch, place, self._meter)
        data = self._data
        data.warn_of_costs(batching)
        reader = data.reader(batching, stand_in=data.needs_stand_ins)
        return batches_ahead(
            reader,
            batching.tasks(epoch, place),
            partial(data.assembled, reader),
            meter=self._meter,
            batch_bytes=data.batch_bytes(batching),
            together=data.together(batching),
        )

    def _handed_out(self, batching: Steps, tasks: Iterator[tuple[Task, Any]]) -> Iterator[tuple[Task, Any]]:
        """Yield tasks and their batches as they are handed out; count them, and log the samples left out of them."""
        meter, rank = self._meter, self._data.ranks[0]
        pinned = self.pin_memory and torch.cuda.is_available()
        for task, batch in tasks:
            share = batching.share(task, rank)
            skipped: tuple[str, ...] = ()
            if type(batch) is Short:
                batch, skipped = batch
                check_skipped(self._max_skipped, meter, share, skipped)
                for line in skipped:
                    _log.warning("on_error='skip' leaves out a sample of epoch %d: %s", task.epoch, line)
                meter.skipped += len(skipped)
            meter.samples += share - len(skipped)
            meter.batches += 1
            if pinned:
                batch = pin(batch)  # type: ignore[no-untyped-call]  # PyTorch's own, untyped
            yield task, batch

    def _status(self, batching: Steps, epoch: int) -> StatusLine:
        """Return the line of a pass; it must not keep the loader alive."""
        loader, recent = ref(self), deque([self.stats()], maxlen=_RECENT)

        def text() -> str:
            here = loader()
            if here is None:
                return ""
            recent.append(here.stats())
            return f"epoch {epoch}: {_progress(batching, epoch, here._run)}{recent[-1] - recent[0]}"

        return StatusLine(text)


def _rows(
    batch_size: int | None, batching: Layout | None, epoch_steps: int | None, collate_fn: Collate | None, uneven: Uneven
) -> int:
    """Return the samples or rows of a rank's batch. Raise UsageError for arguments that do not fit each other."""
    if batching is None:
        if epoch_steps is not None:
            hint = "for batches of samples, give the dataset epoch_samples="
            raise UsageError("epoch_steps needs batching=", hint=hint)
    elif not isinstance(batching, Pack | MaxTokens):
        raise UsageError("batching must be an mdsx.Pack or an mdsx.MaxTokens", found=shown(batching))
    elif isinstance(batching, Pack) and collate_fn is not None:
        raise UsageError(
            "packed rows are made by mdsx.Pack, not by a collate_fn",
            hint="change samples by the dataset's transform=, and batches in the loop",
        )
    elif uneven == "repeat":
        raise UsageError("uneven='repeat' is for batches of samples", hint="an empty batch of groups has 0 rows")
    if isinstance(batching, MaxTokens):
        if batch_size is not None:
            raise UsageError("mdsx.MaxTokens says how large batches are", found=f"batch_size={shown(batch_size)}")
        return 1
    if batch_size is None:
        raise UsageError("batch_size is not given")
    return batch_size


def _progress(batching: Steps, epoch: int, run: Run) -> str:
    """Return how many of an epoch's batches were handed out, if that is known."""
    try:
        total = batching.count(batching.start(epoch, run.position))
        done = total - batching.count(run.position) if run.epoch == epoch else total
    except TypeError:  # in groups
        return ""
    return f"{done:,}/{total:,} batches, "


class _Epoch(Iteration):
    """One iteration over the rest of an epoch; dead in a forked child, which has none of its threads."""

    def __init__(self, loader: StreamingDataLoader, batching: Steps) -> None:
        super().__init__(loader._run, batching, "loader", warns=loader._data.warns)
        _alive.add(self)
        self._owner = Owner()
        self._loader = loader
        self._prepared: Generator[Any, None, None] | None = None
        self._line: StatusLine | None = None

    def __next__(self) -> Any:
        if not self._owner.here:
            raise UsageError("this iteration belongs to the process that began it", hint="begin one in this process")
        return super().__next__()

    def _begin(self, epoch: int, place: Place) -> Iterator[tuple[Task, Any]]:
        loader, batching = self._loader, self.batching
        loader._replace_iteration(self)
        loader._meter.begin()
        if loader._progress and self._warns:
            self._line = loader._status(batching, epoch)
        self._prepared = loader._open(batching, epoch, place)
        return loader._handed_out(batching, self._prepared)

    def _failed(self, error: BaseException, times: int) -> None:
        if times >= _FAILURES and isinstance(error, Exception):
            error.add_note(self._way_past(error, *self._run.place(self)))

    def _way_past(self, error: Exception, epoch: int, position: int) -> str:
        data, task = self._loader._data, self.batching.task(epoch, position)
        cured = data.skip_cures(error, task, self.batching)
        after: dict[str, Any] = {"position": task.stop}
        if task.groups is not None:
            state = data.state(*self.batching.after(task))
            after = {name: state[name] for name in ("epoch", "position", "groups")}
        skip = 'give the loader on_error="skip" to leave out the samples that fail; ' if cured else ""
        return (
            f"mdsx: this batch failed {_FAILURES} times in a row or more; {skip}to leave out the whole batch, load the "
            f"position after it, on every rank: loader.load_state_dict({{**loader.state_dict(), **{after}}})"
        )

    def close(self) -> None:
        super().close()
        prepared, self._prepared = self._prepared, None
        if prepared is not None:
            prepared.close()
        line, self._line = self._line, None
        if line is not None:
            line.close()

    def __del__(self) -> None:
        self.close()


_alive: WeakSet[_Epoch] = WeakSet()
_of_the_parent: list[Any] = []


def _forget_in_child() -> None:
    """Keep the parent's iterations for ever: ending them here would end the parent's workers."""
    for iteration in _alive:
        _of_the_parent.extend((iteration._prepared, iteration._items))
        iteration._prepared = iteration._items = iteration._line = None


at_fork(after_in_child=_forget_in_child)
