"""The subjects, by module: each has `subjects(scale)`."""

from __future__ import annotations

import importlib

from tools.bench.subject import Subject

MODULES = ("write", "read", "loader", "scale", "s3")


def all_subjects(scale: float) -> tuple[Subject, ...]:
    """Every subject, at a size of `scale` (1.0 is the full one)."""
    modules = [importlib.import_module(f"{__name__}.{name}") for name in MODULES]
    return tuple(subject for module in modules for subject in module.subjects(scale))
