"""What the tests of exports share: a dataset with columns of many types, and the way back from tars."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import mdsx
from mdsx.cli.app import app
from tests.foreign.tars.tars import JPEG, png

Convert = Callable[..., mdsx.Dataset]

COLUMNS = {
    "__key__": "str", "txt": "str", "cls": "int64", "jpg": "jpeg", "seg.png": "png", "json": "json", "bin": "bytes?",
    "emb.npy": "float32[*,2]", "ids.npy": "uint16[3]", "ok": "bool", "score": "float32", "tags": "str[*]?",
    "pack": "msgpack", "many": "json[*]",
}  # fmt: skip


def sample(number: int) -> dict[str, Any]:
    return {
        "__key__": f"dir/k{number:04d}",
        "txt": f"tëxt\n{number}",
        "cls": number - 5,
        "jpg": JPEG + bytes([number % 256]) * number,
        "seg.png": png(),
        "json": {"n": number, "list": [1.5, None, "é"]},
        "bin": None if number % 3 else bytes(range(number % 256)),
        "emb.npy": np.arange(2 * (number % 4), dtype=np.float32).reshape(-1, 2) / 3,
        "ids.npy": np.array([number, 1, 2], np.uint16),
        "ok": number % 2 == 0,
        "score": math.pi * number,
        "tags": None if number % 5 == 0 else ["a", f"{number}"],
        "pack": {"b": b"\xff\x00", "n": number},
        "many": [{"x": number}, None],
    }


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """200 samples in several shards."""
    return write(tmp_path_factory.mktemp("exported") / "dataset", COLUMNS, map(sample, range(200)))


def write(path: Path, columns: Mapping[str, str], samples: Any, **options: Any) -> Path:
    with mdsx.Writer(path, columns, **{"shard_size": 8000, **options}) as out:
        for each in samples:
            out.write(each)
    return path


@pytest.fixture
def back(tmp_path: Path) -> Convert:
    """Converts tars with `mdsx convert tar` and these options."""

    def back(folder: Path, *options: str) -> mdsx.Dataset:
        out = str(tmp_path / f"back-{folder.name}")
        result = CliRunner().invoke(app, ["convert", "tar", f"{folder}/*.tar", out, *options])
        assert result.exit_code == 0, result.output
        return mdsx.Dataset(out)

    return back


def same(found: Any, expected: Any) -> bool:
    """Return whether two values are equal: arrays with their dtype and shape."""
    if isinstance(expected, np.ndarray):
        return found.dtype == expected.dtype and np.array_equal(found, expected, equal_nan=found.dtype.kind == "f")
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(same(found[name], value) for name, value in expected.items())
    return bool(found == expected)
