"""A loop over Grain, which shuffles, batches and counts; an mdsx.Dataset is its source. PyTorch is not needed.

    python examples/data.py write DATA
    python examples/grain_loop.py DATA RUN 0 1
    python examples/grain_loop.py DATA RUN 0 2 & python examples/grain_loop.py DATA RUN 1 2  # after a kill

Its processes do not wait for each other. Those of a training do, in each step: so the state of one is that of all.
"""

import json
import sys
from pathlib import Path

import grain
from data import EPOCHS, latest, publish, record
from grain.experimental import ElasticIterator

import mdsx

GLOBAL_BATCH, SAVE = 48, 5  # samples of a step over all processes; steps between checkpoints


def main(data: str, run: str, rank: int, processes: int) -> None:
    source = mdsx.Dataset(data, columns=["id", "tokens"]).select(0, 960)
    samples = grain.MapDataset.source(source).shuffle(seed=7).repeat(EPOCHS)
    batches = iter(ElasticIterator(samples, GLOBAL_BATCH, grain.sharding.ShardOptions(rank, processes)))
    steps = 0
    if (checkpoint := latest(run)) is not None:
        saved = json.loads((checkpoint / "state.json").read_text())
        batches.set_state(saved["grain"])
        steps = saved["steps"]

    for batch in batches:
        steps += 1
        record(run, steps, batch["id"], float(batch["tokens"].mean()), rank)
        if steps % SAVE == 0 and rank == 0:
            folder = Path(run) / f"step-{steps}"
            folder.mkdir(exist_ok=True)
            (folder / "state.json").write_text(json.dumps({"grain": batches.get_state(), "steps": steps}))
            publish(run, folder.name)


if __name__ == "__main__":
    data, run, rank, processes = sys.argv[1:]
    main(data, run, int(rank), int(processes))
