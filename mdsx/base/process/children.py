"""A process and its children: who owns an object after a fork, Ctrl-C, and the end of the parent.

A forked child inherits the memory of its parent, but not its threads. It must not touch what the parent still uses:
sockets, worker processes, file locks. No other package reads process ids or registers fork hooks.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.process import parent_process
from weakref import WeakSet


class Owner:
    """The process that made this object. `here`: whether that is the current process, and not the parent of a fork."""

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
    """Register hooks for every fork. `before` hooks run in reverse order of registration, the others in order."""
    hooks = {"before": before, "after_in_parent": after_in_parent, "after_in_child": after_in_child}
    os.register_at_fork(**{when: hook for when, hook in hooks.items() if hook is not None})


at_fork(after_in_child=_disown)  # before the hooks of other modules, which may ask who owns something


@contextmanager
def ignoring_interrupts() -> Iterator[None]:
    """Processes started inside ignore Ctrl-C, which a terminal sends to the parent and to its children."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may change signal handlers
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def end_with_parent() -> None:
    """End this process as soon as its parent ends in any way. Do nothing if it has no parent."""
    parent = parent_process()
    if parent is None:
        return

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, name="mdsx-parent", daemon=True).start()
