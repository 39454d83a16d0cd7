"""The plan of a run: its phases with all settings filled in, and how states record them.

The program declares a plan before the run (`mdsx.Plan`), and `loader.change` adds phases to it. After a resume, phases
that have begun come from the state, and later ones from the program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import zip_longest
from typing import Any

from mdsx.base.cached import cached_property
from mdsx.datasets import Mixture, weights_of
from mdsx.errors import StateError, UsageError, shown
from mdsx.loader.spec import RunSpec
from mdsx.order import MAX_BATCH, MAX_PHASES, MAX_SAMPLES, Weight
from mdsx.stream import SAMPLES, Batching, Phase, Stages, Tokens, in_json, listed, weight_of

NO_PROPORTIONS = "a mixture without proportions has no weights to change"
GIVE_PROPORTIONS = "give each component a proportion, or a plan's first phase all of them"
_HINT = "give the plan the phases that had begun in the run, and change the run by loader.change() after loading"


@dataclass(frozen=True, eq=False)
class RunPhase:
    """A phase with all settings filled in. `asked`: `loader.change` added it."""

    at: int
    weights: tuple[Weight, ...] | None
    batching: Batching
    batch_size: int | None
    global_batch_size: int | None
    micro_batch: int | None
    asked: bool = False

    def spec(self, spec: RunSpec) -> RunSpec:
        """Return what a loader reads in this phase."""
        return replace(
            spec,
            plan=None,
            batching=self.batching,
            batch_size=self.batch_size,
            global_batch_size=self.global_batch_size,
            micro_batch=self.micro_batch,
        )

    @property
    def sizes(self) -> tuple[int | None, int | None, int | None]:
        """Return the batch size, the global batch size and the size of a micro-batch."""
        return self.batch_size, self.global_batch_size, self.micro_batch

    @property
    def fields(self) -> dict[str, Any]:
        """Return this as JSON, the same on all ranks and in every program."""
        return {
            "proportions": None if self.weights is None else in_json(self.weights),
            "groups": self.batching.groups,
            "global_batch_size": self.global_batch_size,
            "micro_batch": self.micro_batch,
        }

    def of_fields(self, at: int, fields: Mapping[str, Any], components: int, *, asked: bool) -> RunPhase:
        """Return a state's phase. What JSON cannot hold is taken from this one. Raise ValueError or TypeError."""
        if set(fields) != set(self.fields):
            raise ValueError("the fields")
        weights = fields["proportions"]
        if weights is not None:
            weights = tuple(map(weight_of, listed(weights)))
            if not 0 < len(weights) <= components or not any(weights):
                raise ValueError("the proportions")
            weights += (0,) * (components - len(weights))  # components that were added later
        size, micro = fields["global_batch_size"], fields["micro_batch"]
        if not all(value is None or (type(value) is int and 0 < value <= MAX_BATCH) for value in (size, micro)):
            raise ValueError("the sizes")
        if size is None and micro is not None and self.batching.step_samples is None:
            raise ValueError("a micro-batch without a global batch")
        batch_size = self.batch_size if size is None else None
        same = self.batching.groups == fields["groups"]
        batching = self.batching if same else self.batching.with_groups(fields["groups"])
        return RunPhase(at, weights, batching, batch_size, size, micro, asked)


@dataclass(frozen=True, eq=False)
class RunPlan:
    """The phases of a run, by threshold, the first at 0; and ranges of skipped steps."""

    phases: tuple[RunPhase, ...]
    skip: tuple[tuple[int, int], ...] = ()
    given: bool = True
    """Whether the program has a plan."""
    proportions_of: str | None = None
    max_epochs: Mapping[str, float] = field(default_factory=dict)
    declared: RunPlan | None = None
    """The declared plan, if a change or a state led to other phases."""
    replaced: tuple[tuple[int, Mapping[str, Any]], ...] = ()
    """Phases, as JSON, that a change replaced at their thresholds."""

    @classmethod
    def of(cls, spec: RunSpec) -> RunPlan:
        """Return the plan of a run with `spec`. Raise UsageError if the two do not fit."""
        plan, dataset = spec.plan, spec.dataset
        weights = dataset.phases[0][1] if isinstance(dataset, Mixture) and dataset.phases else None
        sizes = spec.batch_size, spec.global_batch_size, spec.micro_batch
        before = RunPhase(0, weights, spec.batching, *sizes)
        if plan is None:
            return cls((before,), given=False)
        check_number_of_phases(len(plan.phases))
        batching = None if spec.batching is SAMPLES else spec.batching
        base = Phase(batching=batching, global_batch_size=spec.global_batch_size, micro_batch=spec.micro_batch)
        for name in ("batching", "global_batch_size", "micro_batch"):
            if getattr(plan.phases[0], name) is not None and (found := getattr(base, name)) is not None:
                hint = "give it to the plan's first phase or to the loader, not both"
                raise UsageError(f"{name} is given twice", place="plan", found=shown(found), hint=hint)
        phases = list[RunPhase]()
        for at, phase in plan.complete:
            before = followed(before, at, phase.after(base), dataset, plan.proportions_of)
            phases.append(before)
        most, names = dict(plan.max_epochs or {}), dataset.names if isinstance(dataset, Mixture) else ("",)
        if unknown := [name for name in most if name not in names]:
            raise UsageError("max_epochs names no component", found=shown(unknown[0]), expected=", ".join(names))
        return cls(tuple(phases), tuple(plan.skip), proportions_of=plan.proportions_of, max_epochs=most)

    @property
    def changes(self) -> bool:
        """Return whether the run has a plan, or was changed, so that its states record phases."""
        return self.given or self.declared is not None

    @cached_property
    def stages(self) -> Stages:
        """Return what steps need to know about the phases."""
        keys = [phase.batching.groups for phase in self.phases]
        grids = tuple(map(keys.index, keys))
        return Stages(tuple(phase.at for phase in self.phases), grids, tuple(phase.weights for phase in self.phases))

    def number(self, phase: RunPhase) -> int:
        """Return the number of a phase; -1 if another one replaced it."""
        return next((number for number, each in enumerate(self.phases) if each is phase), -1)

    def end(self, phase: RunPhase) -> int | None:
        """Return the threshold at which a phase ends; None for the last one."""
        return next((each.at for each in self.phases if each.at > phase.at), None)

    def recut(self, phase: RunPhase) -> int | None:
        """Return the threshold from which on steps have other groups or another size; None if they never do."""
        own = {**phase.fields, "proportions": None}
        later = (each for each in self.phases if each.at > phase.at)
        return next((each.at for each in later if {**each.fields, "proportions": None} != own), None)

    def with_weights(self, changed: Callable[[Sequence[Weight]], tuple[Weight, ...]]) -> RunPlan:
        """Return the plan with changed weights."""
        return self._with_each(
            lambda phase: phase if phase.weights is None else replace(phase, weights=changed(phase.weights))
        )

    def of_first(self, samples: int) -> RunPlan:
        """Return the plan for the first `samples` of the dataset."""
        return self._with_each(lambda phase: replace(phase, batching=phase.batching.of_first(samples)))

    def _with_each(self, changed: Callable[[RunPhase], RunPhase]) -> RunPlan:
        return replace(self, phases=tuple(map(changed, self.phases)))

    def with_phase(self, phase: RunPhase) -> RunPlan:
        """Return the plan with one more phase. It replaces a phase that begins at the same threshold."""
        phases = [each for each in self.phases if each.at != phase.at]
        known = {at for at, _ in self.replaced}
        replaced = [
            (each.at, each.fields)
            for each in self.phases
            if each.at == phase.at and not each.asked and each.at not in known
        ]
        check_number_of_phases(len(phases) + 1)
        return replace(
            self,
            phases=tuple(sorted([*phases, phase], key=lambda each: each.at)),
            declared=self.declared or self,
            replaced=(*self.replaced, *replaced),
        )

    # --- states

    def state(self, progress: int) -> dict[str, Any]:
        """Return the field `plan` of a state; empty if the run has no plan."""
        if not self.changes:
            return {}
        found: dict[str, Any] = {"begun": [[phase.at, phase.fields] for phase in self.phases if phase.at <= progress]}
        if coming := [[phase.at, phase.fields] for phase in self.phases if phase.at > progress and phase.asked]:
            found["next"] = coming
        if self.replaced:
            found["replaced"] = [list(each) for each in self.replaced]
        if self.given:
            found["given"] = True
        return {"plan": found}

    def resumed(self, state: Mapping[str, Any], progress: int | None, components: int) -> RunPlan:
        """Return this declared plan for a run that continues with a state. `progress`: how far the state is, if known.

        Raise StateError if the phases that have begun differ from the state's.
        """
        if "plan" not in state:
            missing = [phase.at for phase in self.phases[1:] if progress is None or phase.at <= progress]
            if missing:
                raise StateError(
                    "the state's run had no plan, but this plan has phases that would have begun",
                    place="plan",
                    found="no phases" if progress is not None else "no phases, and not how many values were planned",
                    expected=f"a phase from {missing[0]:,} on",
                    hint="load it into a loader without plan=, and change the run by loader.change()",
                )
            return self
        progress = progress or 0
        begun, coming, replaced = self._parsed(state["plan"], progress, components)
        own, last = {phase.at: phase.fields for phase in begun}, begun[-1].fields
        instead = {phase.at: phase.fields for phase in replaced}
        for phase in self.phases:
            if phase.at > progress:
                continue
            there = own.get(phase.at)
            if there is None:
                raise StateError(
                    "the state lacks a phase of the plan",
                    place="plan",
                    found=f"phases from {', '.join(f'{at:,}' for at in own)}",
                    expected=f"one from {phase.at:,} on",
                    hint=_HINT,
                )
            known = there, last, instead.get(phase.at, there)
            for name, expected in phase.fields.items():
                if not any(_same(name, expected, each[name]) for each in known):
                    raise StateError(
                        "a phase of the plan that has begun differs from the state's",
                        place=f"plan, the phase from {phase.at:,} on, {name}",
                        found=shown(there[name]),
                        expected=shown(expected),
                        hint=_HINT,
                    )
        asked = {phase.at: phase for phase in coming}
        later = [
            phase
            for phase in self.phases
            if phase.at > progress
            and not (phase.at in asked and phase.at in instead and instead[phase.at] == phase.fields)
        ]
        known_later = {phase.at for phase in later}
        later += [phase for phase in coming if phase.at not in known_later]
        return replace(
            self,
            phases=(*begun, *sorted(later, key=lambda phase: phase.at)),
            declared=self,
            replaced=tuple((phase.at, phase.fields) for phase in replaced if phase.at not in known_later),
        )

    def _parsed(self, found: Any, progress: int, components: int) -> list[list[RunPhase]]:
        """Return a state's phases: those that have begun, those that `loader.change` added, and those that it replaced.
        Raise StateError."""
        names = "begun", "next", "replaced"
        try:
            if (
                not isinstance(found, Mapping)
                or not {"begun"} <= set(found) <= {*names, "given"}
                or found.get("given", True) is not True
            ):
                raise ValueError("the fields")
            begun, coming, replaced = (
                [
                    self._like(at).of_fields(at, fields, components, asked=name == "next")
                    for at, fields in listed(found.get(name, []))
                ]
                for name in names
            )
            starts = [phase.at for phase in (*begun, *coming)]
            if not begun or starts[0] != 0 or sorted(set(starts)) != starts or begun[-1].at > progress:
                raise ValueError("the thresholds")
            if any(phase.at <= progress for phase in coming) or not {phase.at for phase in replaced} <= set(starts):
                raise ValueError("the thresholds")
            if len(starts) > MAX_PHASES or len(replaced) > MAX_PHASES:
                raise ValueError(f"at most {MAX_PHASES} phases")
        except (TypeError, ValueError, KeyError, ArithmeticError, UsageError) as error:
            raise StateError(
                "the plan of the state is damaged, or for another kind of batches",
                place="plan",
                found=shown(found),
                expected=str(error),
                hint="give the loader the kind of batching= that the run had",
            ) from None
        return [begun, coming, replaced]

    def _like(self, at: object) -> RunPhase:
        """Return the phase in force at a threshold of a state. Raise ValueError."""
        if type(at) is not int or not 0 <= at < MAX_SAMPLES:
            raise ValueError("a threshold")
        return self.phases[self.stages.at(at)]


def check_number_of_phases(phases: int) -> None:
    """Raise UsageError if states cannot record so many phases."""
    if phases > MAX_PHASES:
        raise UsageError("too many phases", found=phases, expected=f"at most {MAX_PHASES} in a run")


def followed(
    before: RunPhase, at: int, phase: Phase, dataset: object, proportions_of: str | None = None, *, asked: bool = False
) -> RunPhase:
    """Return `phase`, with the settings that it omits taken from `before`. Raise UsageError if it does not fit."""
    place = f"the phase from {at:,} on"
    batching = before.batching if phase.batching is None else phase.batching
    if at and batching.counts_tokens != isinstance(at, Tokens):
        what, hint = ("tokens", f"mdsx.Tokens({int(at)})") if batching.counts_tokens else ("samples", f"{int(at)}")
        raise UsageError(
            f"the thresholds of this run count {what}", place=place, found=repr(at), hint=f"write {hint} for them"
        )
    if at and (batching.grouped, batching.counts_tokens) != (before.batching.grouped, before.batching.counts_tokens):
        message = "all phases of a run must have the same kind of batches: of samples, by length, or of one shape"
        raise UsageError(message, place=place)
    weights = before.weights
    if phase.proportions is not None:
        if not isinstance(dataset, Mixture):
            raise UsageError("only a mixture has proportions", place=place, found=type(dataset).__name__)
        if at and before.weights is None:
            raise UsageError(NO_PROPORTIONS, place=place, hint=GIVE_PROPORTIONS)
        weights = weights_of(dataset, phase.proportions, [0] * len(dataset.names), proportions_of, planned=True)
    check_not_cut(batching, dataset, proportions_of)
    sizes = before.sizes
    if phase.global_batch_size is not None:
        if before.batch_size is not None:
            hint = "give the loader global_batch_size= in place of batch_size="
            raise UsageError("a plan sets the global batch size", place=place, found="batch_size=", hint=hint)
        sizes = None, phase.global_batch_size, phase.micro_batch or before.micro_batch
    elif phase.micro_batch is not None:
        sizes = *sizes[:2], phase.micro_batch
    return RunPhase(int(at), weights, batching, *sizes, asked)


def check_not_cut(batching: Batching, dataset: object, proportions_of: str | None = None) -> None:
    """Raise UsageError if proportions count values that the batching cuts off."""
    column = proportions_of or (dataset.lengths_column if isinstance(dataset, Mixture) else None)
    if column is not None and (batching.groups or {}).get("oversize") == "truncate":
        raise UsageError(
            f"proportions_of={column!r} counts all values of a sample, and oversize='truncate' cuts some off",
            hint="give oversize='split', which keeps all values, or proportions of samples",
        )


def _same(name: str, one: Any, other: Any) -> bool:
    """Return whether two phases have equal values of a field. Proportions are compared by their ratios; missing
    components have 0."""
    if name != "proportions" or one is None or other is None:
        return bool(one == other)
    exact = [[Fraction(weight_of(value)) for value in each] for each in (one, other)]
    first, second = (sum(each) for each in exact)
    return all(a * second == b * first for a, b in zip_longest(*exact, fillvalue=Fraction(0)))
