"""What a call in a fresh process took: seconds, processor time, memory, and requests by the server's own count."""

from __future__ import annotations

import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from mdsx.sizes import format_size
from tools.processes import Call, stream
from tools.scale.server import MadeServer

LIMIT = 3600.0  # seconds


@dataclass(frozen=True, slots=True)
class Figures:
    """`memory`: the most that the process had at a time, in bytes; `requests`: by kind, and the bytes sent."""

    seconds: float
    cpu: float
    memory: int
    requests: Counter[str] = field(default_factory=Counter)
    result: Any = None

    @property
    def cells(self) -> list[str]:
        return [f"{self.seconds:.1f} s", f"{self.cpu:.1f} s", format_size(self.memory), self.asked]

    @property
    def asked(self) -> str:
        """The requests, as people write them."""
        kinds = {kind: count for kind, count in sorted(self.requests.items()) if kind != "bytes"}
        return ", ".join(f"{count:,} {kind}" for kind, count in kinds.items()) or "none"


HEADS = ("time", "processor time", "memory", "requests")


def measured(function: str, server: MadeServer | None = None, **arguments: Any) -> Figures:
    """Call `module:name` in a fresh process. Raise CallFailed."""
    before = server.counts() if server else Counter[str]()
    given = {"function": function, "environment": server.env() if server else {}, "arguments": arguments}
    with tempfile.TemporaryDirectory(prefix="mdsx-scale-", ignore_cleanup_errors=True) as scratch:
        *_, found = stream(Call("tools.scale.measured:call", given), scratch=Path(scratch), limit=LIMIT)
    requests = Counter(server.counts()) if server else Counter[str]()
    requests.subtract(before)
    seconds, cpu, memory, result = found
    return Figures(seconds, cpu, memory, +requests, result)


def call(function: str, environment: dict[str, str], arguments: dict[str, Any]) -> Iterator[Sequence[Any]]:
    """In the fresh process: yield what the call took, and what it returned."""
    import os
    import pkgutil

    os.environ.update(environment)
    named = pkgutil.resolve_name(function)
    began, spent = time.perf_counter(), time.process_time()
    result = named(**arguments)
    yield time.perf_counter() - began, time.process_time() - spent, peak(), result


def peak(process: int | str = "self") -> int:
    """Return the most memory that a process had at a time, in bytes."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    return 1024 * int(found[1]) if found else 0


def own_bytes(process: psutil.Process) -> int:
    """Return the memory of a process that no other shares."""
    return int(process.memory_full_info().uss)
