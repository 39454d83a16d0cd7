"""A file of a few kilobytes never costs a reader a gigabyte or minutes, whatever it claims.

Each case of the table in `hostile.py` runs in a process of its own. It may not grow by more than 1 GiB of address
space and 200 MiB of memory.
"""

from __future__ import annotations

import re
import resource
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mdsx.errors import MdsxError
from tests.fork_server import CONTEXT
from tests.fuzz.hostile import CASES, Case

if TYPE_CHECKING:
    Pipe = Connection[Any, Any]

_ROOM, _MEMORY = 2**30, 200 * 2**20  # bytes that a reader may grow by: address space, and memory in use
LONG = (
    "tar: 60 MB of digits",
    "tar: 60 MB of JSON",
    "tar: zstd of 300 MiB",
    "mds: gz of 300 MiB",
    "zstd: a seek table",
)
_SECONDS = 60  # on a slow machine; usually below one


@pytest.mark.slow_if(
    "case.name.startswith(('tar: 60 MB of digits', 'tar: 60 MB of JSON', 'tar: zstd of 300 MiB', 'mds: gz of 300 MiB', "
    "'zstd: a seek table'))"
)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_small_file_that_claims_much_costs_little(case: Case, tmp_path: Path) -> None:
    case.make(tmp_path)
    size = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert size <= case.most
    ours, theirs = CONTEXT.Pipe()
    process = CONTEXT.Process(target=_read, args=(CASES.index(case), str(tmp_path), theirs))
    process.start()
    theirs.close()
    try:
        assert ours.poll(_SECONDS), f"no answer within {_SECONDS} seconds"
        kind, said, grown, _ = ours.recv()
    finally:
        process.kill()
        process.join()
        ours.close()
    if case.error is None:
        assert kind is None, f"{kind}: {said}"
    else:
        assert kind in _names(case.error), f"{kind}: {said}"
        assert re.search(case.says, said)
    assert grown < _MEMORY


def _names(error: type[MdsxError]) -> set[str]:
    """Return the names of a kind of error and of its subclasses."""
    return {error.__name__}.union(*map(_names, error.__subclasses__()))


def _read(number: int, folder: str, pipe: Pipe) -> None:
    """Read in a process of its own. Send the error, the growth of memory, and the time."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + _ROOM,) * 2)
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    kind: str | None = None
    said = ""
    try:
        CASES[number].read(Path(folder))
    except BaseException as error:
        kind, said = type(error).__name__, str(error)
    grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    pipe.send((kind, said[:2000], grown, time.monotonic() - began))
