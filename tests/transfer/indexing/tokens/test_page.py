"""docs/data.md is true of token files: its recipes are run, and its commands exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest

import mdsx
from tests.cli.conftest import Run
from tests.cli.conftest import run as run
from tests.foreign.mds import plain
from tests.foreign.tokens.writers import documents

PAGE = (Path(__file__).parents[4] / "docs" / "data.md").read_text(encoding="utf-8")


def recipe(title: str) -> str:
    """Return the code of a section."""
    section = re.split(r"^##+ ", PAGE.split(f"### {title}\n")[1], flags=re.MULTILINE)[0]
    return "\n".join(re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL))


def packed(loader: Any, name: str) -> list[bytes]:
    found = []
    for batch in loader:
        for row, ids in zip(batch[name], batch["segment_ids"], strict=True):
            found += [row[ids == number].tobytes() for number in range(1, ids.max() + 1)]
    return sorted(found)


def texts(dtype: str) -> list[Any]:
    return [each[:200].astype(dtype) for each in documents(400) if len(each)]


def test_tokens_of_llm_foundry_are_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tokens = texts("int64")
    plain.write_dataset(tmp_path / "foundry", {"tokens": "bytes"}, [[{"tokens": x.tobytes()} for x in tokens]], [])
    names: dict[str, Any] = {"mdsx": mdsx}
    exec(recipe("LLM Foundry's MDS"), names)
    assert names["rows"].shape == names["documents"].shape == (4, 256)
    loader = mdsx.Loader(
        "foundry", 4, columns=names["tokens"], batching=mdsx.Pack(256, length="tokens"), drop_last=False
    )
    assert packed(loader, "tokens") == sorted(each.tobytes() for each in tokens)
    fixed = mdsx.Dataset("foundry", columns={"tokens": mdsx.Cast("tokens", f"int64[{len(tokens[5])}]")})
    assert fixed[5]["tokens"].tolist() == tokens[5].tolist()


def test_saved_arrow_files_are_converted_and_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tokens = texts("int32")
    rows = [{"input_ids": each.tolist(), "attention_mask": [1] * len(each)} for each in tokens]
    features = datasets.Features(
        {"input_ids": datasets.List(datasets.Value("int32")), "attention_mask": datasets.List(datasets.Value("int8"))}
    )
    datasets.Dataset.from_list(rows, features=features).save_to_disk("saved", num_shards=2)
    exec(recipe("Arrow files of save_to_disk"), {"mdsx": mdsx})
    dataset = mdsx.Dataset("tokens")
    assert list(dataset.columns) == ["input_ids"]
    assert dataset[3]["input_ids"].dtype == np.uint16
    loader = mdsx.Loader("tokens", 4, batching=mdsx.Pack(256, length="input_ids"), drop_last=False)
    assert packed(loader, "input_ids") == sorted(each.astype(np.uint16).tobytes() for each in tokens)


def test_each_command_of_the_page_exists(run: Run) -> None:
    commands = {match.split()[2] for match in re.findall(r"mdsx index \w+", PAGE)}
    assert commands == {"megatron", "datatrove", "tokens", "parquet", "tar"}
    for command in commands:
        options = set(re.findall(rf"`mdsx index {command} URL([^`]*)`", PAGE))
        shown = run("index", command, "--help").out
        for option in re.findall(r"--[a-z-]+", " ".join(options)):
            assert option in shown
