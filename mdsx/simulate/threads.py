"""Import the package greenlet, whose threads switch only explicitly, or raise an error that says how to install it."""

from __future__ import annotations

from mdsx.errors import UsageError

__all__ = ["getcurrent", "greenlet"]

try:
    from greenlet import getcurrent, greenlet
except ImportError as error:
    raise UsageError("a simulation needs the package greenlet", hint="pip install 'mdsx[simulate]'") from error
