"""Half of a process's file descriptors are the user's; an error at the limit names it."""

from __future__ import annotations

import errno
import resource
from collections.abc import Callable

from mdsx.base.process.limits import exhausted, most_descriptors, most_leases
from tests.forks import forked


def with_limit(files: int, work: Callable[[], int]) -> int:
    def limited() -> int:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
        return work()

    return forked(limited)


def test_half_of_the_descriptors_are_the_users() -> None:
    assert with_limit(1024, most_leases) == 392
    assert with_limit(256, most_leases) == 32
    assert with_limit(8, most_leases) == 1
    assert with_limit(200, most_descriptors) == 200


def test_only_errors_of_the_limit_are_about_it() -> None:
    assert exhausted(OSError(errno.EACCES, "denied"), "x") is None
    assert "fs.file-max" in str(exhausted(OSError(errno.ENFILE, "machine"), "x"))
    assert "ulimit -n" in str(exhausted(OSError(errno.EMFILE, "process"), "x"))
