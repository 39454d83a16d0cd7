"""The groups of a run: its batchings and states, from a layout and the lengths of the samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mdsx.errors import UsageError, shown
from mdsx.order import Course, Grouping, Phases, Windows
from mdsx.process import Counters
from mdsx.shards import Lengths, View, lengths_of
from mdsx.stream.group_state import GroupIdentity, window_at, with_window
from mdsx.stream.groups import GroupBatching, GroupPlace, first_place
from mdsx.stream.layouts import Layout
from mdsx.stream.planning import Planner
from mdsx.stream.state import OrderIdentity, number_of

_FEW = 4  # samples of a group, if their mean length is not known


class GroupSource:
    """Groups the samples of `view` as `layout` says.

    `epoch_steps`: the number of steps of an epoch, which then continues where the one before it stopped.
    """

    def __init__(self, view: View, layout: Layout, epoch_steps: int | None, *, seed: int, shuffle: bool) -> None:
        if epoch_steps is not None and (
            isinstance(epoch_steps, bool) or not isinstance(epoch_steps, int) or epoch_steps < 1
        ):
            raise UsageError("epoch_steps must be an integer of at least 1", found=shown(epoch_steps))
        self.layout, self.epoch_steps = layout, epoch_steps
        self.lengths: Lengths = lengths_of(view, layout.length)
        self._view, self._seed, self._shuffle = view, seed, shuffle
        self._rule: Grouping | None = None
        self._batching: tuple[tuple[object, ...], GroupBatching] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_batching": None}

    @property
    def rule(self) -> Grouping:
        """Return how samples are grouped: the layout's rule; its default window is that of a loaded state."""
        if self._rule is None:
            self._rule = self.layout.grouping(self.lengths.mean)
        return self._rule

    @property
    def fields(self) -> dict[str, Any]:
        """Return what the groups depend on, beside the order: as JSON, equal on all ranks."""
        return {**self._identity.fields, "epoch_steps": self.epoch_steps}

    def first_place(self, epoch: int, before: Any) -> GroupPlace:
        """Return where `epoch` begins in a run that is at `before`."""
        return first_place(epoch, before, fixed=self.epoch_steps is not None)

    def batching(
        self, course: Course, rows: int, *, rank: int, world_size: int, drop_last: bool, counters: Counters | None
    ) -> GroupBatching:
        """Return how the epochs of `course` are cut: the same object as long as nothing changes."""
        key = (course, self.rule, rows, rank, world_size, drop_last)
        if self._batching is None or self._batching[0] != key:
            mean = self.lengths.mean
            made = GroupBatching(
                self._planner(course),
                course,
                rows=rows,
                rank=rank,
                world_size=world_size,
                drop_last=drop_last,
                epoch_steps=self.epoch_steps,
                group_samples=float(self.rule.capacity / mean) if mean else _FEW,
            )
            if self._batching is not None and self._batching[0][:2] == key[:2]:
                made.counted = self._batching[1].counted
            self._batching = key, made
        self._batching[1].counters = counters
        return self._batching[1]

    def reached(self, course: Course, place: GroupPlace) -> int:
        """Return the position up to which groups were begun, counted over all epochs."""
        windows = self._windows(course, place.epoch)
        if place.window == len(windows):
            return windows.stop
        start, stop = windows[place.window]
        return stop if place.taken else start

    def state(self, identity: OrderIdentity, course: Course, epoch: int, place: GroupPlace) -> dict[str, Any]:
        """Return the state of a run at (epoch, place)."""
        start = self.reached(course, place._replace(taken=0))
        samples, reached = course.epoch_samples, self.reached(course, place)
        state = identity.state(place.epoch, start - place.epoch * samples, reached=reached)
        return {**state, "epoch": epoch, "groups": self._identity.state(place)}

    def check(
        self, identity: OrderIdentity, course: Course, state: Mapping[str, Any]
    ) -> tuple[int, GroupPlace, Phases]:
        """Return (epoch, place, phases) of a state of this run. Raise StateError that names the field; then nothing
        changes."""
        before = self._rule
        try:
            return self._checked(identity, course, state)
        except BaseException:
            self._rule = before
            raise

    def _checked(
        self, identity: OrderIdentity, course: Course, state: Mapping[str, Any]
    ) -> tuple[int, GroupPlace, Phases]:
        order, window, taken, step, epoch = state, -1, 0, 0, None
        if isinstance(state, Mapping) and "groups" in state:
            order = {name: value for name, value in state.items() if name != "groups"}
            if state.get("fingerprint") != identity.fingerprint:
                identity.check(order)  # which names the dataset, not its lengths
            if self.layout.window is None:
                self._rule = with_window(self.rule, state["groups"])
            window, taken, step, epoch = self._identity.check(state["groups"])
            if epoch is not None:
                order["epoch"] = epoch
        found, position, phases = identity.check(
            order, reached=lambda start: self.reached(course, self._at(course, order["epoch"], start, window, taken))
        )
        place = self._at(course, found, found * course.epoch_samples + position, window, taken)._replace(step=step)
        run_epoch = found if epoch is None or self.epoch_steps is None else number_of(state, "epoch")
        if place.window == len(self._windows(course, place.epoch)):
            place = GroupPlace(step, place.epoch + 1, 0, 0)
            run_epoch += self.epoch_steps is None
        return run_epoch, place, phases

    def _at(self, course: Course, epoch: int, position: int, window: int, taken: int) -> GroupPlace:
        """Return the place in the window that begins at `position`, counted over all epochs; the end of `epoch`
        begins none."""
        number = window_at(self._windows(course, epoch), position, window, taken)
        return GroupPlace(0, epoch, number, taken)

    def _windows(self, course: Course, epoch: int) -> Windows:
        return self._planner(course).windows(epoch)

    def _planner(self, course: Course) -> Planner:
        return Planner(self._view, course, self.lengths, self.rule, seed=self._seed, shuffle=self._shuffle)

    @property
    def _identity(self) -> GroupIdentity:
        return GroupIdentity(self.rule, self.lengths.identity, self.epoch_steps)
