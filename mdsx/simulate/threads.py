"""The package greenlet, whose threads change only where they say so; or the error that says how to get it."""

from __future__ import annotations

from mdsx.errors import UsageError

__all__ = ["getcurrent", "greenlet"]

try:
    from greenlet import getcurrent, greenlet
except ImportError as error:
    raise UsageError("a simulation needs the package greenlet", hint="pip install 'mdsx[simulate]'") from error
