"""`mdsx select` stores a selection, and `mdsx info` lists it."""

from __future__ import annotations

import json
from pathlib import Path

import mdsx
from tests.cli.conftest import Run


def test_select_says_what_it_wrote(run: Run, tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path / "data", {"label": "int32", "text": "str"}) as out:
        for number in range(200):
            out.write({"label": number % 5, "text": "x" * number})
    where = "label = 3 and length(text) >= 100"
    data = mdsx.Dataset(tmp_path / "data")
    file = tmp_path / "data" / "_selections" / f"hard-{data.fingerprint}.json"
    status, out_, _ = run("select", tmp_path / "data", "--where", where, "--name", "hard")
    assert (status, out_) == (0, f"{file}: 20 of 200 samples (10.00%)\n")
    found = run("select", tmp_path / "data", "--where", where, "--name", "hard", "--json").out
    assert json.loads(found) == {"file": str(file), "name": "hard", "where": where, "samples": 200, "selected": 20}
    info = run("info", tmp_path / "data").out
    assert f"selections\n  hard  20 samples where {where}\n" in info
    assert json.loads(run("info", tmp_path / "data", "--json").out)["selections"] == [
        {"name": "hard", "selected": 20, "where": where}
    ]
    assert run("verify", tmp_path / "data").status == 0
    status, _, err = run("select", tmp_path / "data", "--where", "text = 'x'", "--name", "easy")
    assert status == 1
    assert "text is never stored at a fixed size" in err
    file.write_bytes(file.read_bytes()[:-2])
    status, out_, err = run("verify", tmp_path / "data")
    assert status == 1
    assert "mdsx select" in out_ + err


def test_what_a_hostile_selection_says_controls_no_terminal(run: Run, tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path / "data", {"label": "int32"}) as out:
        out.write({"label": 1})
    mdsx.write_selection(tmp_path / "data", "hard", "label = 1")
    (file,) = (tmp_path / "data" / "_selections").iterdir()
    file.write_bytes(file.read_bytes().replace(b"label = 1", b"\\u001b[31m" + b"9" * 5000))
    out_ = run("info", tmp_path / "data").out
    assert "\x1b" not in out_
    assert "9" * 2000 not in out_
