"""BatchLoader: a rank's batches, ready ahead, with a state that resumes exactly. All loaders are made of it.

Only the loader's run knows the position (see mdsx/stream/run.py). The loader hands tasks `(epoch, start, stop)` to a
thread or to worker processes, and its run counts what `next()` returns. So a state skips no batch that was prepared
ahead, and fits any number of workers.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any
from weakref import WeakSet, ref

from mdsx.errors import UsageError, shown
from mdsx.loader.agreement import compare, digest
from mdsx.loader.assembly import Collate, OnError, Short
from mdsx.loader.collation import VALID, Uneven
from mdsx.loader.rank_data import RankData
from mdsx.loader.stats import Stats, stats_of
from mdsx.order import Phases, Weight
from mdsx.process import Counter, Owner, at_fork
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
    failed_in_planning,
)

_log = logging.getLogger("mdsx")

_FAILURES = 3  # of one batch in a row, until the error says how to skip it
_RECENT = 20  # statistics that the progress line remembers, one for each time it is written


class BatchLoader:
    """The batches of a rank, epoch by epoch: what `StreamingDataLoader` and `Loader` have in common.

    `data` and `run`: what to read and from where on; `batch_size`: samples or rows of a rank's batch.
    """

    def __init__(
        self,
        data: RankData,
        run: Run,
        batch_size: int,
        *,
        batching: Layout | None,
        epoch_steps: int | None,
        drop_last: bool,
        collate_fn: Collate | None,
        uneven: Uneven,
        on_error: OnError,
        max_skipped: float | None,
        progress: bool,
    ) -> None:
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.collate_fn = collate_fn
        Batching(data.course.epoch_samples, batch_size, 1, drop_last)  # checks it now, not in the first epoch
        if uneven not in ("empty", "repeat"):
            raise UsageError("uneven must be 'empty' or 'repeat'", found=shown(uneven))
        self._data, self._run = data.copy(), copy(run)
        if on_error not in ("raise", "skip"):
            raise UsageError("on_error must be 'raise' or 'skip'", found=shown(on_error))
        self._max_skipped = checked_share(max_skipped, on_error)
        self._data.maker = replace(self._data.maker, collate=collate_fn, uneven=uneven, on_error=on_error)
        if batching is not None:
            self._data.group(batching, epoch_steps)
            self._run = self._run_of_groups(run)
        self._progress = progress
        self._meter = Meter()
        if (
            uneven == "repeat"
            and not self._data.maker.per_sample
            and any(column.name == VALID for column in data.view.schema.columns)
        ):
            raise UsageError(f"there is a column {VALID!r}, which uneven='repeat' adds", hint="rename it by columns=")
        self._order_hash, self._compared, self._loads = "", False, 0
        self._checked_tail = False
        self._current: ref[_Epoch] | None = None  # weak: an iteration ends when its user drops it
        if (known := self._data.known_steps(batch_size, drop_last)) is not None:
            self._check_tail(known)

    def __getstate__(self) -> dict[str, Any]:
        return {
            **self.__dict__,
            "_data": self._data.copy(),
            "_run": copy(self._run),
            "_current": None,
            "_meter": Meter(),
            "_compared": False,
        }

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._data!r}, batch_size={self.batch_size}, epoch={self.epoch})"

    @property
    def _batching(self) -> Steps:
        """Use the ranks of now, which may be unknown when the loader is made; in an iteration, those at its start."""
        iteration = self._iteration
        if iteration is not None and self._run.has(iteration):
            return self._data.steps_now(iteration.batching, self._meter.counters)
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
        return stats_of(self._meter, self._worker_totals, self._order_hash)

    def set_epoch(self, epoch: int) -> None:
        """Make the next pass `epoch` from its start; an iteration under way ends.

        Nothing changes if that epoch comes next anyway, so it undoes neither a resume nor an open pass.
        """
        self._run.set_epoch(epoch)
        self._close_if_left()

    def resume(self) -> None:
        """Make the next `for` take the rest of the epoch that was left. Change nothing if none was."""
        self._run.resume()

    def state_dict(self) -> dict[str, Any]:
        """Return the position: a few numbers, the same on every rank after the same number of batches.

        Loading it gives the rest of the epoch, also if the epoch was left.
        """
        return self._data.state(self._run.epoch, self._run.position)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Make the next pass continue at `state`, on any number of ranks and workers, with any batch size.

        An iteration from which no batch was taken yet continues there too; one under way ends.

        If parts were appended to the dataset since (`mdsx.append`), the run continues with the snapshot of the dataset
        that the state is of, and logs that. This is so for a whole dataset. For a selection or a mixture, open its
        datasets with `mdsx.Dataset(url, snapshot=...)`.

        Raises:
            StateError: The state is of another dataset or order. The error names the field.
        """
        data, before = self._data.for_state(state), self._data.phases
        epoch, position, phases = data.check(state)
        data.use_phases(phases)  # first, as it may refuse them
        self._run.load(epoch, position)
        self._compared, self._loads = False, self._loads + 1
        self._close_if_left()
        if data is not self._data:
            data.log_snapshot(self._data)
            self._data, self._checked_tail = data, False
            self._restart()
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
            self._restart()

    def _restart(self) -> None:
        """Drop what was prepared."""
        self._replace_iteration(None)

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

    def _agree(self, batching: Steps, epoch: int, place: Place) -> None:
        """Note what all ranks must agree on; compare it with another rank's, once after each state that was loaded.
        Raise UsageError."""
        data = self._data
        agreed = data.agreed(batching, self.batch_size, self.drop_last)
        if (hashed := digest(agreed)) != self._order_hash:
            self._order_hash = hashed
            rank, ranks = data.ranks
            _log.info("rank %d of %d: order hash %s of %s", rank, ranks, hashed, agreed)
        if not self._compared and (store := data.store) is not None:
            compare(store, data.source, agreed, loads=self._loads, begin=[epoch, place])
        self._compared = True

    def _check_tail(self, batching: Steps) -> None:
        """Raise UsageError if a rank will have no samples in a batch and `collate_fn` cannot make an empty one."""
        if not isinstance(batching, Batching):
            return
        position = self._run.coming[1]
        size = batching.last_size(position)
        if self.collate_fn is None or self._data.maker.uneven == "repeat" or self._checked_tail:
            return
        if 0 < size < batching.world_size:
            self._data.check_empty(self._run.coming[0], batching.samples - size)
            self._checked_tail = True

    @property
    def _iteration(self) -> _Epoch | None:
        """The iteration that prepared batches last, if alive."""
        return self._current() if self._current is not None else None

    @property
    def _worker_totals(self) -> Sequence[int]:
        """What worker processes have counted."""
        return (0,) * len(Counter)

    def _open(self, batching: Steps, epoch: int, place: Place) -> Generator[tuple[Task, Any], None, None]:
        """Yield tasks with their batches to the epoch's end, prepared ahead."""
        data = self._data
        data.warn_of_costs(batching)
        return prepared(data, batching, batching.tasks(epoch, place), self._meter)

    def _handed_out(self, batching: Steps, tasks: Iterator[tuple[Task, Any]]) -> Iterator[tuple[Task, Any]]:
        """Yield tasks and their batches as they are handed out; count them, and log the samples left out of them."""
        meter, rank = self._meter, self._data.ranks[0]
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


def prepared(
    data: RankData, batching: Steps, tasks: Iterable[Task], meter: Meter, threads: int = 1
) -> Generator[tuple[Task, Any], None, None]:
    """Yield tasks with their batches, prepared ahead in a thread, one of `threads`."""
    reader = data.reader(batching, threads if threads > 1 else 0, stand_in=data.maker.needs_stand_ins)
    return batches_ahead(
        reader,
        tasks,
        partial(data.maker.assembled, reader),
        meter=meter,
        batch_bytes=data.batch_bytes(batching),
        together=data.together(batching),
    )


def rows_of(
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
            raise UsageError(
                "mdsx.MaxTokens says how large batches are",
                found=f"batch_size={shown(batch_size)}",
                hint="leave batch_size out; MaxTokens(max_samples=) limits the samples of a batch",
            )
        return 1
    if batch_size is None:
        what = "samples" if batching is None else "packed rows"
        raise UsageError("batch_size is not given", hint=f"give the number of {what} per rank, such as batch_size=8")
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

    _prepared: Generator[Any, None, None] | None = None
    _line: StatusLine | None = None

    def __init__(self, loader: BatchLoader, batching: Steps) -> None:
        super().__init__(loader._run, batching, "loader", warns=loader._data.warns)
        _alive.add(self)
        self._owner = Owner()
        self._loader, self._data = loader, loader._data

    def __next__(self) -> Any:
        if not self._owner.here:
            raise UsageError("this iteration belongs to the process that began it", hint="begin one in this process")
        return super().__next__()

    def _begin(self, epoch: int, place: Place) -> Iterator[tuple[Task, Any]]:
        loader = self._loader
        loader._replace_iteration(self)
        loader._meter.begin()
        if self._data is not loader._data:  # a state of a snapshot was loaded before the first batch
            self._data = loader._data
            self.batching = self._data.steps(loader.batch_size, loader.drop_last, loader._meter.counters)
        self.batching = batching = loader._data.steps_now(self.batching, loader._meter.counters)
        loader._agree(batching, epoch, place)
        if loader._progress and self._warns:
            self._line = loader._status(batching, epoch)
        self._prepared = loader._open(batching, epoch, place)
        return loader._handed_out(batching, self._prepared)

    def _failed(self, error: BaseException, times: int) -> None:
        if times >= _FAILURES and isinstance(error, Exception) and not failed_in_planning(error):
            with suppress(Exception):  # the advice costs reads, and storage may fail again
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
            f"position after it, on every rank: loader.load_state_dict({{**loader.state_dict(), {str(after)[1:-1]}}})"
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
        if self._prepared is not None or self._line is not None:  # else Ctrl-C may have come before __init__ ended
            self.close()


_alive: WeakSet[_Epoch] = WeakSet()
_of_the_parent: list[Any] = []


def _forget_in_child() -> None:
    """Keep the parent's iterations for ever: ending them here would end the parent's workers."""
    for iteration in _alive:
        _of_the_parent.extend((iteration._prepared, iteration._items))
        iteration._prepared = iteration._items = iteration._line = None


at_fork(after_in_child=_forget_in_child)
