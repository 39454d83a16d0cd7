"""`mdsx sizes` stores the sizes of images."""

from __future__ import annotations

import io
import json
from pathlib import Path

import PIL.Image

import mdsx
from tests.cli.conftest import Run


def test_sizes_says_what_it_wrote(run: Run, tmp_path: Path) -> None:
    data, encoded = tmp_path / "data", io.BytesIO()
    PIL.Image.new("RGB", (5, 7)).save(encoded, "PNG")
    with mdsx.Writer(data, {"image": "png?", "name": "str"}) as out:
        out.write_batch({"image": [encoded.getvalue(), None, encoded.getvalue()], "name": ["a", "b", "c"]})
    status, said, _ = run("sizes", data)
    files = [f"{data}/_lengths/image={side}.u32" for side in ("height", "width")]
    assert status == 0
    assert said == f"{files[0]} and {files[1]}: 3 sizes of column 'image', 1 of them without a size\n"
    fields = {"files": files, "column": "image", "samples": 3, "missing": 1}
    assert json.loads(run("sizes", data, "--column", "image", "--json").out) == fields
    for command in ("info", "verify", "cat"):
        assert run(command, data).status == 0
    status, _, err = run("sizes", data, "--column", "name")
    assert status == 1
    assert "does not have encoded images" in err
