"""Which endpoints and buckets have answered this process, or the process that it comes from.

What never answered is most likely misspelt; what answered before is most likely back soon. A forked child inherits
what its parent knows; a spawned one is given it (`answered`, `believe`), or unpickles a storage that carries it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable

from mdsx.errors import redacted

_log = logging.getLogger("mdsx")


class Contact:
    """An endpoint or a bucket."""

    def __init__(self) -> None:
        self.answered = False
        self._lost_at: float | None = None

    def lost(self, problem: str) -> None:
        """It does not answer any more. The first request that finds out logs a line."""
        if self._lost_at is None:
            self._lost_at = time.monotonic()
            _log.warning("%s; it answered before, so mdsx keeps trying for some 20 seconds", redacted(problem))

    def found(self, name: str) -> None:
        """It answered."""
        self.answered = True
        if self._lost_at is not None:
            seconds, self._lost_at = time.monotonic() - self._lost_at, None
            _log.warning("%s answers again, after %.0f s", redacted(name), seconds)


_contacts: dict[str, Contact] = {}


def contact(name: str) -> Contact:
    """The one contact of that name in this process."""
    return _contacts.setdefault(name, Contact())


def answered() -> tuple[str, ...]:
    """The names of all that answered."""
    return tuple(name for name, known in list(_contacts.items()) if known.answered)


def believe(names: Iterable[str]) -> None:
    """Take it from another process that these have answered."""
    for name in names:
        contact(name).answered = True
