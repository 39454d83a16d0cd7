"""A training loop of one's own with FSDP and PyTorch's distributed checkpoint, written in the background.

python examples/data.py write DATA
torchrun --nproc-per-node 2 examples/distributed_checkpoint.py DATA RUN  # kill it at any time
torchrun --nproc-per-node 3 examples/distributed_checkpoint.py DATA RUN  # it continues, on any number of ranks
python examples/data.py count RUN
"""

import gc
import json
import sys
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from data import EPOCHS, TOKENS, record
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

from mdsx.torch import StreamingDataLoader, StreamingDataset

BATCH, SAVE = 16, 5  # samples per rank; steps between checkpoints


class Training:
    """What is in a checkpoint: the model, its optimizer, the loader's position and the number of steps."""

    def __init__(self, loader: StreamingDataLoader) -> None:
        self.loader = loader
        self.model = torch.nn.Sequential(torch.nn.Embedding(TOKENS, 16), torch.nn.Linear(16, TOKENS))
        fully_shard(self.model)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.steps = 0

    def state_dict(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        loader = json.dumps(self.loader.state_dict())  # one value, which is loaded whole or not at all
        return {"model": model, "optimizer": optimizer, "loader": loader, "steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        self.loader.load_state_dict(json.loads(state["loader"]))
        self.steps = state["steps"]


def main(data: str, run: str) -> None:
    dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    background = dist.new_group(backend="gloo")  # the checkpoints' own: the model's is in use at the same time
    loader = StreamingDataLoader(StreamingDataset(data, columns=["id", "tokens"]), BATCH, drop_last=False)
    training = Training(loader)
    state = {"training": training}
    complete = [int(file.parent.name) for file in Path(run).glob("checkpoints/*/.metadata")]  # written last
    if complete:
        dcp.load(state, checkpoint_id=f"{run}/checkpoints/{max(complete)}")

    saving: Future[Any] | None = None
    while loader.epoch < EPOCHS:
        for batch in loader:
            record(run, training.steps + 1, batch["id"])
            tokens = batch["tokens"]
            logits = training.model(tokens[:, :-1]).flatten(0, 1)
            torch.nn.functional.cross_entropy(logits, tokens[:, 1:].flatten()).backward()
            training.optimizer.step()
            training.optimizer.zero_grad()
            training.steps += 1
            if training.steps % SAVE == 0:
                if saving is not None:
                    saving.result()  # one at a time; it raises what failed
                folder = f"{run}/checkpoints/{training.steps}"
                saving = dcp.async_save(state, checkpoint_id=folder, process_group=background)
    if saving is not None:
        saving.result()


if __name__ == "__main__":
    main(*sys.argv[1:])
    gc.collect()  # the model ends before its process group, see docs/trainers.md
    dist.destroy_process_group()
