"""Objects for one thread at a time: a second thread gets an error instead of a share of the results."""

from __future__ import annotations

from threading import get_ident

from mdsx.errors import UsageError


class Turn:
    """Marks which thread is using an object now. Other threads may use it later."""

    __slots__ = ("_thread",)

    def __init__(self) -> None:
        self._thread: dict[str, int] = {}

    def take(self) -> None:
        """Begin this thread's turn. Raise UsageError if another thread has it.

        A thread that already has the turn keeps it: an interrupt may have come before `end`.
        """
        if self._thread.setdefault("id", get_ident()) != get_ident():  # atomic
            raise _busy()

    def end(self) -> None:
        """End this thread's turn."""
        self._thread.clear()

    def check(self) -> None:
        """Raise UsageError if another thread has the turn."""
        if self._thread.get("id", get_ident()) != get_ident():
            raise _busy()


def _busy() -> UsageError:
    hint = "let one thread take the batches and hand them to the others through a queue, or take turns with a lock"
    return UsageError("another thread is inside next() of this iterator", hint=hint)
