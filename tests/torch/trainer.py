"""One rank of a training job that logs its samples and saves its state. The tests kill and resume it.

Without a state to resume from, it waits near the epoch's end for the kill.

`RANK` and `WORLD_SIZE` are those of torchrun.
"""

from __future__ import annotations

import json
import os
import signal
import warnings
from pathlib import Path
from typing import Any

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset


def train(
    url: str | list[str],
    cache: Path,
    out: Path,
    batch: int,
    workers: int,
    state: dict[str, Any] | None,
    replication: Any = 1,
) -> None:
    """Train as the leader of a process group, on a dataset or on a mixture of several."""
    os.setsid()
    warnings.simplefilter("ignore")
    rank = os.environ["RANK"]
    kept = mdsx.Cache(cache, limit="60kB")
    if isinstance(url, str):
        data = StreamingDataset(url, seed=4, cache=kept, replication=replication)
    else:
        data = StreamingDataset(mdsx.Mixture(url, columns=["id", "text"], cache=kept), seed=4, replication=replication)
    loader = StreamingDataLoader(data, batch, num_workers=workers, drop_last=False)
    if state:
        loader.load_state_dict(state)
    with (out / f"log.{rank}").open("a") as log:
        position = loader.state_dict()["position"]
        for found in loader:
            assert found["text"] == [f"text of {number}" for number in found["id"].tolist()]
            log.write(json.dumps({"position": position, "ids": found["id"].tolist()}) + "\n")
            log.flush()
            saved = loader.state_dict()
            position = saved["position"]
            temporary = out / f"state.{rank}.tmp"
            temporary.write_text(json.dumps(saved))
            temporary.replace(out / f"state.{rank}")
            if not state and loader.remaining <= 2:
                signal.pause()
    (out / f"done.{rank}").touch()
