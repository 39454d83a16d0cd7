"""An image classifier whose augmentation is random and still the same after a resume.

`augmented` draws from a generator that belongs to the sample's place in the run. On the same number of ranks, a resumed
run has the same losses to the last bit; on another number, the same images in the same steps, with the same
augmentation, and losses that differ in their last digits, because sums are rounded in another order.

    python examples/data.py write DATA
    torchrun --nproc-per-node 2 examples/image_classifier.py DATA RUN  # kill it at any time
    torchrun --nproc-per-node 2 examples/image_classifier.py DATA RUN  # the same losses; or on another number
    python examples/data.py count RUN
"""

import gc
import sys
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from data import EPOCHS, latest, publish, record
from torch.nn.functional import cross_entropy

from mdsx.torch import StreamingDataLoader, StreamingDataset

GLOBAL_BATCH, SAVE = 48, 5  # images of a step over all ranks; steps between checkpoints


def augmented(sample: dict[str, Any], random: np.random.Generator) -> dict[str, Any]:
    """Return the sample with its image shifted by up to a pixel, brighter or darker, and noisy."""
    image = np.roll(sample["image"], random.integers(-1, 2, size=2), axis=(0, 1))
    image = image * random.uniform(0.8, 1.2) + random.normal(0, 0.05, image.shape)
    return {**sample, "image": image.astype(np.float32)}


def main(data: str, run: str) -> None:
    dist.init_process_group()
    ranks = dist.get_world_size()
    columns = ["id", "image", "label"]
    dataset = StreamingDataset(data, columns=columns, random_transform=augmented)
    loader = StreamingDataLoader(dataset, GLOBAL_BATCH // ranks, drop_last=False)
    torch.manual_seed(0)
    model = torch.nn.Sequential(  # the same on every rank
        torch.nn.Conv2d(1, 8, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(72, 4)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    steps = 0
    if (checkpoint := latest(run)) is not None:
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])
        steps = saved["steps"]

    while loader.epoch < EPOCHS:
        for batch in loader:
            steps += 1
            count = torch.tensor(len(batch["id"]))
            dist.all_reduce(count)  # the last batch of an epoch has fewer
            loss = cross_entropy(model(batch["image"][:, None]), batch["label"], reduction="sum") / count
            loss.backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)  # the sum: DDP takes the mean, so there, use loss * ranks
            optimizer.step()
            optimizer.zero_grad()
            dist.all_reduce(total := loss.detach())
            record(run, steps, batch["id"], total.item())
            if steps % SAVE == 0 and dist.get_rank() == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "steps": steps}
                torch.save({**state, "loader": loader.state_dict()}, f"{run}/step-{steps}.pt")
                publish(run, f"step-{steps}.pt")


if __name__ == "__main__":
    main(*sys.argv[1:])
    gc.collect()  # the model ends before its process group, see docs/trainers.md
    dist.destroy_process_group()
