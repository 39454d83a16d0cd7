"""`mdsx cat` prints samples: short for people, whole for programs."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import mdsx
from tests.cli.conftest import Run


def test_cat_prints_ten_samples_by_default(run: Run, dataset: Path) -> None:
    out = run("cat", dataset).out
    assert out.splitlines()[:4] == ["sample 0", "  name   'sample 0'", "  label  None", "  bits   1 bytes"]
    assert out.count("\nsample ") == 9


def test_start_and_count_choose_the_samples(run: Run, dataset: Path) -> None:
    output = [
        json.loads(line) for line in run("cat", dataset, "--start", 150, "--count", 100, "--json").out.splitlines()
    ]
    assert [sample["name"] for sample in output] == [f"sample {number}" for number in range(150, 250)]
    assert len(run("cat", dataset, "--start", 298, "--json").out.splitlines()) == 2


def test_a_start_beyond_the_end_is_an_error(run: Run, dataset: Path, tmp_path: Path) -> None:
    status, out, err = run("cat", dataset, "--start", 300)
    assert (status, out) == (1, "")
    assert "there is no sample 300: the dataset has 300 samples, numbered from 0" in err
    with mdsx.Writer(tmp_path / "empty", {"a": "int64"}):
        pass
    assert run("cat", tmp_path / "empty") == (0, "", "")


def test_json_holds_values_of_every_type_uncut(run: Run, tmp_path: Path) -> None:
    sample: dict[str, Any] = {
        "flag": True, "half": 1.5, "nan": float("nan"), "array": [[1, 2], [3, 4]], "floats": [1.0, float("-inf")],
        "raw": b"\0\xff", "text": "ä\n", "tree": {"a": [None, 1]}, "packed": {1: b"x", "t": [float("inf")]},
        "none": None,
    }  # fmt: skip
    columns = {
        "flag": "bool", "half": "bfloat16", "nan": "float64", "array": "uint8[2,2]", "floats": "float32[*]",
        "raw": "bytes", "text": "str", "tree": "json", "packed": "msgpack", "none": "int8?",
    }  # fmt: skip
    with mdsx.Writer(tmp_path / "x", columns) as out:
        out.write(
            {**sample, "array": np.array(sample["array"], np.uint8), "floats": np.array(sample["floats"], np.float32)}
        )
    assert json.loads(run("cat", tmp_path / "x", "--json").out) == {
        **sample,
        "nan": "NaN",
        "floats": [1.0, "-Infinity"],
        "raw": base64.b64encode(b"\0\xff").decode(),
        "packed": {"1": base64.b64encode(b"x").decode(), "t": ["Infinity"]},
    }


def test_json_shows_every_entry_of_maps_whose_keys_look_alike(run: Run, tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path / "x", {"m": "msgpack"}) as out:
        out.write({"m": {1: "int", "1": "text", b"ab": "bytes", "YWI=": "base64"}})
    shown = [[1, "int"], ["1", "text"], ["YWI=", "bytes"], ["YWI=", "base64"]]
    assert json.loads(run("cat", tmp_path / "x", "--json").out) == {"m": shown}


def test_long_values_are_cut_for_people(run: Run, tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path / "x", {"ids": "uint16[2048]", "text": "str"}) as out:
        out.write({"ids": np.arange(2048, dtype=np.uint16), "text": "long " * 100})
    lines = run("cat", tmp_path / "x").out.splitlines()
    assert lines[1] == "  ids   uint16[2048] 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 ..."
    assert all(len(line) < 120 for line in lines)


def test_lists_are_shown_value_by_value(run: Run, tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path / "x", {"words": "str[*]", "blobs": "bytes[*]"}) as out:
        out.write({"words": ["a", "b"], "blobs": [b"", b"xyz"]})
    assert run("cat", tmp_path / "x").out.splitlines()[1:] == ["  words  ['a', 'b']", "  blobs  [0 bytes, 3 bytes]"]
    assert json.loads(run("cat", tmp_path / "x", "--json").out) == {"words": ["a", "b"], "blobs": ["", "eHl6"]}
    assert json.loads(run("info", tmp_path / "x", "--json").out)["columns"] == {"words": "str[*]", "blobs": "bytes[*]"}


def test_types_of_packages_are_shown_as_they_are_decoded_or_stored(run: Run, tmp_path: Path) -> None:
    mdsx.register("cats.Number", encode=lambda value: b"%d" % value, decode=int)
    with mdsx.Writer(
        tmp_path / "data", {"here": "cats.Number", "ghost": "ghost.Thing", "more": "ghost.Thing[*]?"}
    ) as out:
        stored = pa.array([b"ab"], pa.binary())
        out.write_batch({"here": [12], "ghost": stored, "more": pa.array([[b"a"]], pa.list_(pa.binary()))})
    assert run("cat", tmp_path / "data").out.splitlines()[1:] == [
        "  here   12",
        "  ghost  2 bytes",
        "  more   [1 bytes]",
    ]
    assert json.loads(run("cat", tmp_path / "data", "--json").out) == {
        "here": "MTI=",
        "ghost": "YWI=",
        "more": ["YQ=="],
    }
    assert "ghost.Thing[*]?" in run("info", tmp_path / "data").out
