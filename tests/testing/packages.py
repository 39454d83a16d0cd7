"""Packages as they are installed, made for a test: modules, and the metadata that names their entry points."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "acme"


def install(folder: Path, name: str, points: Mapping[str, Mapping[str, str]], **modules: str) -> None:
    """Make a distribution in `folder`, with `points`: group -> name -> object. `modules`: their text."""
    metadata = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [f"[{group}]\n" + "".join(f"{key} = {of}\n" for key, of in each.items()) for group, each in points.items()]
    (metadata / "entry_points.txt").write_text("\n".join(lines))
    for module, text in modules.items():
        (folder / f"{module}.py").write_text(text)


def install_example(folder: Path) -> None:
    """Do the same with the entry points of the package in `examples/acme`, whose modules stay there."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    install(folder, project["name"], project["entry-points"])
