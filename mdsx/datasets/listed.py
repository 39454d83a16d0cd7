"""A run's components as its states list them: by number, including removed ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import xxhash

from mdsx.errors import StateError, shown
from mdsx.order import MAX_SAMPLES


class Listed(NamedTuple):
    """A component."""

    name: str
    fingerprint: str
    samples: int | None = None  # None: states of earlier versions lack it
    lengths: int | None = None  # the sum of its lengths, if proportions count lengths

    @property
    def plain(self) -> list[Any]:
        """Return this as JSON."""
        return [*self[:3]] if self.lengths is None else [*self]


def listed_of(found: Any) -> tuple[Listed, ...]:
    """Return the field `components` of a state. Raise StateError."""
    try:
        if not isinstance(found, list | tuple):
            raise TypeError("no list")
        components = tuple(_listed(each) for each in found)
    except (TypeError, ValueError):
        raise StateError(
            "the state lacks the components of a mixture", place="components", found=shown(found)
        ) from None
    return components


def _listed(found: Any) -> Listed:
    if not isinstance(found, list | tuple) or not 2 <= len(found) <= 4:
        raise ValueError("a component")
    name, fingerprint, *numbers = found
    if not isinstance(name, str) or not isinstance(fingerprint, str):
        raise TypeError("not text")
    (name + fingerprint).encode()  # a ValueError for surrogates
    if not all(number is None or (type(number) is int and 0 <= number < MAX_SAMPLES) for number in numbers):
        raise ValueError("a number")
    return Listed(name, fingerprint, *numbers)


def fingerprint_of(fingerprints: Iterable[str]) -> str:
    """Return the fingerprint of a mixture of these components, without a schedule."""
    return xxhash.xxh3_128_hexdigest("\n".join(["mixture", *fingerprints]).encode())


def matched(listed: Sequence[Listed], given: Sequence[Listed]) -> list[int | None]:
    """Return for each listed component its number in `given`, or None. Components are matched by fingerprint; among
    equal fingerprints, by name, then by order."""
    places: list[int | None] = [None] * len(listed)
    waiting = defaultdict[str, list[int]](list)
    for place, component in enumerate(given):
        waiting[component.fingerprint].append(place)
    for by_name in (True, False):
        for number, component in enumerate(listed):
            if places[number] is not None:
                continue
            for place in waiting[component.fingerprint]:
                if not by_name or given[place].name == component.name:
                    places[number] = place
                    waiting[component.fingerprint].remove(place)
                    break
    return places


def unique_names(listed: Sequence[Listed], removed: Sequence[bool]) -> tuple[str, ...]:
    """Return the names. If a removed component shares the name of another one, its number is added."""
    names = [component.name for component in listed]
    return tuple(
        f"{name}#{number}" if left and names.count(name) > 1 else name
        for number, (name, left) in enumerate(zip(names, removed, strict=True))
    )
