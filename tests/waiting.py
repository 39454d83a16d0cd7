"""Waiting for what another thread or process does, with a deadline: a hang is a failure."""

from __future__ import annotations

import time
from collections.abc import Callable

DEADLINE = 60.0  # seconds, far more than needed


def wait_until(holds: Callable[[], object], *, seconds: float = DEADLINE) -> None:
    """Return once `holds` returns something true."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"it does not hold after {seconds} seconds"
        time.sleep(0.005)
