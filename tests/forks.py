"""Run a function in a forked child, as another user."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from mdsx.testing.forks import DEADLINE as DEADLINE
from mdsx.testing.forks import forked as forked

T = TypeVar("T")

ROOT = os.geteuid() == 0
NOBODY = 65534


def as_another_user(work: Callable[[], T], *, denied: Path | None = None) -> T:
    """Run `work` as a user who may not enter `denied`: another one if possible, else this one without its rights."""
    if ROOT:
        return forked(work, uid=NOBODY)
    if denied is None:
        return forked(work)
    mode = denied.stat().st_mode
    denied.chmod(0)
    try:
        return forked(work)
    finally:
        denied.chmod(mode)


def let_through(path: Path) -> None:
    """Let other users reach `path`: pytest's own directories are closed to them."""
    for above in (path, *path.parents):
        mode = above.stat().st_mode
        if not mode & 0o001:
            above.chmod(mode | 0o055)
