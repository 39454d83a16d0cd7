"""The training: an ordinary PyTorch loop over mdsx, on ranks that torchrun starts, for a small model of bytes.

Every CHECKPOINT_EVERY steps rank 0 saves model, optimizer and the loader's state. A run that finds a checkpoint
resumes from it, on any number of ranks and workers and with any batch size.
"""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset
from tools.account import Delivered
from tools.quickstart.job import CHECKPOINT_EVERY, LANES, SEED, Run

LENGTH = 160  # bytes of context
PADDING = 0
_WIDTH = 192


class ByteModel(nn.Module):
    """Predicts each byte from those before it."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = nn.Embedding(256, _WIDTH)
        self.memory = nn.GRU(_WIDTH, _WIDTH, batch_first=True)
        self.guess = nn.Linear(_WIDTH, 256)

    def forward(self, texts: Tensor) -> Tensor:
        """Mean loss in bits per byte of `texts` [n, LENGTH + 1], padding left out."""
        inputs, targets = texts[:, :-1].long(), texts[:, 1:].long()
        hidden, _ = self.memory(self.bytes(inputs))
        guesses = self.guess(hidden).transpose(1, 2)
        losses = functional.cross_entropy(guesses, targets, ignore_index=PADDING, reduction="sum")
        bits: Tensor = losses / (targets != PADDING).sum().clamp(min=1) / torch.log(torch.tensor(2.0))
        return bits


def first_bytes(sample: dict[str, Any]) -> dict[str, Any]:
    """Return the first LENGTH + 1 bytes of a document, padded, and the sample's key."""
    text = np.frombuffer(sample["txt"].encode()[: LENGTH + 1], np.uint8)
    return {"text": np.pad(text, (0, LENGTH + 1 - len(text)), constant_values=PADDING), "key": sample["__key__"]}


def train(run: Run) -> None:
    """Train on one rank to the end of the epoch."""
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = DistributedDataParallel(ByteModel())
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    data = StreamingDataset(
        run.url,
        seed=SEED,
        shuffle=mdsx.Shuffle(LANES, run.shuffle_block),
        cache=mdsx.Cache(Path(run.directory, "cache"), limit=run.cache_limit),
        transform=first_bytes,
    )
    loader = StreamingDataLoader(data, run.batch_size, num_workers=run.workers, drop_last=False)
    checkpoint, step = Path(run.directory, "checkpoint.pt"), 0
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["data"])
        step = saved["step"]
    samples = loader.state_dict()["epoch_samples"]
    start = loader.state_dict()["position"]
    with run.log_file(rank).open("a", buffering=1) as log:
        for batch in loader if loader.epoch == 0 else ():  # the checkpoint may be of the epoch's end
            step += 1
            stop = min(start + run.ranks * run.batch_size, samples)
            log.write(Delivered(0, start, stop, tuple(batch["key"])).to_line())
            loss = model(batch["text"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            start = stop
            distributed.all_reduce(loss := loss.detach())
            if rank == 0:
                if step % CHECKPOINT_EVERY == 0:
                    state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
                    partial = checkpoint.with_suffix(".part")  # a kill meanwhile leaves the previous one
                    torch.save({**state, "data": loader.state_dict(), "step": step}, partial)
                    partial.replace(checkpoint)
                print(json.dumps([step, start, loss.item() / run.ranks]), flush=True)
    # If the model held the group's last reference, PyTorch 2.13 could wait for ever: it holds Python's lock while it
    # joins the group's thread, which may need that lock to free the tensors of the last all_reduce.
    del model, optimizer
    distributed.destroy_process_group()


if __name__ == "__main__":
    import torch._dynamo  # optimizers need it, and it takes seconds: once, for all ranks
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch  # what torchrun calls

    gc.freeze()  # else the first garbage collection of each rank and worker passes over all of that
    given = Run(**json.loads(sys.argv[1]))
    torchrun = LaunchConfig(1, 1, given.ranks, start_method="fork", rdzv_backend="c10d", rdzv_endpoint="localhost:0")
    torchrun.local_addr = "127.0.0.1"
    elastic_launch(torchrun, train)(given)
