"""What several loaders do with samples and with PyTorch: columns of a batch, decoded JPEGs, what an import needs."""

from __future__ import annotations

import io
from typing import Any, cast

import numpy as np

_OPERATORS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_declared: list[Any] = []


def columns_of(samples: list[Any]) -> dict[str, Any]:
    """Collate samples by columns: ints as an array, the rest as lists, since vectors differ in length."""
    names = samples[0].keys()
    batch: dict[str, Any] = {name: [sample[name] for sample in samples] for name in names}
    return {name: np.array(values) if isinstance(values[0], int) else values for name, values in batch.items()}


def collate(kind: str) -> Any:
    """How batches are made by loaders that leave it to their user."""
    return np.stack if kind == "tokens" else columns_of


def pixels(image: bytes) -> Any:
    """uint8 [height, width, 3]"""
    from PIL import Image

    return np.array(Image.open(io.BytesIO(image)).convert("RGB"))


def decode(sample: dict[str, Any]) -> dict[str, Any]:
    """A sample of the images with its JPEG decoded, as a tensor."""
    import torch

    return {"image": torch.from_numpy(pixels(sample["image"])), "label": sample["label"]}


def decoding(dataset: Any) -> Any:
    """The class of a dataset whose samples are decoded."""

    class Decoding(dataset):  # type: ignore[misc]  # it ships no types
        def __getitem__(self, at: Any) -> Any:
            return decode(super().__getitem__(at))

    return Decoding


def declare_torchvision_operators() -> None:
    """Let torchvision be imported with a CPU's PyTorch: PyPI's is compiled for CUDA and lacks its operators there.

    `streaming` imports torchvision. None of the operators is used here, but the import fails unless they are declared.
    """
    import torch

    if torch.version.cuda is None:
        library: Any = cast(Any, torch.library.Library)("torchvision", "FRAGMENT")
        _declared.append(library)  # must live as long as the process
        for operator in _OPERATORS:
            library.define(operator)
