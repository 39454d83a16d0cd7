"""Attributes that are computed on first use, without a lock.

`functools.cached_property` of Python 3.11 holds a lock while it computes. If another thread forks meanwhile, nothing
ever releases the lock in the child: a loader's worker process would deadlock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from functools import cached_property
else:

    class cached_property:  # noqa: N801  it is used like functools'
        """An attribute computed by a method on first use. Threads that race to compute it get the same result."""

        def __init__(self, method: Any) -> None:
            self._method, self.__doc__ = method, method.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self._name = name

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            return instance.__dict__.setdefault(self._name, self._method(instance))


__all__ = ["cached_property"]
