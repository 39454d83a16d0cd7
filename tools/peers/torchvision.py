"""Lets PyPI's torchvision be imported beside a CPU's PyTorch."""

from __future__ import annotations

from typing import Any, cast

_declared: list[Any] = []
_OPERATORS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)


def declare_torchvision_operators() -> None:
    """`streaming` imports torchvision, and PyPI's is compiled for CUDA: beside a CPU's PyTorch it has no operators.

    None of them is used here; but unless they are declared, the import fails.
    """
    import torch

    if torch.version.cuda is None:
        library: Any = cast(Any, torch.library.Library)("torchvision", "FRAGMENT")
        _declared.append(library)  # it lives as long as the process
        for operator in _OPERATORS:
            library.define(operator)
