"""A plugin of pytest that switches off what mutmut 3.8 notes of callers.

mutmut keeps the caller of each function in a context variable. A generator that begins in one thread and ends in
another then fails, or crashes the interpreter. Without it, mutmut still notes which tests reach which function.
"""

from __future__ import annotations

from mutmut.core import MutmutCallStack  # type: ignore[import-not-found, unused-ignore]

MutmutCallStack.set = staticmethod(lambda value: None)
MutmutCallStack.reset = staticmethod(lambda token: None)
