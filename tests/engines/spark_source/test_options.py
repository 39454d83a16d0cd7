"""The options of `format("mdsx")` are checked before anything is read or written."""

from __future__ import annotations

import pytest

import mdsx
from mdsx.engines.spark_options import ReadOptions, WriteOptions
from mdsx.secret import Secret


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("text, label", (("text", "text"), ("label", "label"))),
        ('["a,b"]', (("a,b", "a,b"),)),
        ('{"new": "old"}', (("new", "old"),)),
    ],
)
def test_columns_are_names_or_json(text: str, columns: tuple[tuple[str, str], ...]) -> None:
    assert ReadOptions.parse({"path": "out", "Columns": text}).columns == columns


def test_other_options_are_those_of_a_dataset_and_of_its_storage() -> None:
    found = ReadOptions.parse({"path": "s3://b/out", "partition_size": "1MB", "storage.endpoint": "http://here"})
    assert (found.url, found.partition_size, found.storage) == (
        "s3://b/out",
        10**6,
        (("endpoint", Secret("http://here", ())),),
    )
    options = {"path": "out", "columns": '{"x": "uint8"}', "metadata": '{"made": "here"}', "storage.token": "secret"}
    options["lengths"] = "x, y"
    written = WriteOptions.parse(options)
    assert (written.columns, written.metadata, written.shard_size) == ({"x": "uint8"}, {"made": "here"}, "64MiB")
    assert written.lengths == ("x", "y")
    assert "secret" not in repr(written)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, r"needs the URL of a dataset.*\.load\(url\)"),
        ({"path": "out", "colums": "a"}, "no such option for a load.*columns, index.*colums"),
        ({"path": "out", "columns": "[1]"}, "the option columns is invalid"),
        ({"path": "out", "columns": "[a"}, "the option columns is invalid"),
        ({"path": "out", "partition_size": "much"}, "partition_size is not a size"),
    ],
)
def test_wrong_options_of_a_read_are_named(options: dict[str, str], words: str) -> None:
    with pytest.raises(mdsx.UsageError, match=words):
        ReadOptions.parse(options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"path": "out", "snapshot": "x"}, "no such option for a save.*shard_size"),
        ({"path": "out", "columns": "a,b"}, "the option columns is invalid"),
        ({"path": "out", "columns": '{"a": 1}'}, "the option columns is invalid"),
        ({"path": "out", "metadata": "[]"}, "the option metadata is invalid"),
    ],
)
def test_wrong_options_of_a_write_are_named(options: dict[str, str], words: str) -> None:
    with pytest.raises(mdsx.UsageError, match=words):
        WriteOptions.parse(options)
