"""`mdsx change`: a state file becomes another one, once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mdsx
from tests.cli.conftest import Run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two datasets, and a state of a run of the first one."""
    for name in ("web", "code"):
        with mdsx.Writer(tmp_path / name, {"id": "int64", "tokens": "int32[*]"}) as out:
            for number in range(60):
                out.write({"id": number, "tokens": np.zeros(number % 7 + 1, np.int32)})
    loader = mdsx.Loader(mdsx.Mixture({"web": (str(tmp_path / "web"), 1)}), 4)
    next(iter(loader))
    (tmp_path / "state.json").write_text(json.dumps(loader.state_dict()))
    return tmp_path


def described(folder: Path, **more: Any) -> str:
    components = {
        "web": {"url": str(folder / "web"), "proportion": "1/3"},
        "code": {"url": str(folder / "code"), "proportion": 0.5, "start": 10},
    }
    path = folder / "new.json"
    path.write_text(json.dumps({"components": components, **more}))
    return str(path)


def test_a_state_becomes_that_of_the_new_mixture(folder: Path, run: Run) -> None:
    (folder / "numbers.json").write_text("[7, 3]")
    new, out = described(folder, exclude={"web": "numbers.json"}), str(folder / "state2.json")
    result = run("change", str(folder / "state.json"), "--mixture", new, "--out", out)
    assert "from tick 4 on web 40.0000%, code 60.0000%" in result.out
    state, mixture = json.loads(Path(out).read_text()), mdsx.Mixture.from_json(new)
    assert mixture.sizes == (60, 50)
    loader = mdsx.Loader(mixture, 4)
    loader.load_state_dict(state)
    assert state["exclude"][0][:3] == [0, 4, 2]
    assert len([*loader]) == 14
    again = run("change", str(folder / "state.json"), "--mixture", new, "--out", out)
    assert "the file exists" in again.err


def test_samples_are_left_out_without_data(folder: Path, run: Run) -> None:
    (folder / "numbers.json").write_text("[5]")
    options = ("--exclude", f"web={folder / 'numbers.json'}", "--json")
    result = run("change", str(folder / "state.json"), *options, "--out", str(folder / "state2.json"))
    assert json.loads(result.out)["notes"] == []
    state = json.loads((folder / "state2.json").read_text())
    assert state == mdsx.change(json.loads((folder / "state.json").read_text()), exclude={"web": [5]})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["state.json"], "nothing to change"),
        (["nothing.json", "--exclude", "web=state.json"], "cannot be read"),
        (["state.json", "--exclude", "web"], "takes a component and a file"),
        (["state.json", "--mixture", "state.json"], "unknown field"),
    ],
)
def test_mistakes_are_named(
    folder: Path, run: Run, arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    assert message in run("change", *arguments, "--out", "state2.json").err
    assert not (folder / "state2.json").exists()
