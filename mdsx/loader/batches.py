"""Base class of both loaders: a rank's batches, prefetched, with checkpoints.

Only the loader's run knows the cursor (see mdsx/stream/run.py). The loader hands tasks to threads or worker processes,
and its run counts the batches that `next()` returns. So a state skips no prefetched batch, and fits any number of
workers.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import Any
from weakref import ref

from mdsx.base.process import Owner
from mdsx.datasets import Mixture, proportions_in, weights_of
from mdsx.errors import StateError, UsageError, shown
from mdsx.loader.agreement import agreed, asked, compare, compare_change, compare_versions, decoders, digest
from mdsx.loader.ahead import Ahead
from mdsx.loader.components import ComponentCounts
from mdsx.loader.passes import Pass
from mdsx.loader.planned_run import PlannedRun, planned_run
from mdsx.loader.reading import Reading
from mdsx.loader.stats import Stats, stats_of
from mdsx.loader.trace import TracedItem, steps_with, traced_steps
from mdsx.order import MAX_SAMPLES, Tick, Weight
from mdsx.stream import Consumed, Cursor, Iteration, Ledger, Meter, Phase, PlannedEpoch, Run, Steps, Tokens

_log = logging.getLogger("mdsx")


class BatchLoader:
    """The batches of a rank, epoch by epoch: the base of `StreamingDataLoader` and `Loader`."""

    def __init__(
        self,
        reading: Reading,
        run: Run,
        ahead: Ahead,
        *,
        progress: bool,
    ) -> None:
        """`ahead` makes the batches."""
        spec = reading.spec
        self.drop_last = spec.drop_last
        self.collate_fn = spec.collate_fn
        self._reading, self._run = reading, run
        begun = run.cursor != Cursor()  # the dataset was read before
        if begun and reading.plan.given:
            where = f"epoch {run.cursor.epoch}, position {run.cursor.position}"
            hint = "make the loader first, and load the state into it"
            raise UsageError("a run with a plan must begin at its start", found=where, hint=hint)
        run.ledger = Ledger.of(len(reading.names), counts_tokens=reading.batcher.counts_tokens, complete=not begun)
        self._ahead, self._progress = ahead, progress
        self._meter = Meter()
        self._components = _components_of(reading)
        self._order_hash, self._compared, self._loads = "", False, 0
        self._checked_tail = False
        self._entered: Reading | None = None  # what the last batches were made of
        self._current: ref[Iteration] | None = None  # weak: an iteration ends when its user drops it
        self._part = (0, 1)  # of that iteration
        try:
            known = reading.steps()
        except UsageError:  # the ranks are unknown yet
            return
        self._check_tail(known)

    def __getstate__(self) -> dict[str, Any]:
        return {
            **self.__dict__,
            "_run": copy(self._run),
            "_ahead": copy(self._ahead),
            "_current": None,
            "_entered": None,
            "_meter": Meter(),
            "_components": _components_of(self._reading),
            "_compared": False,
        }

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._reading.spec!r}, batch_size={self.batch_size}, epoch={self.epoch})"

    @property
    def batch_size(self) -> int:
        """Return the most samples, or packed rows, in a batch of this rank."""
        rows = self._reading.spec.rows
        return rows if rows is not None else self._reading.spec.cut(*self._reading.spec.ranks.part).rows

    @property
    def consumed(self) -> Consumed:
        """Return what the run has consumed since it began, over all ranks: samples and tokens of each component, steps,
        rows, and dropped and skipped samples. It is the same on every rank, also after a resume or a change."""
        return self._settled().consumed(self._reading.names)

    @property
    def step_complete(self) -> bool:
        """Whether the last batch returned ends its step: with `micro_batch`, the time to call the optimizer. It is True
        before the first batch."""
        return not self._run.cursor.part

    @property
    def epoch(self) -> int:
        """Return the epoch of the next batch."""
        return self._run.coming_epoch

    @property
    def remaining(self) -> int:
        """Return how many batches are left in the epoch of the next batch. Raise TypeError as `len` does."""
        return self._steps.count(self._run.coming)

    def __len__(self) -> int:
        """Return the number of batches of a whole epoch, the same on every rank.

        With `batching`, the number depends on the lengths of all samples. Raise TypeError if it is unknown: call `plan`
        to compute it, or fix it with `epoch_steps`. In an epoch in which the groups changed, it counts from there on.
        """
        return self._steps.count(self._run.start_of(self._run.coming_epoch))

    def plan(self, epoch: int | None = None, *, until: int | None = None) -> PlannedEpoch | PlannedRun:
        """Return what an epoch of groups has (default: the next batch's epoch), from a pass over the lengths.

        This makes `len(loader)` and `remaining` known for that epoch.

        With `plan=`, return what the whole run reads: the steps, the tokens, samples and epochs of each phase and
        component, and where `max_epochs` is exceeded. Printed, it is a table. The figures are estimates; only lengths
        are read. `until`: where the run ends, such as `mdsx.Tokens("15T")`; by default, after one epoch's samples.

        Raises:
            UsageError: The loader has neither `batching` nor `plan`; or `until` is not for a whole run with a plan; or
                a phase of the run begins in that epoch or before it.
        """
        reading = self._reading
        if reading.plan.given and epoch is None:
            ranks = reading.spec.ranks.part[1]
            return planned_run(reading, world_size=ranks, until=until)
        if until is not None:
            raise UsageError("until= is for a whole run with plan=", hint="remove until=, or epoch=")
        coming = self._run.coming
        return self._steps.plan(coming.epoch if epoch is None else epoch, coming)

    def trace(self, step: int, stop: int | None = None, *, world_size: int | None = None) -> Iterator[TracedItem]:
        """Yield the samples of one step of the run, or of the steps from `step` up to `stop`, over all ranks.

        Steps are counted from 0 at the run's start. Only lengths are read, no samples. `world_size`: the run's; the
        default is the present one.

        Raises:
            UsageError: The run is past that step.
        """
        ranks = self._reading.spec.ranks.part[1] if world_size is None else world_size
        end = step + 1 if stop is None else stop
        return traced_steps(self._reading, self._run.cursor, step, end, world_size=ranks)

    def trace_samples(
        self, samples: Iterable[tuple[str, int]], steps: int, *, world_size: int | None = None
    ) -> Iterator[TracedItem]:
        """Yield where samples come in the next `steps` steps. A sample is given as its component's name ("" for a
        dataset) and its number there."""
        ranks = self._reading.spec.ranks.part[1] if world_size is None else world_size
        cursor = self._run.cursor
        return steps_with(self._reading, cursor, samples, cursor.step + steps, world_size=ranks)

    def stats(self) -> Stats:
        """Return statistics of this loader so far, on this rank, in all its processes. This takes some microseconds.

        Any thread may call it at any time, also while `next()` waits. A copy of a loader counts from 0.
        """
        return stats_of(self._meter, self._ahead.totals, self._order_hash, self._components)

    def set_epoch(self, epoch: int) -> None:
        """Make the next pass read `epoch` from its start; a running iteration ends.

        If that epoch comes next anyway, nothing changes: a resume or a running pass continues.
        """
        if self._reading.plan.given and epoch != self._run.coming_epoch:
            hint = "a plan counts what the run has read: begin another run, or load a state"
            raise UsageError("a run with a plan cannot jump to another epoch", found=epoch, hint=hint)
        if epoch != self._run.coming_epoch:
            self._check_turn()
        self._run.set_epoch(epoch)
        self._close_if_left()

    def resume(self) -> None:
        """Make the next `for` continue the epoch that was interrupted. Change nothing if none was."""
        self._run.resume()

    def state_dict(self) -> dict[str, Any]:
        """Return the run's position: a few numbers, the same on every rank after the same number of batches.

        A run that loads it continues with the rest of the epoch, even if the loop over the epoch was left.
        """
        return {**self._reading.state(self._run.cursor), "consumed": self._settled().state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Make the next pass continue at `state`, on any number of ranks and workers, with any batch size.

        An iteration that has returned no batch yet continues there too; a running one ends.

        If parts were appended to the dataset since (`mdsx.append`), the run continues with the snapshot that the state
        was saved with, and logs that. This works for a whole dataset. For a selection or a mixture, open the datasets
        with `mdsx.Dataset(url, snapshot=...)`.

        Raises:
            StateError: The state belongs to another dataset or order. The error names the field.
        """
        own = (
            {name: value for name, value in state.items() if name != "consumed"}
            if isinstance(state, Mapping)
            else state
        )
        reading, cursor = self._reading.resumed(own)
        ledger = Ledger.of(len(reading.names), counts_tokens=reading.batcher.counts_tokens).loaded(state)
        if reading.spec.epoch_steps is None:
            cursor = cursor._replace(step=ledger.steps)
            if reading.plan.skip and "consumed" not in state and not ledger.complete:
                hint = "remove skip= from the plan: steps then count from here, as in loader.consumed"
                message = "the plan skips steps, but the state lacks the number of steps so far"
                raise StateError(message, place="consumed", found="no accounts", hint=hint)
        self._check_turn()
        self._run.load(cursor)
        self._run.ledger = ledger
        self._compared, self._loads = False, self._loads + 1
        self._close_if_left()
        if reading.view is not self._reading.view:
            reading.log_snapshot(self._reading)
            self._checked_tail = False
        self._use(reading)

    def reweight(self, proportions: Sequence[Weight] | Mapping[str, Weight]) -> None:
        """Change the proportions of the mixture's components, from the next batch on.

        Give a list in the order of the components, or a mapping from their names. A mapping may omit components: these
        keep their present numbers. Each component continues where it is.
        The proportions apply up to the next entry of the mixture's schedule, if there is one. A mixture with `run=`
        changes with its next run; with `batching`, a mixture changes at the end of the window (see docs/batches.md).
        Call it on every rank at the same position, between two batches or two epochs. The state holds the proportions.

        Raises:
            UsageError: The dataset is not a mixture, or the proportions do not fit its components; or a step of
                micro-batches is not complete.
        """
        if self._reading.plan.changes:
            reading = self._reading.at(self._run.cursor)
            dataset, now = reading.spec.dataset, reading.weights_from(reading.next_change(self._run.cursor))
            if isinstance(dataset, Mixture):
                column = reading.plan.proportions_of
                weights = weights_of(dataset, proportions, now, column, planned=True)
                proportions = proportions_in(dataset, weights, column)
            self.change(Phase(proportions))
            return
        if self._run.cursor.part:
            hint = "call it when loader.step_complete is True"
            raise UsageError("proportions cannot change between two micro-batches of a step", hint=hint)
        self._settled()  # what was read counts by the proportions before
        self._use(self._reading.reweighted(proportions, self._run.cursor))

    def change(self, phase: Phase, at: int | None = None) -> None:
        """Change the running run: what it reads, how samples are grouped, and the size of steps.

            loader.change(mdsx.Phase({"web": 0.5, "math": 0.5}, batching=mdsx.Pack(32768, length="tokens")))

        Fields that `phase` does not set keep their values. The phase begins at the next boundary: for batches of
        samples, the next step; for groups, the end of the present window. Or it begins at a later threshold `at`, as in
        `mdsx.Plan`. Prefetched batches that do not change are kept. The state holds the phase, so a resumed program may
        give the old or the new arguments. Call it on every rank at the same position, with the same phase. If
        torch.distributed is initialised, the ranks compare their phases.

        Raises:
            UsageError: The phase does not fit the run, or another rank asked for another one.
        """
        if not isinstance(phase, Phase):
            raise UsageError("a run changes by an mdsx.Phase", found=shown(phase))
        cursor = self._run.cursor
        reading = self._reading.at(cursor)
        least = reading.next_change(cursor)
        if at is None:
            at = Tokens(least) if reading.batcher.counts_tokens else least
        elif isinstance(at, bool) or not isinstance(at, int) or not least <= at < MAX_SAMPLES:
            raise UsageError("a change begins later than the run is", found=shown(at), expected=f"{least} or more")
        changed = reading.changed(phase, at)
        if (store := reading.spec.ranks.store) is not None:
            compare_change(store, [int(at), changed.plan.phases[changed.plan.stages.at(at)].fields])
        if changed.at(cursor) is not changed:  # the phase begins here
            self._close()
        self._reading = changed

    def __iter__(self) -> Iterator[Any]:
        made = Pass(self, self._reading.spec.ranks.part)
        self._check_tail(made.steps)
        made.steps.check(self._run.coming_epoch)
        return Iteration(self._run, made, "loader", warns=self._reading.warns, owner=Owner())

    def _settled(self) -> Ledger:
        """Return the run's accounts, including every batch returned so far."""
        ledger = self._run.ledger
        assert ledger is not None, "a loader's run has accounts"
        settled = ledger.settled(self._reading.drawn)
        if self._run.ledger is ledger:
            self._run.ledger = settled
        return settled

    @property
    def _steps(self) -> Steps:
        """Return how epochs are cut into steps, for the present ranks; in an iteration, for the ranks at its start."""
        iteration = self._iteration
        part = self._part if iteration is not None and self._run.has(iteration) else None
        return self._reading.steps(self._meter.counters, part)

    @property
    def _iteration(self) -> Iteration | None:
        """The iteration that prepared batches last, if alive."""
        return self._current() if self._current is not None else None

    def _use(self, reading: Reading) -> None:
        """Continue with `reading`, after dropping batches that were prefetched in another order."""
        before = self._reading
        if reading.course is not before.course or reading.plan is not before.plan:
            self._close()
            self._ahead.forget()
        self._reading = reading
        if reading.names != before.names:
            self._components = _components_of(reading)

    def _check_turn(self) -> None:
        """Raise UsageError if another thread is in the `next()` of the last iteration: a change would be half made."""
        if (iteration := self._iteration) is not None:
            iteration.check()

    def _close_if_left(self) -> None:
        if (iteration := self._iteration) is not None and not self._run.has(iteration):
            iteration.close()

    def _close(self) -> None:
        """Drop the last iteration's prefetched batches. If it continues, it makes them again."""
        if (before := self._iteration) is not None:
            before.close()

    def _enter(self, cursor: Cursor) -> Reading:
        """Return the Reading from a cursor on."""
        reading = self._reading.at(cursor)
        if reading is not self._entered:
            if self._entered is not None:
                self._ahead.forget()
            self._reading = self._entered = reading
        return reading

    def _replace_pass(self, iteration: Iteration, made: Pass) -> None:
        """Make `iteration` the one that prepares batches, through `made`."""
        self._close()
        self._current, self._part = ref(iteration), made.part

    def _agree(self, steps: Steps, cursor: Cursor) -> None:
        """Record what all ranks must agree on, and compare it with another rank's, once after each loaded state. Raise
        UsageError if they differ."""
        reading = self._reading
        found = agreed(reading, steps)
        if (hashed := digest(found)) != self._order_hash:
            self._order_hash = hashed
            rank, ranks = reading.spec.ranks.part
            _log.info("rank %d of %d: order hash %s of %s", rank, ranks, hashed, found)
        if not self._compared and (store := reading.spec.ranks.store) is not None:
            compare_versions(store)
            begin, decode = list(cursor), decoders(reading)
            compare(store, asked(reading), found, loads=self._loads, begin=begin, decode=decode)
        self._compared = True

    def _check_tail(self, steps: Steps) -> None:
        """Raise UsageError if a rank will have no samples in a batch and `collate_fn` cannot make an empty batch."""
        spec, coming = self._reading.spec, self._run.coming
        if spec.collate_fn is None or spec.uneven == "repeat" or self._checked_tail:
            return
        if 0 < (size := steps.last_size(coming)) < steps.world_size:
            samples = self._reading.course.epoch_samples
            self._reading.check_empty(Tick((coming.epoch + 1) * samples - size))
            self._checked_tail = True


def _components_of(reading: Reading) -> ComponentCounts | None:
    dataset = reading.spec.dataset
    return ComponentCounts(dataset.names) if isinstance(dataset, Mixture) else None
