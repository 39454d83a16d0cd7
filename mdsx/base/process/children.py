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
from multiprocessing.process import current_process, parent_process
from typing import TYPE_CHECKING
from weakref import WeakSet

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext


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
def holding_interrupts(context: BaseContext) -> Iterator[None]:
    """Hold Ctrl-C back while processes of `context` start, and handle it at the end.

    A terminal sends it to the parent and to its children, but only the parent handles it. The processes have it
    blocked from the start, unless a fork server makes them.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may change signal handlers
        return
    if context.get_start_method() != "fork" and not current_process().daemon:  # a daemon may start no process
        from multiprocessing import forkserver, resource_tracker

        if context.get_start_method() == "forkserver":
            forkserver.ensure_running()  # all processes that it ever makes would have Ctrl-C blocked
        resource_tracker.ensure_running()  # its start would unblock Ctrl-C
    held: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: held.append(number))  # another thread may receive it
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        signal.signal(signal.SIGINT, before)
        if held:
            signal.raise_signal(signal.SIGINT)


def end_with_parent() -> None:
    """End this process as soon as its parent ends in any way. Do nothing if it has no parent."""
    parent = parent_process()
    if parent is None:
        return

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, name="mdsx-parent", daemon=True).start()
