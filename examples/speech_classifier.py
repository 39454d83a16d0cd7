"""A classifier of sound: files of several kinds and rates are decoded, resampled, and cut at random to one length.

python examples/speech_classifier.py write DATA
torchrun --nproc-per-node 2 examples/speech_classifier.py DATA RUN  # kill it at any time
torchrun --nproc-per-node 3 examples/speech_classifier.py DATA RUN  # continues
"""

import gc
import sys
from io import BytesIO
from typing import Any

import numpy as np
import soundfile
import torch
import torch.distributed as dist
from data import EPOCHS, SAMPLES, latest, publish, record
from torch.nn.functional import cross_entropy

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset

GLOBAL_BATCH, SAVE, RATE, CLIP, VALID = 48, 5, 8000, 1024, 101
DECODE = {"sound": mdsx.Audio(rate=RATE)}


def write(url: str) -> None:
    """Write calls of three kinds: their pitch rises, falls, or stays."""
    columns = {"id": "int64", "sound": "bytes", "label": "int64"}
    random = np.random.default_rng(0)
    for part, count in (("train", SAMPLES), ("valid", VALID)):
        with mdsx.Writer(f"{url}/{part}", columns, shard_size="256kB") as out:
            for number in range(count):
                label, rate = number % 3, (8000, 16_000, 22_050)[number % 7 % 3]
                seconds = np.arange(int(rate * random.uniform(0.13, 0.2))) / rate
                hertz = random.uniform(900, 1100) + (4000, -4000, 0)[label] * (seconds - seconds[-1] / 2)
                wave = 0.4 * np.sin(2 * np.pi * np.cumsum(hertz) / rate) + random.normal(0, 0.01, len(seconds))
                kind = ("FLAC", "WAV", "OGG")[number % 5 % 3]
                out.write({"id": number, "sound": encoded(wave, rate, kind), "label": label})


def encoded(wave: np.ndarray, rate: int, kind: str) -> bytes:
    output = BytesIO()
    soundfile.write(output, wave, rate, format=kind)
    return output.getvalue()


def cut(sample: dict[str, Any], random: np.random.Generator) -> dict[str, Any]:
    """Return the sample with a part of its sound, float32 [CLIP], louder or quieter."""
    sound = sample["sound"]
    start = random.integers(max(len(sound) - CLIP, 0) + 1)
    part = sound[start : start + CLIP]
    return {**sample, "sound": np.pad(part, (0, CLIP - len(part))) * np.float32(random.uniform(0.5, 1.5))}


def middle(sample: dict[str, Any]) -> dict[str, Any]:
    """Return the sample with the middle of its sound."""
    sound = sample["sound"]
    start = max(len(sound) - CLIP, 0) // 2
    part = sound[start : start + CLIP]
    return {**sample, "sound": np.pad(part, (0, CLIP - len(part)))}


def features(sounds: torch.Tensor) -> torch.Tensor:
    """Return the logarithms of spectra, normalised, float32 [n, frequencies, times]: on the device of the model."""
    found = torch.log(torch.stft(sounds, 128, window=torch.hann_window(128), return_complex=True).abs() + 1e-3)
    return (found - found.mean((1, 2), keepdim=True)) / found.std((1, 2), keepdim=True)


def evaluated(model: torch.nn.Module, data: str) -> tuple[int, int]:
    """Return how many samples the model gets right, over all ranks, and how many there are: each one once."""
    dataset = StreamingDataset(f"{data}/valid", decode=DECODE, transform=middle, shuffle=False)
    counts = torch.zeros(2, dtype=torch.int64)
    with torch.inference_mode():
        for batch in StreamingDataLoader(dataset, 16, drop_last=False, num_threads=2):
            if len(batch["label"]):  # a rank without samples in the last batch
                right = model(features(batch["sound"])).argmax(dim=1) == batch["label"]
                counts += torch.tensor([right.sum(), len(right)])
    dist.all_reduce(counts)
    right, total = counts.tolist()
    return right, total


def main(data: str, run: str) -> None:
    dist.init_process_group()
    dataset = StreamingDataset(f"{data}/train", decode=DECODE, random_transform=cut)
    loader = StreamingDataLoader(dataset, GLOBAL_BATCH // dist.get_world_size(), drop_last=False, num_threads=2)
    torch.manual_seed(0)
    model = torch.nn.Sequential(  # the same on every rank
        torch.nn.Conv1d(65, 16, 9),
        torch.nn.ReLU(),
        torch.nn.AdaptiveMaxPool1d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(16, 3),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
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
            dist.all_reduce(count)
            loss = cross_entropy(model(features(batch["sound"])), batch["label"], reduction="sum") / count
            loss.backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
            optimizer.step()
            optimizer.zero_grad()
            record(run, steps, batch["id"])
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
