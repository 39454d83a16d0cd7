"""Files that mosaicml-streaming 0.13.0 wrote are read with the values that were given to its writer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mdsx
from mdsx.checks.damage import verify
from mdsx.torch import StreamingDataLoader, StreamingDataset
from tests.foreign.mds.notation import as_noted, noted
from tests.foreign.mds.plain import read_dataset

GOLDEN = Path(__file__).parent / "golden"
EXPECTED: dict[str, Any] = json.loads((GOLDEN / "expected.json").read_text())
NAMES = [*EXPECTED]

Open = Callable[..., mdsx.Dataset]


@pytest.fixture
def opened(tmp_path: Path) -> Open:
    """Opens a golden dataset, without the column of pickles, if it has one."""

    def opened(name: str, **options: Any) -> mdsx.Dataset:
        columns = ["id"] if name == "encoding-pkl" else None
        return mdsx.Dataset(GOLDEN / name, cache=tmp_path / "cache", columns=columns, **options)

    return opened


def expected(name: str) -> list[dict[str, Any]]:
    values = EXPECTED[name]
    found: list[dict[str, Any]] = EXPECTED["mixed"][:values] if isinstance(values, int) else values
    return found


@pytest.mark.parametrize("name", NAMES)
def test_each_sample_has_the_values_written(name: str, opened: Open) -> None:
    dataset, want = opened(name), expected(name)
    assert [as_noted(dataset[number]) for number in range(len(dataset))] == want
    assert [as_noted(sample) for sample in dataset] == want
    assert [as_noted(sample) for sample in opened(name, mmap=False)[::-1]] == want[::-1]


@pytest.mark.parametrize("name", NAMES)
def test_a_plain_reader_reads_the_same(name: str) -> None:
    want = [{**sample, "pkl": None} if name == "encoding-pkl" else sample for sample in expected(name)]
    assert [as_noted(sample) for sample in read_dataset(GOLDEN / name)] == want


@pytest.mark.parametrize("name", NAMES)
def test_verify_finds_no_damage(name: str) -> None:
    report = verify(GOLDEN / name)
    assert not list(report)
    assert report.samples == len(expected(name))


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("encoding") and "pkl" not in name])
def test_a_loader_makes_tensors_and_lists(name: str, tmp_path: Path) -> None:
    dataset = StreamingDataset(GOLDEN / name, shuffle=False, cache=tmp_path / "cache")
    (batch,) = StreamingDataLoader(dataset, 100, drop_last=False)
    values = [sample["x"] for sample in read_dataset(GOLDEN / name)]
    fixed = json.loads((GOLDEN / name / "index.json").read_bytes())["shards"][0]["column_sizes"][0] is not None
    assert isinstance(batch["x"], torch.Tensor) == fixed
    assert not any(isinstance(value, np.ndarray) for value in batch["x"])
    assert [noted(plain(value)) for value in batch["x"]] == [noted(plain(value)) for value in values]


def plain(value: Any) -> Any:
    """Return a tensor or NumPy number as nested lists of Python's numbers."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    return value.tolist() if hasattr(value, "dtype") else value
