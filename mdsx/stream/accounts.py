"""What a run has consumed, over all ranks, since it began: a few integers, the same on every rank.

In groups, each task carries what its step consumes. In batches of samples, the ticks that were returned are kept as
ranges, and are counted by component on request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsx.errors import StateError, shown
from mdsx.order import MAX_SAMPLES, Tick
from mdsx.stream.phase_state import listed
from mdsx.stream.steps import Task

STEPS, ROWS, DROPPED, DROPPED_VALUES, SKIPPED, SKIPPED_VALUES = range(6)
"""The indices of these in an array of amounts, after the samples and the values of each component."""
AMOUNTS = 6

_PLACES = {"taken": ROWS, "dropped": DROPPED, "skipped": SKIPPED}  # of samples, by the kind of their ticks

_FIELDS = {"samples", "tokens", "steps", "rows", "dropped", "skipped", "complete"}

Drawn = Callable[[Tick, Tick], NDArray[np.int64]]
"""Returns how many samples of each component are drawn from one tick up to another."""


@dataclass(frozen=True, slots=True)
class Consumed:
    """What a run has consumed, over all ranks. See `StreamingDataLoader.consumed`."""

    samples: dict[str, int]
    """The samples of each component. A sample counts where it begins."""
    tokens: dict[str, int] | None
    """The values of each component, such as tokens. None in batches without lengths."""
    steps: int
    """Steps since the run began, skipped ones included."""
    rows: int
    """Packed rows, length-bounded batches, or samples."""
    dropped_samples: int
    """Samples dropped at the ends of epochs because they did not fill a step."""
    dropped_tokens: int | None
    skipped_samples: int
    """Samples of the steps that the plan skips."""
    skipped_tokens: int | None
    complete: bool
    """Whether the counts begin at the run's start. False if they begin at a loaded state that had none."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """The accounts of a run: `amounts`, int64 [2 * components + 6]; ranges of ticks and `later` steps that are not in
    them yet. `counts_tokens`: values are counted too."""

    amounts: NDArray[np.int64]
    ticks: tuple[tuple[str, Tick, Tick], ...] = ()
    later: int = 0
    counts_tokens: bool = False
    complete: bool = True

    @classmethod
    def of(cls, components: int, *, counts_tokens: bool, complete: bool = True) -> Ledger:
        """Return empty accounts."""
        return cls(np.zeros(2 * components + AMOUNTS, np.int64), counts_tokens=counts_tokens, complete=complete)

    @property
    def steps(self) -> int:
        """Return the steps of the run so far, skipped ones included."""
        return int(self.amounts[STEPS - AMOUNTS]) + self.later

    def after(self, task: Task) -> Ledger:
        """Return the accounts after the last micro-batch of a step."""
        if not task.ends_step:
            return self
        if task.amounts is not None:
            return Ledger(self.amounts + task.amounts, self.ticks, self.later, self.counts_tokens, self.complete)
        ticks = _with(self.ticks, "skipped" if task.skip else "taken", task.start, task.stop)
        if task.dropped:
            ticks = _with(ticks, "dropped", task.stop, Tick(task.stop + task.dropped))
        return Ledger(self.amounts, ticks, self.later + (task.stop > task.start), self.counts_tokens, self.complete)

    def settled(self, drawn: Drawn) -> Ledger:
        """Return the accounts with all ticks counted."""
        if not self.ticks:
            return self
        amounts, components = self.amounts.copy(), (len(self.amounts) - AMOUNTS) // 2
        amounts[STEPS - AMOUNTS] += self.later
        for kind, start, stop in self.ticks:
            counts = drawn(start, stop)
            if kind == "taken":
                amounts[:components] += counts
            amounts[_PLACES[kind] - AMOUNTS] += counts.sum()
        return replace(self, amounts=amounts, ticks=(), later=0)

    def consumed(self, names: Sequence[str]) -> Consumed:
        """Return settled accounts as users see them. `names`: the components' names."""
        parts = self._lists()
        samples, tokens = (dict(zip(names, found, strict=True)) for found in parts[:2])
        steps, rows, dropped, dropped_values, skipped, skipped_values = parts[2]
        if not self.counts_tokens:
            return Consumed(samples, None, steps, rows, dropped, None, skipped, None, self.complete)
        return Consumed(samples, tokens, steps, rows, dropped, dropped_values, skipped, skipped_values, self.complete)

    def state(self) -> dict[str, Any]:
        """Return settled accounts as a field of a state."""
        samples, values, (steps, rows, *rest) = self._lists()
        found: dict[str, Any] = {"samples": samples, "tokens": values if self.counts_tokens else None}
        found |= {"steps": steps, "rows": rows, "dropped": rest[:2], "skipped": rest[2:]}
        return found if self.complete else {**found, "complete": False}

    def loaded(self, state: Mapping[str, Any]) -> Ledger:
        """Return the accounts of a state. Raise StateError if they do not fit this run."""
        components = (len(self.amounts) - AMOUNTS) // 2
        new = Ledger.of(components, counts_tokens=self.counts_tokens)
        if "consumed" not in state:
            return replace(new, complete=not any(state.get(name) for name in ("epoch", "position", "groups")))
        found = state["consumed"]
        try:
            if not set(found) <= _FIELDS:
                raise ValueError("the fields")
            tokens = [0] * components if found["tokens"] is None else found["tokens"]
            parts = found["samples"], tokens, [found["steps"], found["rows"]], found["dropped"], found["skipped"]
            if list(map(len, map(listed, parts))) != [components, components, 2, 2, 2]:
                raise ValueError("the lengths")
            numbers = [number for part in parts for number in part]
            if not all(type(number) is int and 0 <= number < MAX_SAMPLES for number in numbers):
                raise ValueError("the numbers")
        except (TypeError, KeyError, ValueError):
            raise StateError(
                "the state's accounts are damaged, or for another number of components",
                place="consumed",
                found=shown(found),
                expected=f"samples and tokens of {components} components, steps, rows, dropped and skipped",
            ) from None
        same = (found["tokens"] is not None) == self.counts_tokens
        return replace(new, amounts=np.array(numbers, np.int64), complete=found.get("complete", True) is True and same)

    def _lists(self) -> tuple[list[int], list[int], list[int]]:
        found: list[int] = self.amounts.tolist()
        components = (len(found) - AMOUNTS) // 2
        return found[:components], found[components : 2 * components], found[2 * components :]


def _with(
    ticks: tuple[tuple[str, Tick, Tick], ...], kind: str, start: Tick, stop: Tick
) -> tuple[tuple[str, Tick, Tick], ...]:
    """Return ranges with one more, merged with the last one if they are adjacent."""
    if start == stop:
        return ticks
    if ticks and ticks[-1][0] == kind and ticks[-1][2] == start:
        return (*ticks[:-1], (kind, ticks[-1][1], stop))
    return (*ticks, (kind, start, stop))
