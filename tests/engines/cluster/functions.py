"""Functions for `mdsx.build` that slow down, fail and die. They are imported by the workers of a cluster."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple


class Input(NamedTuple):
    """Input `number`, and a folder in which the calls leave files."""

    number: int
    folder: str
    dies: int = 0
    """How many calls end with a SIGKILL of the worker."""
    waits: bool = False
    """Whether the call takes until the folder has a file "continue"."""


def samples(given: Input) -> Iterator[dict[str, Any]]:
    """Yield 50 samples. Of each tenth input, sample 20 is invalid."""
    for place in range(50):
        text: Any = f"{given.number}, {place}" * 20
        yield {"x": given.number * 50 + place, "text": 7 if given.number % 10 == 0 and place == 20 else text}
        if place == 40:
            _misbehave(given)


def _misbehave(given: Input) -> None:
    folder = Path(given.folder)
    call = len(list(folder.glob(f"{given.number}.*")))
    (folder / f"{given.number}.{call}").touch()
    if call < given.dies:
        time.sleep(1)  # reports reach the caller
        os.kill(os.getpid(), signal.SIGKILL)
    while given.waits and not (folder / "continue").exists():
        time.sleep(0.02)
