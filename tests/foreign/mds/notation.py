"""Values of samples as JSON, for the golden files: exact, with dtype and shape."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np


def noted(value: Any) -> Any:
    """Return a value as JSON that no other value has. Images are those of Pillow."""
    if value is None or isinstance(value, bool | str) or type(value) is int:
        return value
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, np.generic):
        return {"scalar": value.dtype.name, "bytes": value.tobytes().hex()}
    if isinstance(value, float):
        return {"float": repr(value)}
    if isinstance(value, np.ndarray):
        return {"array": value.dtype.name, "shape": list(value.shape), "bytes": value.tobytes().hex()}
    if isinstance(value, Decimal):
        return {"decimal": str(value)}
    if isinstance(value, list | tuple):
        return [noted(item) for item in value]
    if isinstance(value, dict):
        return {"dict": {key: noted(item) for key, item in value.items()}}
    return {"image": value.mode, "size": list(value.size), "bytes": value.tobytes().hex()}


def as_noted(sample: dict[str, Any]) -> dict[str, Any]:
    return {name: noted(value) for name, value in sample.items()}
