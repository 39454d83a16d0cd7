"""512 clients that open a dataset at once: 64 nodes of 8 ranks, each node with a cache of its own.

A client is a thread here, of several processes. It opens the dataset as a rank does, and reads nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mdsx
from mdsx.sizes import format_size
from tools.pages import table
from tools.processes import Call, stream
from tools.scale.made import make
from tools.scale.measured import LIMIT
from tools.scale.server import MadeServer

NODES, RANKS = 64, 8
SHARDS = 100_000
_PARTS = 1000
_PROCESSES = 4  # that the nodes are divided among


def sections(share: float = 1.0) -> Iterator[tuple[str, str]]:
    nodes, shards = max(int(NODES * share), 2), max(int(SHARDS * share), _PARTS)
    with MadeServer(_PARTS, shards // _PARTS, index=True) as server, TemporaryDirectory() as scratch:
        began = time.perf_counter()
        with ThreadPoolExecutor(_PROCESSES) as pool:
            numbers = [range(nodes)[first::_PROCESSES] for first in range(_PROCESSES)]
            found = list(pool.map(lambda some: _open_on(server, list(some), Path(scratch)), numbers))
        seconds, counts = time.perf_counter() - began, server.counts()
    index = len(make().whole(_PARTS, shards // _PARTS))
    opened, clients = [each for some in found for each in some], nodes * RANKS
    assert len(opened) == clients
    rows = [
        ["clients", f"{clients}: {nodes} nodes x {RANKS} ranks"],
        ["index", f"{shards:,} shards, {format_size(index)}"],
        ["requests, by the server's count", f"{counts['GET']}: {counts['GET'] / clients:.2f} for each client"],
        ["listings", f"{counts['LIST']}"],
        ["egress", f"{format_size(counts['bytes'])}: {counts['bytes'] / nodes / index:.1f} indexes for each node"],
        ["first and last dataset open after", f"{min(opened):.1f} s, {max(opened):.1f} s"],
        ["all processes", f"{seconds:.1f} s"],
    ]
    yield "clients", table(["", ""], rows)


def _open_on(server: MadeServer, nodes: list[int], scratch: Path) -> list[float]:
    """Return the seconds after which each client of these nodes had opened the dataset: in a process."""
    if not nodes:
        return []
    place = scratch / str(nodes[0])
    place.mkdir()
    given: dict[str, Any] = {"url": server.url, "environment": server.env(), "nodes": nodes, "scratch": str(place)}
    *_, found = stream(Call("tools.scale.clients:open_all", given), scratch=place, limit=LIMIT)
    return list(found)


def open_all(url: str, environment: dict[str, str], nodes: list[int], scratch: str) -> list[float]:
    """In a fresh process: open the dataset with all ranks of these nodes at once."""
    import os

    os.environ.update(environment)
    clients = [node for node in nodes for _ in range(RANKS)]
    ready = threading.Barrier(len(clients))

    def client(node: int) -> float:
        ready.wait()
        began = time.perf_counter()
        mdsx.Dataset(url, cache=f"{scratch}/node-{node}")
        return time.perf_counter() - began

    with ThreadPoolExecutor(len(clients)) as pool:
        return list(pool.map(client, clients))
