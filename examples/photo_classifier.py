"""A classifier of photos on several ranks: JPEGs are decoded, cropped and flipped at random, and evaluated once each.

The loader's threads decode. The part of a picture that `random_crop` takes, and the flip, belong to the sample's place
in the run, so a resumed run trains on the same pixels, on any number of ranks.

    python examples/photo_classifier.py write DATA
    torchrun --nproc-per-node 2 examples/photo_classifier.py DATA RUN  # kill it at any time
    torchrun --nproc-per-node 2 examples/photo_classifier.py DATA RUN  # continues; or on another number of ranks
"""

import gc
import sys
from io import BytesIO
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from data import EPOCHS, SAMPLES, latest, publish, record
from PIL import Image
from torch.nn.functional import cross_entropy

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset

GLOBAL_BATCH, SAVE, SIZE, VALID = 48, 5, 24, 101


def write(url: str) -> None:
    """Write photos of various sizes, some of them turned: stripes across, stripes down, and neither."""
    columns = {"id": "int64", "image": "jpeg", "label": "int64"}
    random = np.random.default_rng(0)
    for part, count in (("train", SAMPLES), ("valid", VALID)):
        with mdsx.Writer(f"{url}/{part}", columns, shard_size="64kB") as out:
            for number in range(count):
                label, (height, width) = number % 3, random.integers(32, 64, size=2)
                rows, places = np.mgrid[0:height, 0:width]
                stripes = (rows, places, 0 * rows)[label] // 3 % 2 * 90
                noise = random.integers(0, 90, (height, width, 3))
                out.write({"id": number, "image": jpeg(stripes[..., None] + noise), "label": label})


def jpeg(pixels: np.ndarray) -> bytes:
    output = BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(output, "JPEG", quality=90)
    return output.getvalue()


def flipped(sample: dict[str, Any], random: np.random.Generator) -> dict[str, Any]:
    """Return the sample with its picture, uint8 [3, H, W], flipped half of the time."""
    if random.random() < 0.5:
        sample["image"] = sample["image"][..., ::-1].copy()  # PyTorch has no negative strides
    return sample


def scaled(pictures: torch.Tensor) -> torch.Tensor:
    """Return uint8 as float32: on the device of the model, after the copy."""
    return pictures.float() / 127.5 - 1


def evaluated(model: torch.nn.Module, data: str) -> tuple[int, int]:
    """Return how many samples the model gets right, over all ranks, and how many there are: each one once."""
    decode = {"image": mdsx.Image(SIZE, layout="CHW")}
    dataset = StreamingDataset(f"{data}/valid", decode=decode, shuffle=False)
    counts = torch.zeros(2, dtype=torch.int64)
    with torch.inference_mode():
        for batch in StreamingDataLoader(dataset, 16, drop_last=False, num_threads=2):  # the last batch has fewer
            right = model(scaled(batch["image"])).argmax(dim=1) == batch["label"]
            counts += torch.tensor([right.sum(), len(right)])
    dist.all_reduce(counts)
    right, total = counts.tolist()
    return right, total


def main(data: str, run: str) -> None:
    dist.init_process_group()
    ranks = dist.get_world_size()
    decode = {"image": mdsx.Image(SIZE, resize="random_crop", scale=(0.4, 1), layout="CHW")}
    dataset = StreamingDataset(f"{data}/train", decode=decode, random_transform=flipped)
    loader = StreamingDataLoader(dataset, GLOBAL_BATCH // ranks, drop_last=False, num_threads=2)
    torch.manual_seed(0)
    model = torch.nn.Sequential(  # the same on every rank
        torch.nn.Conv2d(3, 8, 7),
        torch.nn.ReLU(),
        torch.nn.AdaptiveMaxPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(8, 3),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
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
            loss = cross_entropy(model(scaled(batch["image"])), batch["label"], reduction="sum") / count
            loss.backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
            optimizer.step()
            optimizer.zero_grad()
            dist.all_reduce(total := loss.detach())
            record(run, steps, batch["id"], total.item())
            if steps % SAVE == 0 and dist.get_rank() == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "steps": steps}
                torch.save({**state, "loader": loader.state_dict()}, f"{run}/step-{steps}.pt")
                publish(run, f"step-{steps}.pt")
    right, total = evaluated(model, data)
    if dist.get_rank() == 0:
        print(f"{right} of {total} samples are right")


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(sys.argv[2])
    else:
        main(*sys.argv[1:])
        gc.collect()  # the model ends before its process group, see docs/trainers.md
        dist.destroy_process_group()
