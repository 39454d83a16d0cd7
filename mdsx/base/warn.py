"""Warnings, issued once in a run, at the line of the user's code that caused them.

A process issues each message once, unless `seen_by` is "process". If all ranks would issue the same message, only the
first rank does.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from types import FrameType
from typing import Literal

from mdsx.base.process import is_first

_NOT_THE_USERS = frozenset(
    {"mdsx", "torch", "torchdata", "accelerate", "lightning", "pytorch_lightning"}
    | {"concurrent", "contextlib", "copyreg", "multiprocessing", "queue", "threading", "weakref"}
)
"""Packages whose frames are skipped to find the user's line."""

issued: set[str] = set()
"""The messages that this process has issued."""

_quiet = False


def warn(message: str, *, seen_by: Literal["run", "node", "process"] = "run") -> None:
    """Warn once, at the user's line.

    `seen_by` says which processes would issue the same warning: all of the "run" (then only rank 0 warns), all of the
    "node" (then only the node's first rank warns), or only this "process" (then it always warns). The ranks come from
    the launcher.
    """
    if seen_by != "process" and (_quiet or message in issued or not is_first(os.environ, node=seen_by == "node")):
        return
    issued.add(message)
    frame = _users_frame()
    warnings.warn_explicit(
        message,
        UserWarning,
        frame.f_code.co_filename,
        frame.f_lineno,
        module=frame.f_globals.get("__name__"),
        registry=frame.f_globals.setdefault("__warningregistry__", {}),
    )


def leave_warnings_to_others() -> None:
    """Issue no warning from this worker process that other processes of the run would issue too."""
    global _quiet
    _quiet = True


def _users_frame() -> FrameType:
    """Return the innermost frame of the user's code; in one of mdsx's threads, that of the main thread."""
    here = sys._getframe(1)
    found, main = _users(here), threading.main_thread()
    if (
        found is None and threading.current_thread() is not main
    ):  # a frame that refers to itself would keep its variables alive
        found = _users(sys._current_frames().get(main.ident or 0))
    return found or here


def _users(frame: FrameType | None) -> FrameType | None:
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _NOT_THE_USERS:
        frame = frame.f_back
    return frame
