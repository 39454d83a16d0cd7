"""A pass of a loader: it prefetches batches, counts and logs each one that it returns, and explains those that fail."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import Any, Protocol
from weakref import WeakSet, ref

from mdsx.base.process import at_fork
from mdsx.base.progress import StatusLine
from mdsx.errors import CorruptError, UsageError
from mdsx.loader.ahead import Ahead
from mdsx.loader.assembly import PartialBatch, failed_in_collate, failed_in_transform
from mdsx.loader.components import ComponentCounts
from mdsx.loader.reading import Reading
from mdsx.loader.stats import Stats
from mdsx.stream import (
    NOTHING,
    Cursor,
    Iteration,
    Meter,
    Run,
    Steps,
    Task,
    check_skipped,
    failed_in_planning,
    first_task,
    step_end,
)

_log = logging.getLogger("mdsx")

_FAILURES = 3  # of one batch in a row, before the error says how to skip it
_RECENT = 20  # statistics that the progress line remembers, one for each line written


class Host(Protocol):
    """What a pass needs from its loader."""

    _reading: Reading
    _run: Run
    _ahead: Ahead
    _meter: Meter
    _progress: bool
    _components: ComponentCounts | None

    def stats(self) -> Stats: ...
    def _enter(self, cursor: Cursor) -> Reading: ...
    def _replace_pass(self, iteration: Iteration, made: Pass) -> None: ...
    def _agree(self, steps: Steps, cursor: Cursor) -> None: ...


class Pass:
    """The batches of one iteration of `loader`. In a forked child, its threads do not exist."""

    def __init__(self, loader: Host, part: tuple[int, int]) -> None:
        """`part`: the rank and the number of ranks when the iteration begins."""
        self._made: Generator[Any, None, None] | None = None
        self._line: StatusLine | None = None
        self._loader, self.part = loader, part
        self.steps: Steps = loader._reading.steps(loader._meter.counters, part)
        _alive.add(self)

    def begin(self, iteration: Iteration, cursor: Cursor) -> Iterator[tuple[Task, Any]]:
        loader = self._loader
        loader._replace_pass(iteration, self)
        loader._meter.begin()
        reading = self._enter(cursor)
        _check_skip(reading, cursor, loader._run)
        loader._agree(self.steps, cursor)
        if loader._progress and reading.warns:
            self._line = _status(loader, self.steps, loader._run.epoch_of(cursor))
        self._made = self._batches(reading, cursor)
        return self._handed_out(self._made, reading)

    def _enter(self, cursor: Cursor) -> Reading:
        """Return what is read from `cursor` on, and update `steps`: a state or a plan may have changed both."""
        loader = self._loader
        reading = loader._enter(cursor)
        self.steps = reading.steps(loader._meter.counters, self.part)
        return reading

    def _batches(self, reading: Reading, cursor: Cursor) -> Generator[tuple[Task, Any], None, None]:
        return self._loader._ahead.batches(reading, self.steps, cursor, self._loader._meter)

    def _handed_out(
        self, made: Generator[tuple[Task, Any], None, None], reading: Reading
    ) -> Iterator[tuple[Task, Any]]:
        """Yield tasks and their batches, phase by phase of a plan."""
        loader, run, epoch = self._loader, self._loader._run, None
        while True:
            for task, batch in made:
                if reading is not loader._reading and not loader._reading.keeps(run.cursor, task):
                    made.close()
                    break
                epoch = task.epoch
                yield task, NOTHING if task.skip else self._counted(task, loader._ahead.arrived(batch))
            here = run.cursor
            if epoch is not None and run.epoch_of(here) != epoch:
                return
            if loader._reading.at(here) is reading:
                return
            reading = self._enter(here)
            self._made = made = self._batches(reading, here)

    def _counted(self, task: Task, batch: Any) -> Any:
        """Count a batch, log the samples left out of it, and return it."""
        loader, rank = self._loader, self.part[0]
        meter, components = loader._meter, loader._components
        share = loader._reading.share(self.steps, task, rank)
        skipped: tuple[str, ...] = ()
        if type(batch) is PartialBatch:
            batch, skipped = batch
            check_skipped(loader._reading.spec.max_skipped, meter, share, skipped)
            for line in skipped:
                _log.warning("on_error='skip' leaves out a sample of epoch %d: %s", task.epoch, line)
            meter.skipped += len(skipped)
        meter.samples += share - len(skipped)
        meter.batches += 1
        if components is not None:
            components.add(loader._reading, self.steps, rank, task, share)
        return batch

    def failed(self, error: BaseException, times: int, cursor: Cursor) -> None:
        if times >= _FAILURES and isinstance(error, Exception) and not failed_in_planning(error):
            with suppress(Exception):  # the advice needs reads, which may fail again
                error.add_note(self._way_past(error, cursor))

    def _way_past(self, error: Exception, cursor: Cursor) -> str:
        reading, task = self._loader._reading, first_task(self.steps, cursor)
        following = step_end(self.steps, task.after)  # a state records whole steps
        here, after = reading.state(cursor), reading.at(following).state(following)
        names = ("epoch", "position", "groups", "phases", "plan")
        changed = {name: after[name] for name in names if after.get(name) != here.get(name)}
        cured = _skip_cures(reading, error, task, self.steps)
        skip = 'give the loader on_error="skip" to leave out the samples that fail; ' if cured else ""
        return (
            f"mdsx: this batch failed {_FAILURES} times in a row or more; {skip}to leave out the whole batch, load the "
            "position after it, on every rank: "
            f"loader.load_state_dict({{**loader.state_dict(), {str(changed)[1:-1]}}})"
        )

    def close(self) -> None:
        made, self._made = self._made, None
        if made is not None:
            made.close()
        line, self._line = self._line, None
        if line is not None:
            line.close()

    def __del__(self) -> None:
        if getattr(self, "_made", None) is not None or getattr(self, "_line", None) is not None:
            self.close()


def _check_skip(reading: Reading, cursor: Cursor, run: Run) -> None:
    """Raise UsageError if a plan would skip other steps than it names: with epoch_steps, an epoch that was left, or had
    another number of steps, makes the cursor's step differ from the run's."""
    if reading.plan.skip and run.ledger is not None and cursor.step != run.ledger.steps:
        message = "the plan's skip= counts the run's steps, but an epoch of epoch_steps= was not read to its end"
        hint = "call loader.resume() before the `for` to read its rest, or remove skip= if those steps are behind"
        raise UsageError(message, found=f"{run.ledger.steps} steps so far, of {cursor.step}", hint=hint)


def _progress(steps: Steps, epoch: int, loader: Host) -> str:
    """Return how many of an epoch's batches were returned, if the total is known."""
    run = loader._run
    try:
        total = steps.count(run.start_of(epoch))
        done = total - steps.count(run.cursor) if run.epoch == epoch else total
    except TypeError:  # in groups
        return ""
    return f"{done:,}/{total:,} batches, "


def _status(loader: Host, steps: Steps, epoch: int) -> StatusLine:
    """Return a pass's status line. It must not keep the loader alive."""
    weak, recent = ref(loader), deque([loader.stats()], maxlen=_RECENT)

    def text() -> str:
        here = weak()
        if here is None:
            return ""
        recent.append(here.stats())
        return f"epoch {epoch}: {_progress(steps, epoch, here)}{recent[-1] - recent[0]}"

    return StatusLine(text)


def _skip_cures(reading: Reading, error: Exception, task: Task, steps: Steps) -> bool:
    """Return whether on_error="skip" would leave out the samples that raised `error`."""
    if reading.spec.on_error == "skip" or failed_in_collate(error):
        return False
    if failed_in_transform(error):
        return True
    if not isinstance(error, CorruptError):
        return False
    reader = reading.reader(steps)
    try:  # single samples may be damaged, or the whole shard
        reader.read_undamaged(task)
    except Exception:
        return False
    finally:
        reader.close()
    return True


_alive: WeakSet[Pass] = WeakSet()
_of_the_parent: list[Any] = []


def _forget_in_child() -> None:
    """Keep the parent's executors alive for ever: ending them here would end the parent's workers."""
    for each in _alive:
        _of_the_parent.append(each._made)
        each._made = each._line = None


at_fork(after_in_child=_forget_in_child)
