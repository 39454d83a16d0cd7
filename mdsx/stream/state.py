"""A run's state: a few numbers, and the fields that must match so that they mean the same samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mdsx.errors import StateError, shown
from mdsx.order import MAX_LANES, MAX_SAMPLES, Phases, Position, Shuffle, Tick, Weight
from mdsx.stream import phase_state
from mdsx.stream.phase_state import REWEIGHT, in_json, listed
from mdsx.stream.steps import last_epoch
from mdsx.stream.worker_share import WorkerShare

_OF_MIXTURES = ("run", "components", "phases", "proportions", "changed", "exclude")
_OF_LOADERS = ("consumed", "plan")
_FREE_AT_START = {"lanes": MAX_LANES, "shuffle_block": MAX_SAMPLES}  # may differ until a sample was read in this order
_SNAPSHOT = (
    "if parts were appended to a dataset since, open it as it was then, with mdsx.Dataset(url, snapshot={}): "
    "`mdsx info URL` lists its snapshots"
)
_HINTS = {
    "fingerprint": "the checkpoint belongs to another dataset: resume with the one that it was made with; "
    + _SNAPSHOT.format("..."),
    "order_version": "this version of mdsx computes another order: resume with the version that wrote the checkpoint",
}


class Component(Protocol):
    """A component of a mixture."""

    @property
    def name(self) -> str: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def plain(self) -> list[Any]:
        """Return the component as states list it."""
        ...


@dataclass(frozen=True, slots=True)
class OrderIdentity:
    """What the global order depends on, besides epoch and position."""

    order_version: int
    seed: int
    lanes: int
    shuffle_block: int
    shuffle: bool
    fingerprint: str
    epoch_samples: int
    samples: int  # in all datasets; the fingerprint says which
    phases: Phases = ()  # of a weighted mixture: its schedule, with the changes by `reweight`
    schedule: Phases = ()
    run: int | None = None  # of a mixture with run=
    components: Sequence[Component] = ()  # of a mixture
    changed: int | None = None  # the tick of the last change of the components
    held: Sequence[Sequence[Any]] = ()  # excluded samples of components, and from which tick on

    def state(self, epoch: int, position: int, *, reached: Tick | None = None) -> dict[str, Any]:
        """Return the state of a run at (epoch, position): JSON-able, the same on every rank.

        `reached`: up to which tick the order may not change, if later than the position.
        """
        state = {"epoch": epoch, "position": position, **self._fields()}
        if self.run is not None:
            state["run"] = self.run
        if self.components:
            state["components"] = [component.plain for component in self.components]
        if self.changed is not None:
            state["changed"] = self.changed
        if self.held:
            state["exclude"] = [list(held) for held in self.held]
        if self.phases:
            now = epoch * self.epoch_samples + position if reached is None else reached
            state |= phase_state.fields_of(self.phases, self._declared, now)
        return state

    def check(
        self,
        state: Mapping[str, Any],
        worker: tuple[int, int] = (0, 1),
        *,
        reached: Callable[[Tick], Tick] = lambda tick: tick,
        begun: bool = False,
    ) -> tuple[int, Position, Phases]:
        """Return (epoch, position, phases) of a state of this order. Raise StateError, which names the field.

        `reached`: a function from the state's tick to the tick up to which the order may not change. `worker`: the
        number of the worker process that continues, and how many there are; a worker's state fits no other worker.
        `begun`: whether samples from the position on were read.
        """
        if not isinstance(state, Mapping):
            raise StateError("state must be the dict that state_dict() returned", found=type(state).__name__)
        if "groups" in state:
            state = _of_samples(state)
        known = {"epoch", "position", *self._fields(), "worker", *_OF_MIXTURES, *_OF_LOADERS}
        if unknown := [name for name in state if name not in known]:
            raise StateError(
                "the state has an unknown field",
                place=shown(unknown[0]),
                expected=", ".join(sorted(known)),
                hint='give what state_dict() returned, such as saved["data"] of a checkpoint that holds more',
            )
        epoch, position = (number_of(state, name) for name in ("epoch", "position"))
        if epoch > (last := last_epoch(self.epoch_samples)):
            raise StateError("the epoch is too large", place="epoch", found=epoch, expected=f"at most {last}")
        fresh = not begun and position == 0 and (epoch == 0 or (self.epoch_samples == self.samples and not self.phases))
        # first the fields that no argument of the dataset can correct; the defaults of others depend on them
        self._check_mixture(state)
        for name, expected in sorted(self._fields().items(), key=lambda field: field[0] not in _HINTS):
            if name not in state:
                hint = "load the whole dict that state_dict() returned"
                raise StateError("the state lacks a field", place=name, hint=hint)
            found = state[name]
            if type(found) is not type(expected) or found != expected:
                if fresh and type(found) is int and 1 <= found <= _FREE_AT_START.get(name, 0):
                    continue
                hint = _HINTS.get(name, f"construct the dataset with {_argument(name, state)} to resume")
                if name == "fingerprint" and self.components:
                    hint += f"; if the run had another schedule, {REWEIGHT}"
                raise StateError(
                    "the state belongs to another order, so its position means other samples",
                    place=name,
                    found=shown(found),
                    expected=repr(expected),
                    hint=hint,
                )
        if type(state.get("run")) is not type(self.run) or state.get("run") != self.run:
            run = f"run={shown(state['run'])}" if "run" in state else "no run"
            raise StateError(
                "the state's mixture had another run=",
                place="run",
                found=run,
                expected=f"run={self.run}" if self.run is not None else "no run",
                hint=f"construct the mixture with {run} to resume",
            )
        if position > self.epoch_samples:
            expected = self.epoch_samples
            raise StateError("the position is beyond the epoch", place="position", found=position, expected=expected)
        if "worker" in state:
            WorkerShare.parse(state["worker"], position).check_worker(*worker)
        if not self.phases:
            return epoch, Position(position), ()
        now = reached(Tick(epoch * self.epoch_samples + position))
        changed = self.changed is not None
        return epoch, Position(position), phase_state.merged(state, self.schedule, self._declared, now, changed)

    @property
    def _declared(self) -> tuple[Weight, ...]:
        """Return the proportions that a mixture was made with; after a change of components, the present ones."""
        return (self.phases if self.changed is not None else self.schedule or self.phases)[0][1]

    def _check_mixture(self, state: Mapping[str, Any]) -> None:
        """Raise StateError if the state belongs to another mixture, or to none. It says what differs."""
        if "phases" in state and not self.phases:
            raise StateError(
                "the state belongs to a mixture with proportions",
                place="phases",
                found=shown(state["phases"]),
                expected="a state of a mixture without proportions" if self.components else "a state of one dataset",
                hint=REWEIGHT,
            )
        fingerprint = state.get("fingerprint")
        if "components" not in state or not isinstance(fingerprint, str) or fingerprint == self.fingerprint:
            return
        was, now = _components(state["components"]), {each.name: each.fingerprint for each in self.components}
        if not self.components:
            hint = "resume with the mixture that the run had"
            raise StateError("the state belongs to a mixture", place="components", found=shown([*was]), hint=hint)
        if list(was.values()) == list(now.values()):
            raise StateError(
                "the state's mixture had another schedule, or none",
                place="phases",
                found=f"entries that had begun, {shown(state.get('phases'))}",
                expected=f"the schedule of this mixture, {[[at, in_json(to)] for at, to in self.schedule]}",
                hint=REWEIGHT,
            )
        for name in (*was, *now):
            if was.get(name) != now.get(name):
                hint = "resume with the components that the run had"
                if name in was and name in now:
                    hint += "; " + _SNAPSHOT.format(f'"{was[name]}"')
                hint += "; to change them in the run, see mdsx.change"
                raise StateError(
                    f"the component {shown(name)} of the mixture differs from the state's",
                    place="components",
                    found=was.get(name, "no such component"),
                    expected=now.get(name, "no such component"),
                    hint=hint,
                )
        hint = "give the mixture its components in the order that the run had"
        raise StateError("the components are in another order", place="components", found=[*was], hint=hint)

    def _fields(self) -> dict[str, Any]:
        return {
            "order_version": self.order_version,
            "seed": str(self.seed),  # JSON readers do not keep 64 bits
            "lanes": self.lanes,
            "shuffle_block": self.shuffle_block,
            "shuffle": self.shuffle,
            "fingerprint": self.fingerprint,
            "epoch_samples": self.epoch_samples,
        }


def _of_samples(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the same cursor's state without groups. Raise StateError if groups were taken from its window, because
    their samples are at later positions too, or steps from an epoch of a fixed number."""
    found = state["groups"]
    if not isinstance(found, Mapping):
        raise StateError("the state's groups are not an object", place="groups", found=shown(found))
    if any(number_of(found, name, "groups.") for name in ("taken", "step") if name in found or name == "taken"):
        raise StateError(
            "the state is in the middle of a window of groups, or of an epoch with a fixed number of steps",
            place="groups",
            found=shown(found),
            hint="give the loader the batching= and epoch_steps= that the run had",
        )
    order = {name: value for name, value in state.items() if name != "groups"}
    return {**order, "epoch": number_of(found, "epoch", "groups.")} if "epoch" in found else order


def _components(found: Any) -> dict[str, str]:
    try:
        pairs = [(name, fingerprint) for name, fingerprint, *_ in map(listed, listed(found))]
        components = dict(pairs)
        if not all(isinstance(text, str) for pair in components.items() for text in pair):
            raise TypeError("not text")
    except (TypeError, ValueError):
        raise StateError(
            "the state lacks the components of a mixture", place="components", found=shown(found)
        ) from None
    return components


def shuffle_of(state: object) -> Shuffle | None:
    """Return the lanes and the block of a state; None if it lacks valid ones."""
    found = {name: state.get(name) for name in _FREE_AT_START} if isinstance(state, Mapping) else {}
    if not all(type(value) is int and 1 <= value <= _FREE_AT_START[name] for name, value in found.items()):
        return None
    return Shuffle(**found) if found else None


def _argument(name: str, state: Mapping[str, Any]) -> str:
    """Return the dataset's argument that sets the field `name` to its value in `state`."""
    found = state[name]
    if name in _FREE_AT_START:
        fields = [f"{field}={shown(state[field])}" for field in _FREE_AT_START if field in state]
        return f"shuffle=mdsx.Shuffle({', '.join(fields)})" if state.get("shuffle") is not False else "shuffle=False"
    if isinstance(found, str) and found.isdecimal() and len(found) <= 20:  # a seed is text in a state
        return f"{name}={found}"
    return f"{name}={shown(found)}"


def number_of(state: Mapping[str, Any], name: str, within: str = "") -> int:
    """Return the field `name` of a state. Raise StateError if it is not a number of samples or epochs.

    `within`: a prefix of `name` in the error's place, such as "groups.".
    """
    value = state.get(name)
    if type(value) is not int or not 0 <= value < MAX_SAMPLES:
        message, expected = "the state lacks a valid number", "an integer from 0 to 2^62 - 1"
        raise StateError(message, place=f"{within}{name}", found=shown(value), expected=expected)
    return value
