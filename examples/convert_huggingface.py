"""Make a dataset of one of Hugging Face's library, and read it in batches, with the classes' names.

    pip install 'mdsx[datasets]'
    python convert_huggingface.py folder

A dataset on the Hub needs no `save_to_disk`: `mdsx convert hf ylecun/mnist folder/digits --split train`.
"""

from __future__ import annotations

import base64
import sys
from collections import Counter
from pathlib import Path

import datasets

import mdsx

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
)  # a PNG file


def save(folder: Path) -> None:
    """Save a dataset as `datasets` users have it: pictures, text and classes, shuffled."""
    features = {
        "image": datasets.Image(),
        "caption": datasets.Value("string"),
        "label": datasets.ClassLabel(names=["cat", "dog", "fox"]),
    }
    rows = [
        {"image": {"bytes": PIXEL, "path": None}, "caption": f"picture {number}", "label": number % 3}
        for number in range(300)
    ]
    pictures = datasets.Dataset.from_list(rows, features=datasets.Features(features))
    pictures.shuffle(seed=1).save_to_disk(folder)


def main(folder: Path) -> None:
    datasets.disable_progress_bars()
    save(folder / "saved")
    conversion = mdsx.convert("hf", str(folder / "saved"), folder / "pictures", rename={"class": "label"})
    print(conversion.samples, "samples:", dict(conversion.columns))
    pictures = mdsx.Dataset(folder / "pictures")
    names = pictures.metadata["class_names"]["class"]
    loader = mdsx.Loader(folder / "pictures", 100, cache=folder / "cache")
    print("one epoch:", dict(sorted(Counter(names[number] for batch in loader for number in batch["class"]).items())))
    print("images are stored as they were:", {sample["image"] for sample in pictures} == {PIXEL})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
