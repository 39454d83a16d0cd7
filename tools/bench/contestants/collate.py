"""What several contestants do with samples: columns of a batch, decoded JPEGs. PyTorch and Pillow, where needed."""

from __future__ import annotations

import io
from typing import Any

import numpy as np


def columns_of(samples: list[Any]) -> dict[str, Any]:
    """A batch by columns: ints as an array, the rest as lists. For samples whose vectors differ in length."""
    names = samples[0].keys()
    batch: dict[str, Any] = {name: [sample[name] for sample in samples] for name in names}
    return {name: np.array(values) if isinstance(values[0], int) else values for name, values in batch.items()}


def pixels(image: bytes) -> Any:
    """uint8 [height, width, 3]"""
    from PIL import Image

    return np.array(Image.open(io.BytesIO(image)).convert("RGB"))


def decode(sample: dict[str, Any]) -> dict[str, Any]:
    """A sample of the images with its JPEG decoded, as a tensor."""
    import torch

    return {"image": torch.from_numpy(pixels(sample["image"])), "label": sample["label"]}
