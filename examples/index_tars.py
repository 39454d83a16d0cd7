"""Train a classifier on WebDataset tars where they are: nothing is converted or copied.

    pip install mdsx
    python index_tars.py folder

The same index on the command line: `mdsx index tar folder/tars --num-workers 2`. Start it again after you added tars,
and it reads only those.
"""

from __future__ import annotations

import io
import sys
import tarfile
from pathlib import Path

import numpy as np

import mdsx

TARS, SAMPLES = 4, 250


def write_tars(folder: Path) -> None:
    """Write tars as webdataset's ShardWriter does: images with a bright square in the quarter that the class says."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    for number in range(TARS):
        with tarfile.open(folder / f"{number:04}.tar", "w") as tar:
            for sample in range(number * SAMPLES, (number + 1) * SAMPLES):
                image = random.random((8, 8), np.float32)
                row, column = divmod(sample % 4, 2)
                image[row * 4 : row * 4 + 4, column * 4 : column * 4 + 4] += 1
                array = io.BytesIO()
                np.save(array, image)
                for extension, data in (("npy", array.getvalue()), ("cls", str(sample % 4).encode())):
                    member = tarfile.TarInfo(f"{sample:06}.{extension}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))


def train(url: Path, cache: Path) -> float:
    """Return the share of samples that a linear classifier gets right in its last epoch."""
    weights, right = np.zeros((64, 4), np.float32), 0
    loader = mdsx.Loader(url, 50, seed=1, cache=cache)
    for _ in range(3):
        right = 0
        for batch in loader:
            images, classes = batch["npy"].reshape(-1, 64) - 0.75, batch["cls"]
            scores = images @ weights
            right += int((scores.argmax(axis=1) == classes).sum())
            chances = np.exp(scores - scores.max(axis=1, keepdims=True))
            chances /= chances.sum(axis=1, keepdims=True)
            chances[np.arange(len(classes)), classes] -= 1
            weights -= 0.1 * images.T @ chances / len(classes)
    return right / (TARS * SAMPLES)


def main(folder: Path) -> None:
    tars = folder / "tars"
    if not tars.exists():
        write_tars(tars)
    index = mdsx.index_tars(tars)
    print(f"{index.samples} samples in {index.tars} tars: {dict(index.columns)}")
    print("read again:", mdsx.index_tars(tars).read, "tars")
    dataset = mdsx.Dataset(tars, cache=folder / "cache")
    print("a sample:", dataset[500]["__key__"], dataset[500]["npy"].shape, int(dataset[500]["cls"]))
    print("classified:", train(tars, folder / "cache") > 0.9)
    print("verified:", mdsx.verify(tars).ok)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
