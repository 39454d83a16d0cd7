"""The first batch, and the first one after a resume, over links of several latencies: seconds that a job waits.

The shards are small here. That changes little: a first batch is read by range, sample by sample.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from tempfile import TemporaryDirectory
from typing import Any

import mdsx
from mdsx.sizes import format_size
from tools.link import Link
from tools.pages import table
from tools.scale.measured import measured
from tools.scale.server import MadeServer

SHARDS = 100_000
BATCH = 16
LINKS = ((0.0, None), (0.001, 1e9), (0.03, 1e8), (0.1, 2.5e7))  # seconds of a round trip, bytes a second
_HEADS = ["round trip", "rate", "`Dataset`", "first batch", "resumed in the middle", "state", "received"]


def sections(share: float = 1.0) -> Iterator[tuple[str, str]]:
    rows, shards = [], max(int(SHARDS * share), 100)
    with MadeServer(1, shards, index=True) as server:
        for rtt, rate in LINKS:
            with Link(server.endpoint, rtt=rtt, rate=rate) as link:
                found = measured("tools.scale.start:start", server, url=server.url, endpoint=link.endpoint).result
                counts = link.counts()
            times = [f"{found[name]:.2f} s" for name in ("open", "first", "resume")]
            state = [f"{found['state']} bytes", format_size(counts.received)]
            rows.append([f"{1000 * rtt:g} ms", f"{format_size(int(rate))}/s" if rate else "", *times, *state])
            yield "start", table(_HEADS, rows, right=range(7))


def start(url: str, endpoint: str) -> dict[str, Any]:
    """Open a dataset, read a batch, and resume in the middle with an empty cache; seconds by the clock."""
    os.environ["AWS_ENDPOINT_URL"] = endpoint
    with TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        began = time.perf_counter()
        data = mdsx.Dataset(url, cache=f"{scratch}/first")
        found: dict[str, Any] = {"open": time.perf_counter() - began}
        began = time.perf_counter()
        state = _read(mdsx.Loader(data, batch_size=BATCH, seed=1))
        found |= {"first": time.perf_counter() - began, "state": len(json.dumps(state))}
        loader = mdsx.Loader(mdsx.Dataset(url, cache=f"{scratch}/second"), batch_size=BATCH, seed=1)
        began = time.perf_counter()
        loader.load_state_dict({**state, "position": state["epoch_samples"] // 2})
        _read(loader)
        return found | {"resume": time.perf_counter() - began}


def _read(loader: mdsx.Loader) -> dict[str, Any]:
    """Read a batch, and return the state after it."""
    batches = iter(loader)
    assert len(next(batches)["id"]) == BATCH
    return loader.state_dict()
