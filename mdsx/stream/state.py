"""A run's state: a few numbers, and the fields that must match for them to mean the same samples."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from fractions import Fraction
from typing import Any

from mdsx.errors import StateError, UsageError, shown
from mdsx.order import MAX_LANES, MAX_PHASES, MAX_SAMPLES, Phases, Weight, exact_weight
from mdsx.stream.batching import Batching, last_epoch

_FRACTION = re.compile(r"[0-9]{1,700}(/[1-9][0-9]{0,699})?")
_OF_MIXTURES = ("run", "components", "phases", "proportions")
_FREE_AT_START = {"lanes": MAX_LANES, "shuffle_block": MAX_SAMPLES}  # if no sample was read in their order yet
_SNAPSHOT = (
    "if parts were appended to a dataset since, open it as it was then, with mdsx.Dataset(url, snapshot={}): "
    "`mdsx info URL` lists its snapshots"
)
_REWEIGHT = (
    "construct the mixture with the proportions, or the schedule, that the run began with, resume, and change the "
    "proportions from there on by reweight()"
)
_HINTS = {
    "fingerprint": "the checkpoint belongs to another dataset: resume with the one that it was made with; "
    + _SNAPSHOT.format("..."),
    "order_version": "this version of mdsx computes another order: resume with the version that wrote the checkpoint",
}


@dataclass(frozen=True, slots=True)
class WorkerShare:
    """Which batches one of several worker processes hands out: counted from position `origin` on, each number i with
    `i % count == id`. All workers must cut batches of the same size, or they repeat and lose samples."""

    id: int
    count: int
    origin: int
    global_batch: int

    def state(self, position: int) -> dict[str, int]:
        """Return it for the state of a worker at `position`: at an epoch's start, that is the origin."""
        return {**asdict(self), "origin": min(self.origin, position)}

    @classmethod
    def parse(cls, found: Any, position: int) -> WorkerShare:
        """Return the share; raise StateError if a worker at `position` cannot have it."""
        try:
            if not isinstance(found, Mapping) or set(found) != {field.name for field in fields(cls)}:
                raise ValueError("the fields")
            if any(type(value) is not int for value in found.values()):
                raise ValueError("the types")
            share = cls(**found)
            if not (0 <= share.id < share.count and 0 <= share.origin <= position and share.global_batch > 0):
                raise ValueError("the ranges")
            taken, rest = divmod(position - share.origin, share.global_batch)
            if rest or (taken and (taken - 1) % share.count != share.id):
                raise ValueError("the position, which is the end of one of its batches")
        except (TypeError, ValueError):
            raise StateError(
                "not a worker's state",
                place="worker",
                found=shown(found),
                expected="what state_dict() returned in a worker process",
            ) from None
        return share

    def check(self, batching: Batching) -> None:
        """Raise StateError if the batches of several workers have another size than in the state."""
        if self.count > 1 and self.global_batch != batching.global_batch:
            raise StateError(
                "the state is that of one of several workers, and fits no other batch size * world size",
                place="worker",
                found=f"batches of {self.global_batch} samples over all ranks",
                expected=f"{batching.batch_size} * {batching.world_size}",
                hint=f"resume with batch_size * world size = {self.global_batch} until the epoch ends, or use "
                "StreamingDataLoader, whose state fits any",
            )


@dataclass(frozen=True, slots=True)
class OrderIdentity:
    """What the global order depends on, beside epoch and position."""

    order_version: int
    seed: int
    lanes: int
    shuffle_block: int
    shuffle: bool
    fingerprint: str
    epoch_samples: int
    samples: int  # in all datasets; the fingerprint says which
    phases: Phases = ()  # of a weighted mixture: its schedule, with what `reweight` changed
    schedule: Phases = ()
    run: int | None = None  # of a mixture in runs
    components: Sequence[tuple[str, str]] = ()  # of a mixture: names and fingerprints

    def state(self, epoch: int, position: int, *, reached: int | None = None) -> dict[str, Any]:
        """Return the state of a run at (epoch, position): JSON-able, the same on every rank.

        `reached`: up to which position, counted over all epochs, the order may not change, if later than that.
        """
        state = {"epoch": epoch, "position": position, **self._fields()}
        if self.run is not None:
            state["run"] = self.run
        if self.components:
            state["components"] = [list(component) for component in self.components]
        if self.phases:
            now = epoch * self.epoch_samples + position if reached is None else reached
            state["phases"] = [[start, list(map(_plain, weights))] for start, weights in self.phases if start <= now]
            if _shares(self._declared) != _shares(self.phases[0][1]):  # reweighted before the first sample
                state["proportions"] = list(map(_plain, self._declared))
        return state

    def check(
        self,
        state: Mapping[str, Any],
        worker: tuple[int, int] = (0, 1),
        *,
        reached: Callable[[int], int] = lambda position: position,
    ) -> tuple[int, int, Phases]:
        """Return (epoch, position, phases) of a state of this order. Raise StateError that names the field.

        `reached`: up to which position the order may not change, from the state's position, both counted over all
        epochs. `worker`: the number of the worker process that continues, and how many there are; its state fits no
        other one.
        """
        if not isinstance(state, Mapping):
            raise StateError("a state is the dict that state_dict() returned", found=type(state).__name__)
        if "groups" in state:
            state = _of_samples(state)
        known = {"epoch", "position", *self._fields(), "worker", *_OF_MIXTURES}
        if unknown := [name for name in state if name not in known]:
            raise StateError(
                "the state has an unknown field",
                place=shown(unknown[0]),
                expected=", ".join(sorted(known)),
                hint='give what state_dict() returned, such as saved["data"] of a checkpoint that holds more',
            )
        epoch, position = (number_of(state, name) for name in ("epoch", "position"))
        if epoch > (last := last_epoch(self.epoch_samples)):
            raise StateError("the epoch is too far", place="epoch", found=epoch, expected=f"at most {last}")
        fresh = position == 0 and (epoch == 0 or (self.epoch_samples == self.samples and not self.phases))
        # first the fields that no argument of the dataset can correct; defaults of the others depend on them
        self._check_mixture(state)
        for name, expected in sorted(self._fields().items(), key=lambda field: field[0] not in _HINTS):
            if name not in state:
                raise StateError("the state lacks a field", place=name, hint="load what state_dict() returned, whole")
            found = state[name]
            if type(found) is not type(expected) or found != expected:
                if fresh and type(found) is int and 1 <= found <= _FREE_AT_START.get(name, 0):
                    continue
                hint = _HINTS.get(name, f"construct the dataset with {_argument(name, state)} to resume")
                if name == "fingerprint" and self.components:
                    hint += f"; if the run had another schedule, {_REWEIGHT}"
                raise StateError(
                    "the state is of another order, so its position means other samples",
                    place=name,
                    found=shown(found),
                    expected=repr(expected),
                    hint=hint,
                )
        if type(state.get("run")) is not type(self.run) or state.get("run") != self.run:
            run = f"run={shown(state['run'])}" if "run" in state else "no run"
            raise StateError(
                "the state is of a mixture in other runs",
                place="run",
                found=run,
                expected=f"run={self.run}" if self.run is not None else "no run",
                hint=f"construct the mixture with {run} to resume",
            )
        if position > self.epoch_samples:
            expected = self.epoch_samples
            raise StateError("the position is beyond the epoch", place="position", found=position, expected=expected)
        if "worker" in state:
            share = WorkerShare.parse(state["worker"], position)
            if (share.id, share.count) != worker:
                raise StateError(
                    "the state is that of one of several workers"
                    if share.count > 1
                    else "the state is that of one worker",
                    place="worker",
                    found=f"{share.id} of {share.count}",
                    expected=f"{worker[0]} of {worker[1]}",
                    hint=f"resume with as many workers (num_workers={share.count}), or use StreamingDataLoader, whose "
                    "state fits any number",
                )
        return epoch, position, self._merged(state, reached(epoch * self.epoch_samples + position))

    @property
    def _declared(self) -> tuple[Weight, ...]:
        """The proportions that a mixture was made with, from position 0 on."""
        return (self.schedule or self.phases)[0][1]

    def _check_mixture(self, state: Mapping[str, Any]) -> None:
        """Raise StateError that says what of the mixture differs, if the state is of another one, or of none."""
        if "phases" in state and not self.phases:
            raise StateError(
                "the state is of a mixture with proportions",
                place="phases",
                found=shown(state["phases"]),
                expected="a state of a mixture without proportions" if self.components else "a state of one dataset",
                hint=_REWEIGHT,
            )
        fingerprint = state.get("fingerprint")
        if "components" not in state or not isinstance(fingerprint, str) or fingerprint == self.fingerprint:
            return
        was, now = _components(state["components"]), dict(self.components)
        if not self.components:
            hint = "resume with the mixture that the run had"
            raise StateError("the state is of a mixture", place="components", found=shown([*was]), hint=hint)
        if list(was.values()) == list(now.values()):
            raise StateError(
                "the state is of a run whose mixture has another schedule, or none",
                place="phases",
                found=f"what of it had begun, {shown(state.get('phases'))}",
                expected=f"the schedule of this mixture, {[[at, list(map(_plain, to))] for at, to in self.schedule]}",
                hint=_REWEIGHT,
            )
        for name in (*was, *now):
            if was.get(name) != now.get(name):
                hint = "resume with the components that the run had"
                if name in was and name in now:
                    hint += "; " + _SNAPSHOT.format(f'"{was[name]}"')
                raise StateError(
                    f"the component {shown(name)} of the mixture is not that of the state",
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

    def _merged(self, state: Mapping[str, Any], now: int) -> Phases:
        """Return the phases that had started in the state, then those of the schedule that start later."""
        if not self.phases:
            return ()
        weights = self._declared
        past = _parsed(state.get("phases"), len(weights), now)
        began = _parsed([[0, state["proportions"]]], len(weights), 0) if "proportions" in state else past
        if _shares(weights) not in (_shares(past[0][1]), _shares(began[0][1])):
            raise StateError(
                "the state is of a mixture with other proportions",
                place="phases",
                found=[[begin, list(map(_plain, there))] for begin, there in past],
                expected=f"{list(map(_plain, weights))} from position 0 on",
                hint=_REWEIGHT,
            )
        begun = {start for start, _ in past}
        if missing := [start for start, _ in self.schedule if start <= now and start not in begun]:
            raise StateError(
                "the state lacks a phase of the mixture's schedule",
                place="phases",
                found=f"phases from positions {sorted(begun)}",
                expected=f"one from position {missing[0]}",
            )
        return past + tuple(phase for phase in self.schedule if phase[0] > now)


def _of_samples(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the state of the same place in the order of samples. Raise StateError if groups were taken from its
    window, whose samples are at later positions too, or steps of its epoch."""
    found = state["groups"]
    if not isinstance(found, Mapping):
        raise StateError("the state's groups are not an object", place="groups", found=shown(found))
    if any(number_of(found, name, "groups.") for name in ("taken", "step") if name in found or name == "taken"):
        raise StateError(
            "the state is in the middle of a window of groups, or of an epoch of a fixed number of steps",
            place="groups",
            found=shown(found),
            hint="give the loader the batching= and epoch_steps= that the run had",
        )
    order = {name: value for name, value in state.items() if name != "groups"}
    return {**order, "epoch": number_of(found, "epoch", "groups.")} if "epoch" in found else order


def _components(found: Any) -> dict[str, str]:
    try:
        pairs = [(name, fingerprint) for name, fingerprint in map(_listed, _listed(found))]
        components = dict(pairs)
        if not all(isinstance(text, str) for pair in components.items() for text in pair):
            raise TypeError("not text")
    except (TypeError, ValueError):
        raise StateError(
            "the state lacks the components of a mixture", place="components", found=shown(found)
        ) from None
    return components


def _parsed(found: Any, components: int, now: int) -> Phases:
    """Return the phases of a state, all started by position `now`. Raise StateError."""
    try:
        if len(_listed(found)) > MAX_PHASES:
            raise ValueError("the number")
        pairs = [(start, _listed(weights)) for start, weights in map(_listed, found)]
        if any(type(start) is not int for start, _ in pairs) or any(len(weights) != components for _, weights in pairs):
            raise ValueError("the types")
        starts = [start for start, _ in pairs]
        if starts[:1] != [0] or sorted(set(starts)) != starts or starts[-1] > now:
            raise ValueError("the starts")
        phases = tuple((start, tuple(map(_weight, weights))) for start, weights in pairs)
        if not all(any(weights) for _, weights in phases):
            raise ValueError("the weights")
    except (TypeError, ValueError, ArithmeticError, UsageError):
        raise StateError(
            "the state lacks the phases of a mixture",
            place="phases",
            found=shown(found),
            expected=f"[[0, [weights of {components} components]], ...]",
        ) from None
    return phases


def _listed(found: Any) -> Sequence[Any]:
    if not isinstance(found, list | tuple):
        raise TypeError("not a list")
    return found


def _plain(weight: Weight) -> Any:
    """Return a weight for JSON, exactly: a number if binary64 has it, else text like "1/3"."""
    exact = Fraction(weight)
    try:
        held = Fraction(float(exact)) == exact
    except OverflowError:
        held = False
    if not held:
        return str(exact)
    return exact.numerator if exact.denominator == 1 else float(exact)


def _weight(plain: Any) -> Weight:
    if not isinstance(plain, str | int | float | Fraction):
        raise TypeError("not a weight")
    weight: Weight = _fraction(plain) if isinstance(plain, str) else plain
    if isinstance(weight, int) and not isinstance(weight, bool):
        weight = int(float(weight))  # as other JSON readers read it
    exact_weight(weight, "weight")
    return weight


def _fraction(text: str) -> Fraction:
    if _FRACTION.fullmatch(text) is None:  # Fraction would compute "1e999999999"
        raise ValueError(text)
    return Fraction(text)


def _shares(weights: Sequence[Weight]) -> list[Fraction]:
    exact = [Fraction(weight) for weight in weights]
    return [weight / sum(exact) for weight in exact]


def _argument(name: str, state: Mapping[str, Any]) -> str:
    """Return the argument of the dataset that gives the field `name` its value in `state`."""
    found = state[name]
    if name in _FREE_AT_START:
        fields = [f"{field}={shown(state[field])}" for field in _FREE_AT_START if field in state]
        return f"shuffle=mdsx.Shuffle({', '.join(fields)})" if state.get("shuffle") is not False else "shuffle=False"
    if isinstance(found, str) and found.isdecimal() and len(found) <= 20:  # a seed is text in a state
        return f"{name}={found}"
    return f"{name}={shown(found)}"


def number_of(state: Mapping[str, Any], name: str, within: str = "") -> int:
    """Return the field `name` of a state. Raise StateError if it is no number of samples or epochs.

    `within`: what comes before `name` in the error's place, such as "groups.".
    """
    value = state.get(name)
    if type(value) is not int or not 0 <= value < MAX_SAMPLES:
        message, expected = "the state lacks a valid number", "an integer from 0 to 2^62 - 1"
        raise StateError(message, place=f"{within}{name}", found=shown(value), expected=expected)
    return value
