"""A data iterator as Megatron takes it, with `--dataloader-type external`; and a loop that does what Megatron's does.

Return `MegatronIterator(loader)` from Megatron's dataset provider, and give the dataset the data-parallel rank and
world size as `rank=` and `world_size=`. Megatron calls `save_state` if it is started with `--dataloader-save`.

    python examples/pretraining.py write DATA
    torchrun --nproc-per-node 2 examples/megatron_iterator.py DATA RUN  # kill it at any time
    torchrun --nproc-per-node 3 examples/megatron_iterator.py DATA RUN  # it continues, on any number of ranks
    python examples/pretraining.py check DATA RUN
"""

import gc
import sys
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from data import latest, publish, record
from pretraining import GPT, STOP, dataset, plan, steps
from torch.nn.functional import cross_entropy

from mdsx.torch import StreamingDataLoader

SAVE = 10  # iterations between checkpoints


class MegatronIterator:
    """The micro-batches of this rank, step by step, with the keys that Megatron's `get_batch` reads."""

    def __init__(self, loader: StreamingDataLoader) -> None:
        self.loader = loader
        self.parts: list[dict[str, Any]] = []  # of the step that Megatron is in
        self._steps = steps(loader)

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        return self

    def __next__(self) -> dict[str, torch.Tensor]:
        if not self.parts:
            self.parts = next(self._steps)
        return get_batch(self.parts.pop(0))

    @property
    def num_microbatches(self) -> int:
        """Return how many micro-batches the next step has: for `forward_backward_func`. A plan may change it."""
        if not self.parts:
            self.parts = next(self._steps)
        return len(self.parts)

    @property
    def iteration(self) -> int:
        """Return the steps that were handed out: Megatron's `iteration`."""
        return self.loader.consumed.steps

    @property
    def consumed_samples(self) -> int:
        """Return the rows that were handed out, over all ranks: Megatron's `consumed_train_samples`."""
        return self.loader.consumed.rows

    def save_state(self) -> dict[str, Any]:
        """Return the loader's state, between two steps."""
        return self.loader.state_dict()


def get_batch(part: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Return a micro-batch as Megatron's `get_batch` does. `attention_mask` is True where a token is not seen."""
    segments, labels = part["segment_ids"], part["labels"]
    seen = (segments[:, :, None] == segments[:, None, :]).tril()
    return {
        "tokens": part["tokens"],
        "labels": labels.clamp(min=0),
        "loss_mask": (labels >= 0).float(),
        "position_ids": part["position_ids"].long(),
        "attention_mask": ~seen[:, None],
    }


def main(data: str, run: str) -> None:
    dist.init_process_group()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    loader = StreamingDataLoader(dataset(data, rank=rank, world_size=ranks), plan=plan(), epoch_steps=100)
    train_iters = loader.plan(until=STOP).steps
    torch.manual_seed(0)
    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
    if (checkpoint := latest(run)) is not None:
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])

    iterator = MegatronIterator(loader)
    while iterator.iteration < train_iters:
        count = iterator.num_microbatches
        taken, sums = [], torch.zeros(2)
        for part in list(iterator.parts):
            taken += [number for row in part["id"] for number in row]
        for _ in range(count):
            batch = next(iterator)
            logits = model(batch["tokens"], batch["position_ids"])
            losses = cross_entropy(logits.transpose(1, 2), batch["labels"], reduction="none") * batch["loss_mask"]
            losses.sum().backward()
            sums += torch.stack([losses.sum().detach(), batch["loss_mask"].sum()])
        dist.all_reduce(sums)  # Megatron: --calculate-per-token-loss
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= sums[1]
        optimizer.step()
        optimizer.zero_grad()
        record(run, iterator.iteration, taken, (sums[0] / sums[1]).item())
        if iterator.iteration % SAVE == 0 and rank == 0:
            name = f"iter-{iterator.iteration}.pt"
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "loader": iterator.save_state()}
            torch.save(state, f"{run}/{name}")
            publish(run, name)
    if rank == 0:
        print(f"{iterator.iteration} iterations, {iterator.consumed_samples} samples")


if __name__ == "__main__":
    main(*sys.argv[1:])
    gc.collect()  # the model ends before its process group, see docs/trainers.md
    dist.destroy_process_group()
