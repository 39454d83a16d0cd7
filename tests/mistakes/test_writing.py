"""Mistakes in writing: nothing is lost, and each message says what to do."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import mdsx


@pytest.mark.parametrize(
    ("columns", "sample", "message"),
    [
        ({"x": "int64", "y": "str"}, {"x": 1}, "'y': the sample lacks columns.*give None for null"),
        ({"x": "int64"}, {"x": 1, "z": 2}, "'z': the sample has unknown columns"),
        ({"x": "uint16[4]"}, {"x": np.zeros(4, np.float32)}, r"found float32 of shape \[4\]\); round them first"),
        ({"x": "uint16[2]"}, {"x": [1, 70000]}, r"expected 0 to 65535, found 70000 at \[1\]"),
        ({"x": "uint16[4]"}, {"x": [1, 2, 3]}, r"expected shape \[4\], found shape \[3\]"),
        ({"x": "int64"}, {"x": None}, r"found None\); declare it as 'int64\?' to allow null"),
        ({"x": "bytes"}, {"x": "text"}, r"expected bytes, found str 'text'\); encode it: text\.encode\(\)"),
        (
            {"x": "jpeg"},
            {"x": Image.new("RGB", (2, 2))},
            r"expected bytes, found Image\); .*image\.save\(buffer, format\)",
        ),
        ({"x": "bytes"}, [1], "a sample must be a mapping of column names to values"),
    ],
)
def test_a_sample_that_does_not_fit(tmp_path: Path, columns: dict[str, str], sample: Any, message: str) -> None:
    with pytest.raises(mdsx.SampleError, match=message), mdsx.Writer(tmp_path / "out", columns) as out:
        out.write(sample)
    assert not (tmp_path / "out" / "index.json").exists()


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("string", "did you mean 'str'"),
        (int, "did you mean 'int64'"),
        ("ndarray:uint16", r"did you mean 'uint16\[\*\]'"),
    ],
)
def test_a_type_of_another_library(tmp_path: Path, kind: Any, message: str) -> None:
    with pytest.raises(mdsx.UsageError, match=message):
        mdsx.Writer(tmp_path, {"x": kind})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shard_size": "64 megs"}, "write it like '64MiB'"),
        ({"compression": "gzip"}, "expected None, 'zstd'"),
        ({"lengths": "x"}, "lengths must be a list of column names"),
        ({"out": "here"}, "Writer takes no out"),
    ],
)
def test_an_option_that_cannot_be(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(mdsx.UsageError, match=message):
        mdsx.Writer(tmp_path, {"x": "int64"}, **options)


def test_no_columns_and_samples_in_place_of_columns(tmp_path: Path) -> None:
    with pytest.raises(
        mdsx.UsageError, match=r'there is no column; give at least one, like \{"tokens": "uint16\[\*\]"\}'
    ):
        mdsx.Writer(tmp_path, {})
    samples: Any = [{"x": 1}, {"x": 2}]
    with mdsx.Writer(tmp_path / "out", {"x": "int64", "y": "int64"}) as out:
        with pytest.raises(
            mdsx.SampleError, match=r"\(found list\); write\(\) takes a sample.* and write_batch\(\) col"
        ):
            out.write_batch(samples)
        with pytest.raises(mdsx.SampleError, match=r"columns of a batch have different lengths"):
            out.write_batch({"x": [1, 2], "y": [1]})


def test_the_same_program_twice(url: str, tmp_path: Path) -> None:
    with pytest.raises(mdsx.UsageError, match=r"there is a dataset already; .*overwrite=True; use resume=True"):
        mdsx.Writer(url, {"x": "int64"})
    with suppress(RuntimeError), mdsx.Writer(tmp_path, {"x": "int64"}) as out:
        out.write({"x": 1})
        raise RuntimeError
    with pytest.raises(mdsx.UsageError, match="an unfinished dataset already; pass resume=True to continue it"):
        mdsx.Writer(tmp_path, {"x": "int64"}).__enter__()


def test_a_writer_without_with(tmp_path: Path) -> None:
    out = mdsx.Writer(tmp_path, {"x": "int64"})
    with pytest.raises(mdsx.UsageError, match=r"the writer is not open; write within `with mdsx\.Writer"):
        out.write({"x": 1})
    with pytest.raises(AttributeError, match=r"no attribute 'close': .*`with mdsx\.Writer\(\.\.\.\) as out:` writes"):
        out.close()  # type: ignore[attr-defined]
    with out:
        out.write({"x": 1})
    with pytest.raises(mdsx.UsageError, match="the writer is closed"):
        out.write({"x": 1})
