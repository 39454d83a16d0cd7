"""`mdsx.change`: make a new state from an old one, to continue a run with other data or without some samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mdsx.base.warn import warn
from mdsx.datasets import (
    Excludes,
    Listed,
    Mixture,
    as_in,
    checked_numbers,
    extended,
    fingerprint_of,
    held_of,
    listed_of,
    matched,
    numbers_left_out,
    spread,
    unique_names,
)
from mdsx.errors import MdsxError, StateError, UsageError, shown
from mdsx.loader.groups_left import groups_left
from mdsx.loader.run_plan import check_number_of_phases
from mdsx.order import MixtureOrder, Phases, Tick, Weight, Windows, add_phase
from mdsx.stream import in_json, number_of, phases_of, same_shares


def change(
    state: Mapping[str, Any], mixture: Mixture | None = None, *, exclude: Excludes | None = None
) -> dict[str, Any]:
    """Convert a state, so that its run continues with other data. Do this once, and load the result on every rank.

        state = mdsx.change(torch.load("checkpoint.pt")["data"], mdsx.Mixture({"web": ("s3://b/web", 0.5), ...}))

    The mixture has the components that the run reads from now on, with their proportions. Old components are recognised
    by their content, wherever they are now; all others are new. Components that stay continue where they were. The
    change applies from the next batch on; for groups, from the end of the present window; with `run=`, from the next
    run on. Until then, a removed component is still read: keep it in the mixture, with the proportion 0. A warning says
    for how long.

    Epoch lengths, lanes, shuffle block and `run` stay those of the state. Every rank makes its loader with the new
    mixture, and loads the new state. Components are numbered as in the state: old ones first, including removed ones.

    To read parts that were appended to a dataset, give two components: its snapshot,
    `mdsx.Dataset(url, snapshot=...)`, and the part, `url/part-NNNNN`.

    In a run with a plan, the plan has the proportions: give a mixture without them. The present ones stay, and new
    components have the share 0 until a later phase of the plan, or `loader.change`, gives them one.

    Args:
        state: What `state_dict()` returned, for a mixture with proportions.
        mixture: What the run reads from now on. None keeps the present components.
        exclude: Samples to exclude from now on, as in `mdsx.Mixture`: for each component all numbers, beginning with
            those already excluded. The loader's mixture then needs the same exclusions.

    Raises:
        UsageError: The run cannot be changed like this.
        StateError: The state is damaged.
    """
    done = changed(state, mixture, exclude)
    for note in done.notes:
        warn(note, seen_by="process")
    return done.state


@dataclass(frozen=True)
class Changed:
    """A new state, and warnings for its user."""

    state: dict[str, Any]
    notes: tuple[str, ...] = ()


def changed(state: Mapping[str, Any], mixture: Mixture | None, exclude: Excludes | None) -> Changed:
    """See `change`."""
    _check(state, mixture, exclude)
    before = _Before.of(state, mixture)
    after, notes, listed = dict(state), list[str](), before.listed
    names = unique_names(listed, [not share for share in before.phases[-1][1]])  # no share: it may have been removed
    if mixture is not None:
        after, listed, names = _with_components(state, before, mixture)
        notes += _needed(after, before, mixture, names)
        if mixture.held and exclude is not None:
            raise UsageError("exclude is given twice", hint="give it to the mixture or to mdsx.change, not both")
        if mixture.held:
            lists = [numbers_left_out(mixture, number) for number in range(len(mixture.sizes))]
            exclude = {name: numbers for name, numbers in zip(mixture.names, lists, strict=True) if numbers is not None}
    held = held_of(state.get("exclude", []), len(listed))
    for name, given in (exclude or {}).items():
        if name not in names:
            expected = ", ".join(names)
            raise UsageError("there is no such component", place="exclude", found=shown(name), expected=expected)
        number = names.index(name)
        numbers = checked_numbers(given, name, listed[number].samples)
        held = extended(held, number, name, numbers, before.reached)
    if held:
        after["exclude"] = [list(each) for each in held]
    return Changed(after, tuple(notes))


@dataclass(frozen=True)
class _Before:
    """A run as its state records it."""

    listed: tuple[Listed, ...]
    phases: Phases
    start: Tick
    """The first tick that the run reads: the state's position."""
    reached: Tick
    """The first tick whose order may still change."""

    @classmethod
    def of(cls, state: Mapping[str, Any], mixture: Mixture | None) -> _Before:
        if "components" in state:
            listed = listed_of(state["components"])
        elif mixture is not None and mixture.fingerprint == state.get("fingerprint"):
            listed = mixture.components
        else:
            raise UsageError(
                "the state does not list its components: an earlier version saved it",
                place="components",
                hint="load it into a loader with the run's mixture, and change what its state_dict() returns",
            )
        samples, groups = number_of(state, "epoch_samples"), state.get("groups", {})
        if not isinstance(groups, Mapping) or not samples:
            raise StateError("the state is damaged", place="groups", found=shown(groups))
        epoch = number_of(groups, "epoch", "groups.") if "epoch" in groups else number_of(state, "epoch")
        start = reached = Tick(epoch * samples + number_of(state, "position"))
        if "taken" in groups and number_of(groups, "taken", "groups."):
            if start >= (epoch + 1) * samples:
                raise StateError("the state is damaged", place="position", found=shown(state.get("position")))
            size = number_of(groups, "positions", "groups.") * number_of(state, "lanes")
            reached = Tick(Windows(start, (epoch + 1) * samples, None, max(size, 1))[0][1])
        return cls(listed, phases_of(state, len(listed), reached), start, reached)


def _check(state: Mapping[str, Any], mixture: Mixture | None, exclude: Excludes | None) -> None:
    if not isinstance(state, Mapping):
        raise StateError("state must be the dict that state_dict() returned", found=type(state).__name__)
    if mixture is None and exclude is None:
        raise UsageError("there is nothing to change", hint="give a mixture, or exclude=")
    if mixture is not None and not isinstance(mixture, Mixture):
        raise UsageError("mixture must be an mdsx.Mixture", found=shown(mixture))
    if exclude is not None and not isinstance(exclude, Mapping):
        hint = 'write exclude={"web": [17, 4]}'
        raise UsageError("exclude must be a mapping from components to numbers", found=shown(exclude), hint=hint)
    if "worker" in state:
        raise UsageError(
            "the state is that of one worker process",
            hint="change the state that StreamingDataLoader.state_dict() returns",
        )
    if "phases" not in state or (mixture is not None and not mixture.weighted and "plan" not in state):
        raise UsageError(
            "only a mixture with proportions can change: without them, an epoch reads each sample once",
            found="a state without proportions" if "phases" not in state else repr(mixture),
            hint="give each component a proportion; or finish the epoch with the old data, and begin another run with "
            "the new data",
        )
    if mixture is None:
        return
    for name, given in (("run", mixture.run), ("epoch_samples", mixture.epoch_samples)):
        if name == "epoch_samples" and not mixture.epoch_samples_given:
            continue
        if given != state.get(name):
            raise UsageError(
                f"{name} cannot change within a run",
                found=f"{name}={given}",
                expected=f"{name}={shown(state.get(name))}",
                hint=f"give the mixture {name}={shown(state.get(name))}",
            )


def _with_components(
    state: Mapping[str, Any], before: _Before, mixture: Mixture
) -> tuple[dict[str, Any], tuple[Listed, ...], tuple[str, ...]]:
    """Return the state with the mixture's components and their names."""
    components, places = mixture.components, matched(before.listed, mixture.components)
    new = [place for place in range(len(components)) if place not in places]
    listed = tuple(
        old if place is None else components[place] for old, place in zip(before.listed, places, strict=True)
    ) + tuple(components[place] for place in new)
    places += new
    if mixture.weighted:
        weights = spread(next(own for at, own in reversed(mixture.phases) if at <= before.reached), places)
    else:
        weights = _as_planned(before, places, unique_names(before.listed, [False] * len(before.listed)))
    phases = tuple((at, (*own, *(0,) * len(new))) for at, own in before.phases)
    if not same_shares(phases[-1][1], weights):
        if isinstance(state.get("plan"), Mapping) and state["plan"].get("given"):
            raise UsageError(
                "the plan of the run has the proportions",
                found=f"a mixture with other proportions, {in_json(weights)}",
                expected=f"a mixture without proportions, or with the present ones, {in_json(phases[-1][1])}",
                hint="give the mixture no proportions: new components have the share 0 until a later phase of the "
                "plan, or loader.change(), gives them one",
            )
        phases = add_phase(phases, before.reached, weights)
    check_number_of_phases(len(phases))
    after = {name: value for name, value in state.items() if name != "proportions"}
    after |= {
        "fingerprint": fingerprint_of(component.fingerprint for component in listed),
        "components": [component.plain for component in listed],
        "phases": [[at, in_json(own)] for at, own in phases],
        "changed": before.reached,
    }
    if "consumed" in state:
        after["consumed"] = _longer(state["consumed"], len(listed))
    if "plan" in state:
        after["plan"] = _in_force(state["plan"], in_json(weights))
    return after, listed, unique_names(listed, [place is None for place in places])


def _as_planned(before: _Before, places: Sequence[int | None], names: Sequence[str]) -> tuple[Weight, ...]:
    """Return the present proportions of a run with a plan, with 0 for new components. Raise UsageError if the mixture
    lacks a component that has a share."""
    now = before.phases[-1][1]
    if lacking := [name for name, weight, place in zip(names, now, places, strict=False) if weight and place is None]:
        raise UsageError(
            "the run reads a component that the mixture lacks",
            found=f"a mixture without {lacking[0]}",
            hint="keep it, and give it the proportion 0 in a later phase or by loader.change(); then remove it",
        )
    return (*now, *(0,) * (len(places) - len(now)))


def _longer(consumed: Any, components: int) -> Any:
    """Return a state's accounts, with 0 for new components."""
    if not isinstance(consumed, Mapping):
        return consumed  # it is invalid: loading the state says so
    longer = {
        name: [*consumed[name], *[0] * (components - len(consumed[name]))]
        for name in ("samples", "tokens")
        if isinstance(consumed.get(name), list | tuple)
    }
    return {**consumed, **longer}


def _in_force(plan: Any, weights: list[Any]) -> Any:
    """Return a state's plan with these proportions in the present phase. It records the previous phase as replaced,
    because the program may still declare it."""
    try:
        *earlier, (at, fields) = plan["begun"]
        replaced = list(plan.get("replaced", []))
        if at not in [known for known, _ in replaced]:
            replaced.append([at, fields])
        begun = [*earlier, [at, {**fields, "proportions": weights}]]
        return {**plan, "begun": begun, "replaced": replaced}
    except (TypeError, KeyError, ValueError):
        return plan  # it is invalid: loading the state says so


def _needed(after: Mapping[str, Any], before: _Before, mixture: Mixture, names: Sequence[str]) -> list[str]:
    """Return warnings about removed components that are still read for a while. Raise UsageError if the mixture lacks
    one of them."""
    listed, lanes = listed_of(after["components"]), number_of(after, "lanes")
    phases = phases_of(after, len(listed), before.reached)
    sizes = [max(component.samples or 1, 1) for component in listed]
    (_, first), *later = phases
    order = MixtureOrder(sizes, first, seed=_seed(after), lanes=lanes, shuffle_block=1, phases=later, run=mixture.run)
    if order.last_change <= before.start:
        return []
    drawn = order.drawn(before.start, order.last_change).tolist()
    removed = [number for number, share in enumerate(phases[-1][1]) if not share and drawn[number]]
    if not removed:
        return []
    places = matched(listed, mixture.components)
    if lacking := [number for number in removed if places[number] is None]:
        name = names[lacking[0]]
        raise UsageError(
            f"component {shown(name)} is still needed: the change applies from tick {order.last_change} on",
            found=f"{drawn[lacking[0]]} of its samples from tick {before.start} to there",
            expected="a mixture with that component",
            hint="keep it in the mixture until then, with the proportion 0 (mdsx.change then says for how many "
            "groups); or change a state that is at the end of a window",
        )
    left = f"{order.last_change - before.start} more ticks"
    if "groups" in after:
        found = _groups_left(after, mixture)
        left = f"{found} more groups over all ranks, until the window ends" if found is not None else "this window"
    return [
        f"the removed component {shown(names[number])} is still read for {left}: keep it in the mixture until then, "
        "with the proportion 0"
        for number in removed
    ]


def _groups_left(state: Mapping[str, Any], mixture: Mixture) -> int | None:
    """Return how many groups are left in a state's window; None if the lengths cannot be found."""
    try:
        without = {name: value for name, value in state.items() if name != "exclude"}
        return groups_left(state, as_in(mixture, without if not mixture.held else state))
    except MdsxError:
        return None


def _seed(state: Mapping[str, Any]) -> int:
    found = state.get("seed")
    if not isinstance(found, str) or not found.isdecimal() or len(found) > 20:
        raise StateError("the state lacks its seed", place="seed", found=shown(found))
    return int(found)
