"""Datasets written and read by distributed engines: `mdsx.engines.ray` and `mdsx.engines.spark`.

`reading.py` cuts a dataset into pieces, for the tasks that read it. `mdsx/writer/runs/commit.py` has the rules for
writing exactly once. Each engine is an extra, imported on first use.
"""

from __future__ import annotations

import importlib


def __getattr__(name: str) -> object:
    if name not in ("ray", "spark"):
        raise AttributeError(f"module 'mdsx.engines' has no attribute {name!r}")
    return importlib.import_module(f"mdsx.engines.{name}")
