"""The loader as torchtitan's trainer takes it, and torchtitan's checkpoints.

Give torchtitan's configuration `dataloader=MdsxDataLoader.Config(dataset_path=...)`. torchtitan's `Trainer` needs a
GPU, so `main` does what `Trainer.train` does, with torchtitan's own optimizer and checkpoint manager.

    python examples/data.py write DATA
    torchrun --nproc-per-node 2 examples/torchtitan_loader.py DATA RUN  # kill it at any time
    torchrun --nproc-per-node 3 examples/torchtitan_loader.py DATA RUN  # it continues, on any number of ranks
    python examples/data.py count RUN
"""

import gc
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from data import EPOCHS, TOKENS, record
from torch.distributed.fsdp import fully_shard
from torchtitan.components.checkpoint import CheckpointManager
from torchtitan.components.dataloader import BaseDataLoader
from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw

from mdsx.torch import StreamingDataLoader, StreamingDataset

BATCH, SAVE = 16, 5  # samples per rank; steps between checkpoints


class MdsxDataLoader(BaseDataLoader):
    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        seed: int = 0

    def __init__(
        self, config: Config, *, dp_world_size: int, dp_rank: int, local_batch_size: int, **of_the_trainer: Any
    ) -> None:
        assert config.dataset_path is not None
        data = StreamingDataset(config.dataset_path, seed=config.seed, rank=dp_rank, world_size=dp_world_size)
        self.loader = StreamingDataLoader(data, local_batch_size, drop_last=False)

    def __iter__(self) -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor]]:
        while True:  # the trainer stops after a number of steps, or when there are no more batches
            for batch in self.loader:
                tokens = batch["tokens"]
                yield {"input": tokens[:, :-1], "id": batch["id"]}, tokens[:, 1:]

    def state_dict(self) -> dict[str, Any]:
        return {"loader": json.dumps(self.loader.state_dict())}  # one value, which is loaded whole or not at all

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.loader.load_state_dict(json.loads(state_dict["loader"]))


class Steps:
    """The part of the trainer that is in its checkpoints."""

    step = 0

    def state_dict(self) -> dict[str, int]:
        return {"step": self.step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.step = state["step"]


def main(data: str, run: str) -> None:
    dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    config = MdsxDataLoader.Config(dataset_path=data)
    loader = config.build(dp_world_size=dist.get_world_size(), dp_rank=dist.get_rank(), local_batch_size=BATCH)
    model = torch.nn.Sequential(torch.nn.Embedding(TOKENS, 16), torch.nn.Linear(16, TOKENS))
    fully_shard(model)
    optimizers = default_adamw(lr=0.01).build(model_parts=[model])
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
    while loader.loader.epoch < EPOCHS:
        trained.step += 1
        inputs, labels = next(batches)
        record(run, trained.step, inputs.pop("id"))
        torch.nn.functional.cross_entropy(model(inputs["input"]).flatten(0, 1), labels.flatten()).backward()
        optimizers.step()
        optimizers.zero_grad()
        checkpointer.save(trained.step)
    checkpointer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
    gc.collect()  # the model ends before its process group, see docs/loaders.md
    dist.destroy_process_group()
