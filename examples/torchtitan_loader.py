"""The loader as torchtitan's trainer takes it, with a plan, and torchtitan's checkpoints.

Give torchtitan's configuration `dataloader=MdsxDataLoader.Config(data=...)`. The trainer of torchtitan 0.3 asks for
rows [B, L], that of its main branch for flat batches [T]: `MdsxDataLoader` makes both, and uses nothing of
`torchtitan.components.dataloader`, which that branch removed. torchtitan's `Trainer` needs a GPU, so `main` does what
`Trainer.train_step` does, with torchtitan's own optimizer and checkpoint manager.

    python examples/pretraining.py write DATA
    torchrun --nproc-per-node 2 examples/torchtitan_loader.py DATA RUN  # kill it at any time
    torchrun --nproc-per-node 1 examples/torchtitan_loader.py DATA RUN  # it continues, on any number that divides 4

A last argument `flat` takes flat batches.
"""

import gc
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from data import record
from pretraining import GPT, ROW, dataset, ids, loss_sum, plan
from torch.distributed.fsdp import fully_shard
from torchtitan.components.checkpointer import CheckpointManager
from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw
from torchtitan.config import Configurable

from mdsx.torch import StreamingDataLoader

GLOBAL, LOCAL, STEPS, SAVE = 8, 2, 160, 10  # rows of a step, of a micro-batch; steps; steps between checkpoints


class MdsxDataLoader(Configurable):
    @dataclass(kw_only=True, slots=True)
    class Config(Configurable.Config):
        data: str

    def __init__(
        self,
        config: Config,
        *,
        dp_world_size: int,
        dp_rank: int,
        seq_len: int = 0,  # of torchtitan 0.3
        local_batch_size: int = 0,
        max_context_length: int = 0,  # of the main branch
        num_tokens_per_batch: int = 0,
        **of_the_trainer: Any,
    ) -> None:
        flat = num_tokens_per_batch > 0
        length = max_context_length if flat else seq_len
        rows = num_tokens_per_batch // length if flat else local_batch_size
        if (rows, length) != (LOCAL, ROW):
            raise ValueError("the trainer's batches are not those of the plan")
        self.loader = StreamingDataLoader(
            dataset(config.data, rank=dp_rank, world_size=dp_world_size),
            plan=plan(steady=True, static=True, layout="flat" if flat else "rows"),
            epoch_steps=100,
        )
        self.batch: dict[str, Any] = {}  # the last one

    def __iter__(self) -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor]]:
        while True:  # the trainer stops after a number of steps
            for batch in self.loader:
                self.batch = batch
                yield {"input": batch["tokens"], "positions": batch["position_ids"]}, batch["labels"]

    def state_dict(self) -> dict[str, Any]:
        return {"loader": json.dumps(self.loader.state_dict())}  # one value, which is loaded whole or not at all

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.loader.load_state_dict(json.loads(state_dict["loader"]))

    def close(self) -> None:
        """Do nothing: the loader ends with its last reference."""


class Steps:
    """The part of the trainer that is in its checkpoints."""

    step = 0

    def state_dict(self) -> dict[str, int]:
        return {"step": self.step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.step = state["step"]


def main(data: str, run: str, layout: str = "rows") -> None:
    dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    ranks = dist.get_world_size()
    sizes = {"max_context_length": ROW, "num_tokens_per_batch": LOCAL * ROW}
    if layout == "rows":
        sizes = {"seq_len": ROW, "local_batch_size": LOCAL}
    loader = MdsxDataLoader.Config(data=data).build(dp_world_size=ranks, dp_rank=dist.get_rank(), **sizes)
    torch.manual_seed(0)
    model = GPT()
    fully_shard(model)
    optimizers = default_adamw(lr=0.003).build(model_parts=[model])
    trained = Steps()
    checkpointer = CheckpointManager.Config(enable=True, interval=SAVE).build(
        dataloader=loader,
        model_parts=[model],
        optimizers=optimizers,
        lr_schedulers=LRSchedulersContainer(optimizers, lambda step: 1.0),
        states={"train_state": trained},
        sd_adapter=None,
        base_folder=run,
    )
    checkpointer.load()
    batches = iter(loader)
    while trained.step < STEPS:
        trained.step += 1
        taken, parts = list[int](), []
        for _ in range(GLOBAL // (LOCAL * ranks)):
            parts.append(next(batches))
            taken += loader.batch["id"].tolist() if layout == "flat" else ids([loader.batch])
        valid = torch.tensor(float(sum((labels != -100).sum() for _, labels in parts)))
        dist.all_reduce(valid)
        total = torch.zeros(())
        for inputs, labels in parts:
            loss = loss_sum(model(inputs["input"], inputs["positions"]), labels) / valid
            (loss * ranks).backward()  # fully_shard takes the mean
            total += loss.detach()
        optimizers.step()
        optimizers.zero_grad()
        dist.all_reduce(total)
        record(run, trained.step, taken, total.item())
        checkpointer.save(trained.step)
    checkpointer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
    gc.collect()  # the model ends before its process group, see docs/trainers.md
    dist.destroy_process_group()
