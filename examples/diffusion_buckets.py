"""A diffusion model trained on images of several aspect ratios, in batches of one shape.

A step of all ranks has images of one bucket, so every rank does equal work, and nothing is padded or cut to a square.
The images are decoded and resized to the size of their bucket in the loader's threads.

    python examples/diffusion_buckets.py write DATA  # writes 1,003 JPEGs, and stores their sizes
    torchrun --nproc-per-node 2 examples/diffusion_buckets.py DATA RUN  # kill it at any time
    torchrun --nproc-per-node 3 examples/diffusion_buckets.py DATA RUN  # the same steps on other ranks
    python examples/data.py count RUN
"""

import gc
import io
import sys
from typing import Any

import numpy as np
import PIL.Image
import torch
import torch.distributed as dist
from data import EPOCHS, SAMPLES, latest, publish, record

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset

SIZES = [(32, 32), (40, 24), (24, 40), (48, 24)]  # heights and widths of about as many pixels
SAVE = 5  # steps between checkpoints


def write(url: str) -> None:
    """Write the images, and the sizes that their headers say."""
    random = np.random.default_rng(0)
    with mdsx.Writer(url, {"id": "int64", "image": "jpeg"}, shard_size="64kB") as out:
        for number in range(SAMPLES):
            height, width = random.integers(40, 120, 2)
            encoded = io.BytesIO()
            image = PIL.Image.fromarray(random.integers(0, 256, (2, 3, 3), np.uint8))
            image.resize((int(width), int(height))).save(encoded, "JPEG")
            out.write({"id": number, "image": encoded.getvalue()})
    mdsx.write_sizes(url)  # or in the shell: mdsx sizes URL


def resized(sample: dict[str, Any]) -> dict[str, Any]:
    """Return the image at its bucket's size: scaled to cover it, and cut at the edges."""
    pixels = mdsx.Image(size=sample["bucket"], layout="CHW").decode(sample["image"])
    return {"id": sample["id"], "image": pixels.astype(np.float32) / 127.5 - 1}


def main(data: str, run: str) -> None:
    dist.init_process_group()
    batching = mdsx.Buckets(by="image", sizes=SIZES, global_batch_size=48)
    loader = StreamingDataLoader(StreamingDataset(data, transform=resized), batching=batching, num_threads=2)
    torch.manual_seed(0)
    model = torch.nn.Sequential(  # the same on every rank
        torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.SiLU(), torch.nn.Conv2d(16, 3, 3, padding=1)
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
            image, (height, width) = batch["image"], batch["bucket"]
            assert image.shape[1:] == (3, height, width)  # on all ranks alike, even without images
            count = torch.tensor(len(image))
            dist.all_reduce(count)  # the last batches of a window have fewer
            noise, level = torch.randn_like(image), torch.rand(len(image), 1, 1, 1)
            noisy = (1 - level).sqrt() * image + level.sqrt() * noise
            loss = (model(noisy) - noise).square().mean((1, 2, 3)).sum() / count
            loss.backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)  # the sum: DDP takes the mean, so there, use loss * ranks
            optimizer.step()
            optimizer.zero_grad()
            record(run, steps, batch["id"], loss.item())
            if steps % SAVE == 0 and dist.get_rank() == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "steps": steps}
                torch.save({**state, "loader": loader.state_dict()}, f"{run}/step-{steps}.pt")
                publish(run, f"step-{steps}.pt")


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(sys.argv[2])
    else:
        main(*sys.argv[1:])
        gc.collect()  # the model ends before its process group, see docs/trainers.md
        dist.destroy_process_group()
