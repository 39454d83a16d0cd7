"""Groups over the samples of a view: their steps, and the states of their runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple
from typing import Any

from mdsx.base.process import Counters
from mdsx.errors import UsageError, shown
from mdsx.order import Balance, Course, Grouping, Position, Tick
from mdsx.shards import Lengths, View
from mdsx.stream.batching import Cut, Resumed
from mdsx.stream.group_state import GroupIdentity, window_at, with_window
from mdsx.stream.groups import GroupSteps
from mdsx.stream.planning import Planner
from mdsx.stream.state import OrderIdentity, number_of
from mdsx.stream.steps import Cursor

_FEW = 4  # samples of a group, if their mean length is not known


class GroupBatcher:
    """Groups the samples of `view` by `rule`, from their lengths.

    `window_given`: whether the user gave the rule's window; else a state may have another one. `epoch_steps`: the
    number of steps of an epoch, which then continues where the one before it stopped. `balance`: how the rows of a node
    are dealt to its ranks.
    """

    def __init__(
        self,
        view: View,
        lengths: Lengths,
        rule: Grouping,
        epoch_steps: int | None,
        *,
        window_given: bool,
        seed: int,
        shuffle: bool,
        balance: Balance | None = None,
    ) -> None:
        if epoch_steps is not None and (
            isinstance(epoch_steps, bool) or not isinstance(epoch_steps, int) or epoch_steps < 1
        ):
            raise UsageError("epoch_steps must be an integer of at least 1", found=shown(epoch_steps))
        self.rule, self.epoch_steps = rule, epoch_steps
        self._view, self._lengths, self._window_given = view, lengths, window_given
        self._seed, self._shuffle, self._balance = seed, shuffle, balance
        self._made: tuple[Course, Cut, GroupSteps] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": None}

    @property
    def fields(self) -> Mapping[str, Any]:
        dealt = {} if self._balance is None else {"balance": list(astuple(self._balance))}
        return {**self._identity.fields, "epoch_steps": self.epoch_steps, **dealt}

    def steps(self, course: Course, cut: Cut, counters: Counters | None = None) -> GroupSteps:
        """Return how the epochs of `course` are cut: the same object as long as nothing changes."""
        made = self._made
        if made is None or made[0] is not course or made[1] != cut:
            mean = self._lengths.mean
            few = float(self.rule.capacity / mean) if mean else _FEW
            steps = GroupSteps(
                self._planner(course),
                course,
                cut,
                epoch_steps=self.epoch_steps,
                group_samples=few,
                balance=self._balance,
            )
            if made is not None and made[0] is course:
                steps.counted = made[2].counted
            made = self._made = course, cut, steps
        made[2].counters = counters
        return made[2]

    def reached(self, course: Course, cursor: Cursor) -> Tick:
        """Return the tick up to which groups were begun."""
        windows = self._planner(course).windows(cursor.epoch)
        if cursor.window == len(windows):
            return Tick(windows.stop)
        start, stop = windows[cursor.window]
        return Tick(stop if cursor.taken else start)

    # --- states

    def state(self, identity: OrderIdentity, course: Course, cursor: Cursor) -> dict[str, Any]:
        state = identity.state(cursor.epoch, cursor.position, reached=self.reached(course, cursor))
        if self.epoch_steps is not None:
            state["epoch"] = cursor.step // self.epoch_steps
        return {**state, "groups": self._identity.state(cursor)}

    def resumed(self, identity: OrderIdentity, course: Course, state: Mapping[str, Any]) -> Resumed:
        if not isinstance(state, Mapping) or "groups" not in state:
            return self._resumed(identity, course, state, Cursor(window=-1), None)
        order = {name: value for name, value in state.items() if name != "groups"}
        if state.get("fingerprint") != identity.fingerprint:
            identity.check(order)  # which names the dataset, not its lengths
        batcher = self if self._window_given else self._with_window(state["groups"])
        window, taken, step, epoch = batcher._identity.check(state["groups"])
        cursor = Cursor(window=window, taken=taken, step=step)
        if epoch is None:
            return batcher._resumed(identity, course, order, cursor, None)
        return batcher._resumed(identity, course, {**order, "epoch": epoch}, cursor, state)

    def _resumed(
        self,
        identity: OrderIdentity,
        course: Course,
        order: Mapping[str, Any],
        cursor: Cursor,
        state: Mapping[str, Any] | None,
    ) -> Resumed:
        """Return where a run continues: in the window that begins at the position of `order`, a state of the order.

        `cursor`: the window's number, and what was taken from it; `state`: if given, the run's epoch is that of it.
        """

        def at(epoch: int, start: int) -> Cursor:
            windows = self._planner(course).windows(epoch)
            number = window_at(windows, start, cursor.window, cursor.taken)
            return Cursor(epoch, Position(start - windows.start), number, cursor.taken)

        epoch, position, phases = identity.check(
            order, reached=lambda start: self.reached(course, at(order["epoch"], start))
        )
        found = at(epoch, epoch * course.epoch_samples + position)
        if position == course.epoch_samples:
            found = Cursor(epoch + 1)
        if self.epoch_steps is not None:
            before = epoch if state is None else number_of(state, "epoch")
            found = found._replace(step=before * self.epoch_steps + cursor.step)
        return Resumed(found, phases, self)

    def _with_window(self, found: Any) -> GroupBatcher:
        """Return this with the window of a state: the default may be another one since, of a later version or index."""
        rule = with_window(self.rule, found)
        if rule == self.rule:
            return self
        return GroupBatcher(
            self._view,
            self._lengths,
            rule,
            self.epoch_steps,
            window_given=False,
            seed=self._seed,
            shuffle=self._shuffle,
            balance=self._balance,
        )

    @property
    def _identity(self) -> GroupIdentity:
        return GroupIdentity(self.rule, self._lengths.identity, self.epoch_steps)

    def _planner(self, course: Course) -> Planner:
        return Planner(self._view, course, self._lengths, self.rule, seed=self._seed, shuffle=self._shuffle)
