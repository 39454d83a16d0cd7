"""One rank of a training job that logs what it was given and saves its state; killed and resumed by the tests.

Without a state to resume from it does not end, but waits near the epoch's end for the kill.

Run as: trainer.py URL CACHE OUT BATCH WORKERS [STATE]. `RANK` and `WORLD_SIZE` are those of torchrun.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset


def main() -> None:
    url, cache, out, batch, workers, *state = sys.argv[1:]
    rank = os.environ["RANK"]
    data = StreamingDataset(url, seed=4, cache=mdsx.Cache(cache, limit="60kB"))
    loader = StreamingDataLoader(data, int(batch), num_workers=int(workers), drop_last=False)
    if state:
        loader.load_state_dict(json.loads(Path(state[0]).read_text()))
    with (Path(out) / f"log.{rank}").open("a") as log:
        position = loader.state_dict()["position"]
        for found in loader:
            log.write(json.dumps({"position": position, "ids": found["id"].tolist()}) + "\n")
            log.flush()
            saved = loader.state_dict()
            position = saved["position"]
            temporary = Path(out) / f"state.{rank}.tmp"
            temporary.write_text(json.dumps(saved))
            temporary.replace(Path(out) / f"state.{rank}")
            if not state and loader.remaining <= 2:
                signal.pause()
    (Path(out) / f"done.{rank}").touch()


if __name__ == "__main__":
    main()
