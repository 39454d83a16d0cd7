"""Files that datatrove, dolma and Megatron-LM write now, in an environment of their own, are read value by value."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mdsx
from tests.foreign.tokens import write_live
from tools.environment import PeerEnvironment

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each way of writing, and `expected.json`."""
    environment, folder = PeerEnvironment("tokens"), tmp_path_factory.mktemp("written")
    environment.install()
    command = [str(environment.python), str(write_live.__file__), str(folder)]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder


def expected(written: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((written / "expected.json").read_text())
    return found


def check(folder: Path, documents: list[list[int]], dtype: str) -> mdsx.Dataset:
    dataset = mdsx.Dataset(folder)
    assert len(dataset) == len(documents)
    for found, tokens in zip(dataset[:], documents, strict=True):
        assert found["tokens"].dtype == np.dtype(dtype)
        assert found["tokens"].tolist() == tokens
    return dataset


def test_files_of_datatrove_are_read(written: Path) -> None:
    assert mdsx.index_datatrove(written / "datatrove").samples == write_live.COUNT
    check(written / "datatrove", expected(written)["datatrove"], "uint16")


def test_losses_of_datatrove_are_read(written: Path) -> None:
    mdsx.index_datatrove(written / "losses", hash=True)
    dataset = check(written / "losses", expected(written)["losses"], "uint32")
    assert [found["loss"].astype(bool).tolist() for found in dataset[:]] == expected(written)["masks"]


@pytest.mark.parametrize("way", [{"csv": True}, {"separator": 0}])
def test_files_of_dolma_are_read(written: Path, way: dict[str, Any]) -> None:
    mdsx.index_tokens(written / "dolma", dtype="uint16", **way)
    check(written / "dolma", expected(written)["dolma"], "uint16")


@pytest.mark.parametrize(("name", "dtype"), [("megatron", "uint16"), ("sequences", "int32"), ("modes", "uint16")])
def test_files_of_megatron_are_read(written: Path, name: str, dtype: str) -> None:
    mdsx.index_megatron(written / name)
    dataset = check(written / name, expected(written)[name], dtype)
    if name == "modes":
        assert dataset.take(range(6))["mode"].tolist() == [0, 1, 0, 1, 0, 1]
