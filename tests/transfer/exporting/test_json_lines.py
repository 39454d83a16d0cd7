"""Each sample is a line that any JSON parser reads as the same values; what JSON cannot hold is an error."""

from __future__ import annotations

import base64
import gzip
import json
import tarfile
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import duckdb
import msgpack
import numpy as np
import polars as pl
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

import mdsx
from mdsx import SampleError, UsageError
from tests.transfer.exporting.conftest import COLUMNS, same, sample, write


def lines(folder: Path) -> list[Any]:
    texts = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.jsonl"))]
    assert all(text.endswith("\n") for text in texts if text)
    return [json.loads(line, parse_constant=lambda name: pytest.fail(name)) for line in "".join(texts).split("\n")[:-1]]


def as_json(value: Any) -> Any:
    """Return a value as docs/converting.md says that it is written."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {name: as_json(each) for name, each in value.items()}
    return [as_json(each) for each in value] if isinstance(value, list) else value


def test_each_sample_is_an_object_with_the_columns_in_order(dataset: Path, tmp_path: Path) -> None:
    export = mdsx.export("jsonl", dataset, tmp_path / "out", file_size="40kB")
    found = lines(tmp_path / "out")
    assert len(export.files) > 1
    assert list(found[0]) == list(COLUMNS)
    assert found == [as_json({**sample(n), "score": float(np.float32(sample(n)["score"]))}) for n in range(200)]


def test_converting_an_export_gives_the_dataset_back(dataset: Path, tmp_path: Path) -> None:
    kept = [name for name in COLUMNS if name != "pack"]  # bytes inside of MessagePack come back as text
    mdsx.export("jsonl", dataset, tmp_path / "out", columns=kept, file_size="40kB")
    types = {name: COLUMNS[name] for name in kept}
    mdsx.convert("jsonl", f"{tmp_path}/out/*.jsonl", tmp_path / "back", columns=types)
    found = mdsx.Dataset(tmp_path / "back")
    assert dict(found.columns) == types
    for one, other in zip(found, mdsx.Dataset(dataset, columns=kept), strict=True):
        assert same(one, other)


def test_the_forms_name_the_columns_that_are_base64(dataset: Path, tmp_path: Path) -> None:
    forms = mdsx.export("jsonl", dataset, tmp_path / "out").forms
    assert [name for name, form in forms.items() if "base64" in form] == ["jpg", "seg.png", "bin"]


def test_polars_and_duckdb_read_the_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "in", {"a": "int64", "v": "float32[2]"}, [{"a": n, "v": [n, 0.5]} for n in range(5)])
    mdsx.export("jsonl", path, tmp_path / "out")
    expected = [(n, [float(n), 0.5]) for n in range(5)]
    assert pl.read_ndjson(tmp_path / "out" / "data-00000.jsonl").rows() == expected
    assert duckdb.read_json(str(tmp_path / "out" / "*.jsonl")).fetchall() == expected


@settings(max_examples=15)
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "f": st.none() | st.floats(width=32, allow_nan=False, allow_infinity=False),
                "u": st.integers(0, 2**64 - 1),
                "t": st.text(st.characters(codec="utf-8")),
                "j": st.recursive(
                    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
                    | st.text(st.characters(codec="utf-8")),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
                    max_leaves=5,
                ),
            }
        ),
        max_size=5,
    )
)  # fmt: skip
def test_numbers_text_and_json_come_back_exactly(tmp_path_factory: pytest.TempPathFactory, samples: list[Any]) -> None:
    folder = tmp_path_factory.mktemp("exact")
    mdsx.export("jsonl", write(folder / "in", {"f": "float32?", "u": "uint64", "t": "str", "j": "json"}, samples),
                folder / "out")  # fmt: skip
    assert lines(folder / "out") == samples


@pytest.mark.parametrize(
    ("compression", "suffix", "decompress"),
    [
        ("gzip", ".gz", gzip.decompress),
        ("gzip:1", ".gz", gzip.decompress),
        ("zstd:19", ".zst", lambda data: zstandard.ZstdDecompressor().decompressobj().decompress(data)),
    ],
)
def test_lines_may_be_compressed(dataset: Path, tmp_path: Path, compression: str, suffix: str, decompress: Any) -> None:
    mdsx.export("jsonl", dataset, tmp_path / "plain")
    mdsx.export("jsonl", dataset, tmp_path / "out", compression=compression)
    data = (tmp_path / "out" / f"data-00000.jsonl{suffix}").read_bytes()
    assert decompress(data) == (tmp_path / "plain" / "data-00000.jsonl").read_bytes()


NAN: dict[str, tuple[Any, Any, Any]] = {
    "float32": (1.0, float("nan"), None),
    "float64?": (1.0, float("inf"), None),
    "float32[2]": ([1.0, 1.0], [1.0, float("-inf")], [1.0, None]),
    "float16[*]": ([1.0], [1.0, float("nan")], [1.0, None]),
    "bfloat16": (1.0, float("inf"), None),
    "msgpack": ([1], {"deep": [1.0, float("nan")]}, {"deep": [1.0, None]}),
}
"""Type -> a value, one that JSON lacks, and what is written for it."""


@pytest.mark.parametrize("kind", NAN)
def test_nan_is_an_error_that_names_sample_and_option_or_null(tmp_path: Path, kind: str) -> None:
    good, bad, written = NAN[kind]
    path = write(tmp_path / "in", {"x": kind}, [{"x": good}, {"x": bad}, {"x": good}])
    with pytest.raises(SampleError, match=r"JSON cannot hold the value.*--nan null") as raised:
        mdsx.export("jsonl", path, tmp_path / "out")
    assert raised.value.place == "sample 1, column 'x'"
    mdsx.export("jsonl", path, tmp_path / "null", nan="null")
    assert [line["x"] for line in lines(tmp_path / "null")] == [good, written, good]


def test_a_number_too_large_for_binary64_in_json_is_no_null(tmp_path: Path) -> None:
    """Writers of mdsx refuse it, but JSON that is read where it is may have one."""
    texts = ['{"a": null}', '{"a": [1, 1e999]}', '"null"']
    for number, text in enumerate(texts):
        with tarfile.open(tmp_path / f"{number}.tar", "w") as tar:
            member = tarfile.TarInfo(f"{number}.json")
            member.size = len(text)
            tar.addfile(member, BytesIO(text.encode()))
    shards = [{"url": f"{number}.tar", "nsamples": 1} for number in range(3)]
    (tmp_path / "wids.json").write_text(json.dumps({"wids_version": 1, "shardlist": shards}))
    mdsx.index_tars(tmp_path, from_index=tmp_path / "wids.json")
    with pytest.raises(SampleError, match=r"JSON cannot hold the value.*--nan null") as raised:
        mdsx.export("jsonl", tmp_path, tmp_path / "out")
    assert raised.value.place == "sample 1, column 'json'"
    mdsx.export("jsonl", tmp_path, tmp_path / "null", nan="null")
    assert [line["json"] for line in lines(tmp_path / "null")] == [{"a": None}, {"a": [1, None]}, "null"]


def test_messagepack_is_what_it_holds(tmp_path: Path) -> None:
    moment = datetime(2020, 1, 2, 3, 4, 5, 600, tzinfo=UTC)
    path = write(tmp_path / "in", {"x": "msgpack"}, [{"x": {"b": b"ab", "at": moment, "n": [2**63, None]}}])
    mdsx.export("jsonl", path, tmp_path / "out")
    assert lines(tmp_path / "out") == [{"x": {"b": "YWI=", "at": "2020-01-02T03:04:05.000600Z", "n": [2**63, None]}}]


@pytest.mark.parametrize("kind", ["json", "msgpack"])
def test_values_may_be_nested_500_levels_deep(tmp_path: Path, kind: str) -> None:
    deep: Any = None
    for level in range(500):
        deep = {"k": deep} if level % 2 else [deep, None]
    path = write(tmp_path / "in", {"x": kind}, [{"x": deep}])
    mdsx.export("jsonl", path, tmp_path / "out")
    assert (tmp_path / "out" / "data-00000.jsonl").read_text() == f'{{"x":{json.dumps(deep, separators=(",", ":"))}}}\n'


@pytest.mark.parametrize("value", [{1: "a"}, msgpack.Timestamp(0, 1), msgpack.Timestamp(2**50, 0)])
def test_messagepack_that_json_cannot_hold_is_an_error(tmp_path: Path, value: object) -> None:
    path = write(tmp_path / "in", {"x": "msgpack"}, [{"x": 1}, {"x": value}])
    with pytest.raises(SampleError, match=r"JSON cannot hold the value.*--drop x") as raised:
        mdsx.export("jsonl", path, tmp_path / "out")
    assert raised.value.place == "sample 1, column 'x'"


@pytest.mark.parametrize(
    "options", [{"nan": "no"}, {"compression": "lz4"}, {"compression": "zstd:23"}, {"compression": "zstd:000199"}]
)
def test_options_are_checked_before_anything_is_written(dataset: Path, tmp_path: Path, options: Any) -> None:
    with pytest.raises(UsageError):
        mdsx.export("jsonl", dataset, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()
