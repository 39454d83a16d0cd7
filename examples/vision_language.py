"""A small vision-language model: text with images anywhere in it, several in a sample, packed by a stored cost.

A sample has `tokens`, in which IMAGE stands for an image, and `images`, JPEGs of several sizes in the same order. An
image becomes a token for each of its patches, so the length of a sample is not that of its `tokens`: it is stored in
`n_tokens`, by which samples are packed. The loader's threads decode.

    python examples/vision_language.py write DATA
    torchrun --nproc-per-node 2 examples/vision_language.py DATA RUN  # kill it at any time
    torchrun --nproc-per-node 3 examples/vision_language.py DATA RUN  # it continues, on any number of ranks
    python examples/data.py count RUN
"""

import io
import sys
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from data import EPOCHS, SAMPLES, latest, publish, record
from PIL import Image
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset

IMAGE, TOKENS, WIDTH = 0, 32, 32
PATCH, SIZES = 8, [(8, 8), (16, 8), (16, 16), (24, 16)]
CAPACITY, ROWS, SAVE = 64, 12, 5  # tokens of a row; rows of a step over all ranks; steps between checkpoints
VALUES = 3 * PATCH * PATCH  # of a patch
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def write(url: str) -> None:
    """Write the dataset: after each image comes the token that names its colour."""
    columns = {"id": "int64", "tokens": "int64[*]", "images": "jpeg[*]", "n_tokens": "int64"}
    random = np.random.default_rng(0)
    with mdsx.Writer(url, columns, shard_size="64kB", lengths=["n_tokens"]) as out:
        for number in range(SAMPLES):
            tokens, images, cost = list(random.integers(8, TOKENS, 4)), [], 0
            for _ in range(number % 4):
                colour, (height, width) = int(random.integers(1, 8)), SIZES[random.integers(len(SIZES))]
                images.append(jpeg(colour, height, width))
                tokens += [IMAGE, colour, *random.integers(8, TOKENS, 2)]
                cost += height * width // PATCH**2 - 1  # the image's tokens, for one that is stored
            out.write({"id": number, "tokens": tokens, "images": images, "n_tokens": len(tokens) + cost})


def jpeg(colour: int, height: int, width: int) -> bytes:
    """Return an image of one of seven colours."""
    file = io.BytesIO()
    bright = tuple(255 * (colour >> bit & 1) for bit in range(3))
    Image.new("RGB", (width, height), bright).save(file, "JPEG")
    return file.getvalue()


def expanded(sample: dict[str, Any]) -> dict[str, Any]:
    """Return the sample with its images as patches, uint8 [n, VALUES], and a token for each patch."""
    patches = [patches_of(image) for image in sample["images"]]
    counts = np.ones(len(sample["tokens"]), np.int64)
    counts[sample["tokens"] == IMAGE] = list(map(len, patches))
    joined = np.concatenate([np.zeros((0, VALUES), np.uint8), *patches])
    return {"id": sample["id"], "tokens": np.repeat(sample["tokens"], counts), "patches": joined}


def patches_of(image: bytes) -> np.ndarray:
    pixels = np.asarray(Image.open(io.BytesIO(image)).convert("RGB"))
    height, width = pixels.shape[0] // PATCH, pixels.shape[1] // PATCH
    return pixels.reshape(height, PATCH, width, PATCH, 3).swapaxes(1, 2).reshape(height * width, VALUES)


def batches(url: str, **ranks: Any) -> StreamingDataLoader:
    """Return the loader: rows of whole samples, on the device."""
    packing = mdsx.Pack(CAPACITY, length="n_tokens", tokens="tokens", labels=True)
    dataset = StreamingDataset(url, seed=7, transform=expanded, **ranks)
    options = {"num_threads": 2, "device": DEVICE, "drop_last": False}
    return StreamingDataLoader(dataset, global_batch_size=ROWS, batching=packing, **options)


def patches_in(batch: dict[str, Any]) -> torch.Tensor:
    """Return all patches of a batch, in the order of their tokens."""
    none = torch.zeros(0, VALUES, dtype=torch.uint8, device=DEVICE)
    return torch.cat([none, *(patches for row in batch["patches"] for patches in row)])


class Model(torch.nn.Module):
    """Embedded tokens and projected patches, one layer of attention inside of samples, and the next token."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.place = torch.nn.Embedding(TOKENS, WIDTH), torch.nn.Embedding(CAPACITY, WIDTH)
        self.project = torch.nn.Linear(VALUES, WIDTH)
        self.attend, self.head = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, TOKENS)

    def forward(self, batch: dict[str, Any]) -> torch.Tensor:
        tokens, segments = batch["tokens"], batch["segment_ids"]
        seen = self.embed(tokens).masked_scatter((tokens == IMAGE)[..., None] & (segments > 0)[..., None],
                                                 self.project(patches_in(batch) / 255))  # fmt: skip
        hidden = seen + self.place(batch["position_ids"])
        query, key, value = self.attend(hidden)[:, None].chunk(3, dim=-1)
        same = segments[:, :, None] == segments[:, None, :]
        return self.head(hidden + scaled_dot_product_attention(query, key, value, same.tril()[:, None])[:, 0])


def main(data: str, run: str) -> None:
    dist.init_process_group()
    if DEVICE == "cuda":
        torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    loader = batches(data)
    torch.manual_seed(0)
    model = Model().to(DEVICE)  # the same on every rank
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
            labels = batch["labels"].masked_fill(batch["labels"] == IMAGE, -100)  # patches are not predicted
            loss = cross_entropy(model(batch).flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")
            (loss / batch["global_tokens"]).backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)  # the sum: DDP takes the mean, so there, use loss * ranks
            optimizer.step()
            optimizer.zero_grad()
            dist.all_reduce(total := loss.detach())
            record(run, steps, [number for row in batch["id"] for number in row], total.item() / batch["global_tokens"])
            if steps % SAVE == 0 and dist.get_rank() == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "steps": steps}
                torch.save({**state, "loader": loader.state_dict()}, f"{run}/step-{steps}.pt")
                publish(run, f"step-{steps}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(sys.argv[2])
    else:
        main(*sys.argv[1:])
