"""A /dev/shm of its own for a process that shares memory by names: what it leaves there goes with it."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
SHARED_MEMORY = "/dev/shm/"


def have_own_shared_memory() -> None:
    """Give this process, of one thread yet, and its children a /dev/shm of their own, as on a node of its own."""
    system = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    if system.unshare(_CLONE_NEWUSER | _CLONE_NEWNS) == 0:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
        if system.mount(b"tmpfs", SHARED_MEMORY.encode(), b"tmpfs", 0, None) == 0:
            return
    reason = os.strerror(ctypes.get_errno())
    raise OSError(f"this machine gives no process a /dev/shm of its own: {reason}")
