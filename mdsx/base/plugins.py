"""Plug-ins: column types, stored formats and storages of other packages, found by their entry points.

mdsx looks up entry points only for a name that it does not know itself, and loads only the entry point of that name. A
dataset can only choose among installed packages; it cannot name code to load.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from mdsx.errors import UsageError, shown

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Group = Literal["mdsx.types", "mdsx.formats", "mdsx.storages"]

_WORDS: dict[Group, str] = {"mdsx.types": "column type", "mdsx.formats": "stored format", "mdsx.storages": "storage"}


class Plugin(NamedTuple):
    """The object that an entry point loads, and its distribution."""

    value: Any
    distribution: str


def find(group: Group, name: str) -> Plugin | None:
    """Return the plug-in of `group` with this name; None if no installed package has one.

    Raise UsageError, which names the distributions, if it cannot be loaded or two have the same name.
    """
    offers = _offers(group, tuple(sys.path)).get(name, ())
    if len(offers) > 1:
        names = " and ".join(map(_distribution, offers))
        message = f"several packages define the {_WORDS[group]} {shown(name)}"
        raise UsageError(message, place=f"entry points {group}", found=names, hint="uninstall all but one of them")
    return _loaded(group, offers[0]) if offers else None


def find_all(group: Group) -> list[Plugin]:
    """Return all plug-ins of a group, sorted by name. Raise UsageError as `find` does."""
    return [found for name in sorted(_offers(group, tuple(sys.path))) if (found := find(group, name)) is not None]


@lru_cache(maxsize=64)
def _offers(group: Group, _path: tuple[str, ...]) -> dict[str, list[EntryPoint]]:
    """Return the entry points of a group by name. `_path`, the packages' folders, is a key of the cache."""
    from importlib.metadata import entry_points  # takes milliseconds, as the scan does

    found = dict[str, list["EntryPoint"]]()
    for each in entry_points(group=group):
        found.setdefault(each.name, []).append(each)
    return found


def _loaded(group: Group, offer: EntryPoint) -> Plugin:
    distribution = _distribution(offer)
    try:
        return Plugin(offer.load(), distribution)
    except Exception as error:
        raise UsageError(
            f"the {_WORDS[group]} {offer.name!r} of the package {distribution} cannot be loaded: "
            f"{type(error).__name__}: {error}",
            place=f"entry point {offer.value}",
            hint=f"upgrade or uninstall {distribution}",
        ) from error


def _distribution(offer: EntryPoint) -> str:
    return "(unknown)" if offer.dist is None else offer.dist.name
