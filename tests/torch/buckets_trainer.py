"""One rank of a training job in batches of one shape that logs its samples and saves its state. The test kills it."""

from __future__ import annotations

import json
import os
import signal
import warnings
from pathlib import Path
from typing import Any

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset

SIZES = [(8, 8), (9, 7), (7, 9), (12, 5)]


def train(
    url: str, cache: Path, out: Path, workers: int, micro: int | None, stops: int, state: dict[str, Any] | None
) -> None:
    """Train as the leader of a process group. Wait for the kill after `stops` batches; 0: train to the epoch's end."""
    os.setsid()
    warnings.simplefilter("ignore")
    rank, kept = os.environ["RANK"], mdsx.Cache(cache, limit="60kB")
    batching = mdsx.Buckets(by=("height", "width"), sizes=SIZES, global_batch_size=[24, 16, 20, 12], window=40)
    data = StreamingDataset(url, seed=4, shuffle=mdsx.Shuffle(lanes=8), cache=kept)
    loader = StreamingDataLoader(data, batching=batching, micro_batch=micro, num_workers=workers)
    if state:
        loader.load_state_dict(state)
    with (out / f"log.{rank}").open("a") as log:
        for number, batch in enumerate(loader, 1):
            step = loader.consumed.steps - loader.step_complete  # from 0
            found = {"step": step, "ids": batch["id"].tolist(), "bucket": batch["bucket"]}
            temporary = out / f"state.{rank}.tmp"
            temporary.write_text(json.dumps(loader.state_dict()))
            temporary.replace(out / f"state.{rank}")
            log.write(json.dumps(found) + "\n")
            log.flush()
            if number == stops:
                signal.pause()
    (out / f"done.{rank}").touch()
