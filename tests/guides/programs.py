"""The run of a guide's programs: before the switch, in the peer's environment, and after it."""

from __future__ import annotations

import multiprocessing
import os
import shlex
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mdsx import cli
from tests.guides.page import Page, play
from tools.environment import PeerEnvironment
from tools.processes import Call, stream


class Before(NamedTuple):
    """The peer's run: where, its batches, and what the page's tables have to list."""

    directory: Path
    batches: list[list[int]]
    tables: dict[str, list[str]]


def run_before(module: str, peer: str, temporary: pytest.TempPathFactory) -> Before:
    """Run `run_before` of a module of this package with a peer, in its environment."""
    PeerEnvironment(peer).install()
    directory = temporary.mktemp("before")
    arguments = {"loader": peer, "function": f"{__package__}.{module}:run_before", "directory": str(directory)}
    program = Call("tools.peers:drive", arguments, peer)
    *_, found = stream(program, scratch=temporary.mktemp("scratch"), limit=200)
    return Before(directory, found["batches"], {table: sorted(names) for table, names in found["tables"].items()})


class Programs:
    """Runs the programs of a page in `directory`, where `train` appends the numbers that it finds in each batch."""

    def __init__(self, page: Page, directory: Path) -> None:
        os.chdir(directory)
        multiprocessing.set_start_method(None, force=True)  # the default, which is not the fork server
        self._page = page

    def run(self, heading: str, block: int | slice = slice(None), **names: Any) -> dict[str, Any]:
        """Run the Python below a heading, or some of its blocks, as a script. Return its variables."""
        blocks = self._page.blocks(heading)
        program = "\n".join(blocks[block]) if isinstance(block, slice) else blocks[block]
        return play(program, Path("program.py"), **names)

    def shell(self, heading: str) -> None:
        """Run the commands below a heading."""
        for line in "".join(self._page.blocks(heading, "sh")).splitlines():
            sys.argv = shlex.split(line)
            process = multiprocessing.Process(target=cli.main)  # a fork: an interpreter takes 0.5 s to start
            process.start()
            process.join()
            assert process.exitcode == 0, line


def check_epochs(batches: list[list[int]], samples: int = 1000, size: int = 32) -> None:
    """Check that batches are two epochs without a sample that comes twice, in two orders."""
    each = samples // size
    assert [len(batch) for batch in batches] == [size] * (2 * each)
    for epoch in (batches[:each], batches[each:]):
        assert len({number for batch in epoch for number in batch} & set(range(samples))) == each * size
    assert batches[:each] != batches[each:]
