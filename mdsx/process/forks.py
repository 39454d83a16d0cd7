"""Forks: which process owns an object, and what to do before and after a fork.

A forked child inherits the memory of its parent, but not its threads, and it must not touch what its parent still uses:
sockets, worker processes, locks on files. No other package asks for process ids or registers hooks for forks.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from weakref import WeakSet


class Owner:
    """The process in which this object was made. `here`: whether that is the current process, not a forked parent."""

    __slots__ = ("__weakref__", "here")

    def __init__(self) -> None:
        self.here = True
        _owners.add(self)


_owners: WeakSet[Owner] = WeakSet()


def _disown() -> None:
    for owner in list(_owners):
        owner.here = False
    _owners.clear()


def at_fork(
    *,
    before: Callable[[], object] | None = None,
    after_in_parent: Callable[[], object] | None = None,
    after_in_child: Callable[[], object] | None = None,
) -> None:
    """Register hooks for every fork. Those before a fork run in reverse order, the others in the order registered."""
    hooks = {"before": before, "after_in_parent": after_in_parent, "after_in_child": after_in_child}
    os.register_at_fork(**{when: hook for when, hook in hooks.items() if hook is not None})


at_fork(after_in_child=_disown)  # before the hooks of other modules, which may ask who owns something
