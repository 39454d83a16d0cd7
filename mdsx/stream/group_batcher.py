"""Group the samples of a view, cut the groups into steps, and write and read the states of such runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple
from typing import Any

from mdsx.base.arguments import check_count
from mdsx.base.process import Counters
from mdsx.errors import StateError
from mdsx.order import Balance, Bucketing, Course, Grouping, Position, Tick
from mdsx.shards import Lengths, View
from mdsx.stream.batching import Batcher, Cut, Outlook, Resumed
from mdsx.stream.group_state import GroupIdentity, window_at, with_window
from mdsx.stream.groups import GroupSteps, kept_groups, places_of
from mdsx.stream.planning import START, Origin, Planner
from mdsx.stream.stages import ONE, Stages
from mdsx.stream.state import OrderIdentity, number_of
from mdsx.stream.steps import Cursor

_FEW = 4  # samples in a group, if their mean length is unknown


class GroupBatcher:
    """Groups the samples of `view` by `rule`, from their lengths.

    `window_given`: whether the user gave the rule's window; otherwise a state may bring another one. `epoch_steps`: the
    number of steps in an epoch, which then begins where the previous epoch ended. `balance`: how a node's rows are
    dealt to its ranks. `drop_short`: whether incomplete batches of buckets are dropped. `origin`: where the grid of
    windows begins; `stages`: those of the run's plan.
    """

    grouped = True

    def __init__(
        self,
        view: View,
        lengths: Lengths,
        rule: Grouping | Bucketing,
        epoch_steps: int | None,
        *,
        window_given: bool,
        seed: int,
        shuffle: bool,
        balance: Balance | None = None,
        drop_short: bool = False,
        origin: Origin = START,
        stages: Stages = ONE,
    ) -> None:
        if epoch_steps is not None:
            check_count("epoch_steps", epoch_steps)
        self.rule, self.epoch_steps = rule, epoch_steps
        self._view, self._lengths, self._window_given = view, lengths, window_given
        self._seed, self._shuffle, self._balance, self._drop_short = seed, shuffle, balance, drop_short
        self._origin, self._stages = origin, stages
        self._made: tuple[Course, Cut, GroupSteps] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": None}

    @property
    def counts_tokens(self) -> bool:
        return not isinstance(self.rule, Bucketing)

    @property
    def fields(self) -> Mapping[str, Any]:
        dealt = {} if self._balance is None else {"balance": list(astuple(self._balance))}
        dropped = {"drop_short": True} if self._drop_short else {}
        return {**self._identity.fields, "epoch_steps": self.epoch_steps, **dealt, **dropped}

    def steps(self, course: Course, cut: Cut, counters: Counters | None = None) -> GroupSteps:
        """Return how the epochs of `course` are cut; the same object as long as nothing changes."""
        made = self._made
        if made is None or made[0] is not course or made[1] != cut:
            steps = GroupSteps(
                self._planner(course),
                course,
                cut,
                epoch_steps=self.epoch_steps,
                group_samples=self._group_samples,
                balance=self._balance,
                drop_short=self._drop_short,
            )
            if made is not None and made[0] is course:
                steps.counted = made[2].counted
            made = self._made = course, cut, steps
        made[2].counters = counters
        return made[2]

    def reached(self, course: Course, cursor: Cursor) -> Tick:
        """Return the tick up to which groups were begun."""
        windows = self._planner(course).windows(cursor.epoch)
        if cursor.window == windows.end:
            return Tick(windows.every.stop)
        start, stop = windows[cursor.window]
        return Tick(stop if cursor.taken else start)

    def progress(self, course: Course, cursor: Cursor) -> int:
        return cursor.planned

    def progress_of(self, course: Course, state: Mapping[str, Any]) -> int | None:
        found = state.get("groups", {})
        if isinstance(found, Mapping) and "planned" in found:
            return number_of(found, "planned", "groups.")
        begun = isinstance(found, Mapping) and any(found.get(name) for name in ("epoch", "step"))
        return None if "plan" not in state and (begun or state.get("epoch") or state.get("position")) else 0

    def outlook(self, course: Course) -> Outlook:
        block, values = self._planner(course).block(0, 0)
        groups = kept_groups(block, self.rule, drop_short=self._drop_short)
        taken = block.before(groups)
        filled = int(taken.sizes.sum()) / max(places_of(taken, self.rule), 1)
        return Outlook(int((block.firsts == 0).sum()), groups, values, filled)

    def in_plan(self, stages: Stages, begun: Cursor | None) -> GroupBatcher:
        return self._with(stages=stages, origin=self._origin if begun is None else Origin(*begun[:3]))

    def going_on(self, before: Batcher) -> GroupBatcher:
        assert isinstance(before, GroupBatcher), "a run has groups in all its phases"
        return self._with(
            rule=before.rule, window_given=before._window_given, origin=before._origin, stages=before._stages
        )

    # --- states

    def state(self, identity: OrderIdentity, course: Course, cursor: Cursor) -> dict[str, Any]:
        state = identity.state(cursor.epoch, cursor.position, reached=self.reached(course, cursor))
        if self.epoch_steps is not None:
            state["epoch"] = cursor.step // self.epoch_steps
        origin = self._origin[1:] if cursor.epoch == self._origin.epoch else (0, 0)
        return {**state, "groups": self._identity.state(cursor, origin)}

    def resumed(self, identity: OrderIdentity, course: Course, state: Mapping[str, Any]) -> Resumed:
        if not isinstance(state, Mapping) or "groups" not in state:
            return self._resumed(identity, course, state, Cursor(window=-1), None)
        order = {name: value for name, value in state.items() if name != "groups"}
        if state.get("fingerprint") != identity.fingerprint:
            identity.check(order)  # its error names the dataset, not its lengths
        batcher = self if self._window_given else self._with_window(state["groups"])
        place = batcher._identity.check(state["groups"])
        cursor = Cursor(window=place.window, taken=place.taken, step=place.step, planned=place.planned)
        begun = number_of(order, "epoch") if place.epoch is None else place.epoch
        position, number = place.origin
        if position > number_of(order, "position"):
            found, expected = position, f"at most the position, {order['position']}"
            message = "the state's grid of windows begins after its position"
            raise StateError(message, place="groups.origin", found=found, expected=expected)
        batcher = batcher._with(origin=Origin(begun, Position(position), number) if any(place.origin) else START)
        if place.epoch is None:
            return batcher._resumed(identity, course, order, cursor, None)
        return batcher._resumed(identity, course, {**order, "epoch": place.epoch}, cursor, state)

    def _resumed(
        self,
        identity: OrderIdentity,
        course: Course,
        order: Mapping[str, Any],
        cursor: Cursor,
        state: Mapping[str, Any] | None,
    ) -> Resumed:
        """Return where a run continues: in the window that begins at the position of `order`, a state of the order.

        `cursor`: the window's number, and how many groups were taken; `state`: if given, its epoch is the run's epoch.
        """

        def at(epoch: int, start: int) -> Cursor:
            windows = self._planner(course).windows(epoch)
            number = window_at(windows, start, cursor.window, cursor.taken)
            position = Position(start - epoch * course.epoch_samples)
            return Cursor(epoch, position, number, cursor.taken, planned=cursor.planned)

        epoch, position, phases = identity.check(
            order, reached=lambda start: self.reached(course, at(order["epoch"], start)), begun=cursor.taken > 0
        )
        found = at(epoch, epoch * course.epoch_samples + position)
        if position == course.epoch_samples:
            found = Cursor(epoch + 1, planned=cursor.planned)
        if self.epoch_steps is not None:
            before = epoch if state is None else number_of(state, "epoch")
            found = found._replace(step=before * self.epoch_steps + cursor.step)
        return Resumed(found, phases, self)

    def _with_window(self, found: Any) -> GroupBatcher:
        """Return this with a state's window: the default may have changed with the version or the index."""
        rule: Grouping | Bucketing = with_window(self.rule, found)
        return self if rule == self.rule else self._with(rule=rule, window_given=False)

    def _with(
        self,
        *,
        rule: Grouping | Bucketing | None = None,
        window_given: bool | None = None,
        origin: Origin | None = None,
        stages: Stages | None = None,
    ) -> GroupBatcher:
        """Return a copy with changed fields."""
        origin = self._origin if origin is None else origin
        stages = self._stages if stages is None else stages
        if rule is None and origin == self._origin and stages is self._stages:
            return self
        return GroupBatcher(
            self._view,
            self._lengths,
            self.rule if rule is None else rule,
            self.epoch_steps,
            window_given=self._window_given if window_given is None else window_given,
            seed=self._seed,
            shuffle=self._shuffle,
            balance=self._balance,
            drop_short=self._drop_short,
            origin=origin,
            stages=stages,
        )

    @property
    def _group_samples(self) -> float:
        """Return about how many samples are in a group."""
        if isinstance(self.rule, Bucketing):
            return self.rule.group_samples
        mean = self._lengths.mean
        return float(self.rule.capacity / mean) if mean else _FEW

    @property
    def _identity(self) -> GroupIdentity:
        return GroupIdentity(self.rule, self._lengths.identity, self.epoch_steps)

    def _planner(self, course: Course) -> Planner:
        return Planner(
            self._view,
            course,
            self._lengths,
            self.rule,
            seed=self._seed,
            shuffle=self._shuffle,
            origin=self._origin,
            stages=self._stages,
        )
