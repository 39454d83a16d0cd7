"""A mixture in a run whose components were changed: the components' numbers, and which mixtures fit a state.

A state lists the components by number. Old components keep their numbers, and new ones follow. A removed component
keeps its number, with the share 0. A mixture fits a state if it has all components that have a share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mdsx.datasets.exclusions import check_given, held_of
from mdsx.datasets.listed import Listed, fingerprint_of, listed_of, matched
from mdsx.datasets.mixture import Mixture, as_given, holding, in_run, numbers_left_out
from mdsx.errors import StateError, shown
from mdsx.order import MAX_SAMPLES, Weight

_CHANGE = "mdsx.change(state, mixture), or `mdsx change STATE --mixture new.json --out STATE2`"


def as_in(mixture: Mixture, state: Mapping[str, Any]) -> Mixture:
    """Return the mixture as in the state's run: with the state's numbers of components, and its exclusions.

    Raise StateError if it does not fit.
    """
    found = mixture = as_given(mixture)
    if "changed" in state:
        listed = listed_of(state.get("components"))
        numbers = [state.get(name) for name in ("changed", "epoch_samples")]
        if not all(type(number) is int and 0 <= number < MAX_SAMPLES for number in numbers) or not numbers[1]:
            raise StateError("the state lacks the numbers of its last change", place="changed", found=shown(numbers))
        if state.get("fingerprint") != (expected := fingerprint_of(component.fingerprint for component in listed)):
            raise StateError(
                "the state's fingerprint does not match its components",
                place="fingerprint",
                found=shown(state.get("fingerprint")),
                expected=expected,
                hint="load the whole value that state_dict() or mdsx.change returned",
            )
        changed, epoch_samples = (int(number or 0) for number in numbers)
        places = fitting(listed, mixture)
        found = in_run(mixture, listed, places, changed=changed, epoch_samples=epoch_samples)
    if "exclude" not in state and not found.held:
        return found
    held = held_of(state.get("exclude", []), len(found.components))
    for number, name in enumerate(found.names):
        if (own := numbers_left_out(found, number)) is not None:
            check_given(held, number, name, own)
    return holding(found, held)


def renumbered(weights: Sequence[Weight], before: Mixture, after: Mixture) -> tuple[Weight, ...]:
    """Return the weights of `before`'s components by the numbers in `after`: the same mixture in another run."""
    by_place = {place: weight for place, weight in zip(before.places, weights, strict=True) if place is not None}
    return tuple(0 if place is None else by_place[place] for place in after.places)


def fitting(listed: Sequence[Listed], mixture: Mixture) -> list[int | None]:
    """Return for each listed component its number in the mixture, or None if it was removed.

    Raise StateError if the mixture has a component that is not listed.
    """
    places = matched(listed, mixture.components)
    if strange := [each for number, each in enumerate(mixture.components) if number not in places]:
        raise StateError(
            f"the run has no component with the content of the mixture's {shown(strange[0].name)}",
            place="components",
            found=[f"{each.name} {each.fingerprint}" for each in listed],
            expected=f"one with the fingerprint {strange[0].fingerprint}",
            hint=f"to continue with other data, convert the state once: {_CHANGE}; if parts were appended to a "
            "dataset, give its snapshot, mdsx.Dataset(url, snapshot=...), and the part as another component",
        )
    return places
