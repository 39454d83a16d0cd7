"""Mistakes with URLs and what lies at a place: each message says what to do."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import mdsx
from mdsx.torch import StreamingDataset
from tests.forks import as_another_user, let_through


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("dta", r"dta: no dataset is here: .*check the URL"),
        ("s4://bucket/data", r"there is no storage for s4:// \(expected a path, file://, s3://"),
        (" s3://bucket/data", "write s3://, without spaces before it"),
        ("s3a://bucket/data", r"there is no storage for s3a://.*; write s3://$"),
        ("gcs://bucket/data", r"there is no storage for gcs://.*; write gs://$"),
        ("s3://my bucket/data", r"a URL is s3://bucket/prefix \(expected a bucket's name of letters, digits"),
        ("s3:/bucket/data", "a URL needs two slashes after the colon .*write two slashes"),
        ("s3://", r"a URL is s3://bucket/prefix"),
        (
            "https://s3.console.aws.amazon.com/s3/buckets/b?prefix=x",
            "a web page, not a storage.*write s3://bucket/prefix",
        ),
        ("https://console.cloud.google.com/storage/browser/b", "a web page, not a storage.*write gs://bucket/prefix"),
        ("https://huggingface.co/datasets/a/b", "a web page, not a storage.*write hf://datasets/owner/name"),
        ("https://huggingface.co/buckets/a/b", "a web page, not a storage.*write hf://buckets/owner/name"),
        ("$HOME/data", r"variables are not expanded in a path: give os\.path\.expandvars"),
    ],
)
def test_a_wrong_url(url: str, message: str) -> None:
    with pytest.raises(mdsx.MdsxError, match=message):
        mdsx.Dataset(url)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("tars", r"1 \*\.tar file here: make an index of them with `mdsx index tar "),
        ("tables", r"1 \*\.parquet file here: make an index of them with `mdsx index parquet "),
        ("lines", r"1 \*\.jsonl file here: convert them with `mdsx convert jsonl "),
        ("empty", "no dataset is here: .*check the URL"),
        ("data/index.json", r"give the dataset's URL, without /index\.json"),
        ("data/shard.00000.mdsx", "give the URL of the folder"),
    ],
)
def test_a_place_with_something_else(places: Path, place: str, message: str) -> None:
    with pytest.raises(mdsx.MissingError, match=message):
        mdsx.Dataset(places / place)


def test_a_trailing_slash_changes_nothing(url: str) -> None:
    assert mdsx.Dataset(f"{url}/").fingerprint == mdsx.Dataset(url).fingerprint


def test_a_page_in_place_of_an_index(tmp_path: Path) -> None:
    (tmp_path / "index.json").write_text("<html>Sign in</html>")
    with pytest.raises(mdsx.CorruptError, match=r"this is no mdsx index .*this is a web page: check the URL"):
        mdsx.Dataset(tmp_path)


def test_a_list_of_urls(url: str) -> None:
    with pytest.raises(mdsx.UsageError, match=r"to read several datasets as one, use mdsx\.Mixture"):
        StreamingDataset([url, url])  # type: ignore[arg-type]


def test_a_dataset_that_is_still_written_or_whose_writer_died(tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path, {"x": "int64"}, shard_size=200) as out:
        for number in range(100):
            out.write({"x": number})
        with pytest.raises(
            mdsx.MissingError, match=r"the index is written last: wait for the writer; if it died, .*resume=True"
        ):
            mdsx.Dataset(tmp_path)
    assert len(mdsx.Dataset(tmp_path)) == 100
    with mdsx.Writer(tmp_path / "small", {"x": "int64"}) as out:
        out.write({"x": 1})
        with pytest.raises(mdsx.MissingError, match=r"there is an unfinished dataset: .*resume=True"):
            mdsx.Dataset(tmp_path / "small")


def test_a_missing_or_edited_file(url: str, tmp_path: Path) -> None:
    copy = shutil.copytree(url, tmp_path / "copy")
    (copy / "shard.00001.mdsx").unlink()
    with pytest.raises(mdsx.MissingError, match=r"shard\.00001\.mdsx: .*copy it from a complete copy.*verify"):
        list(mdsx.Dataset(copy))
    index = copy / "index.json"
    index.write_text(index.read_text().replace('"samples":300', '"samples":301', 1))
    with pytest.raises(mdsx.CorruptError, match=r"index is damaged.*an index cannot be edited by hand"):
        mdsx.Dataset(copy)


def test_a_part_that_only_its_writer_may_read(url: str, tmp_path: Path) -> None:
    part = tmp_path / "data" / "part-00000"
    shutil.copytree(url, part)
    mdsx.merge(tmp_path / "data")
    assert mdsx.Dataset(tmp_path / "data")[0]["label"] == 0
    let_through(tmp_path)
    part.chmod(0o700)
    with pytest.raises(mdsx.ForbiddenError, match=r"part-00000/shard\.00000\.mdsx"):
        as_another_user(lambda: mdsx.Dataset(tmp_path / "data")[0], denied=part)


def test_a_newer_index_than_this_version_reads(url: str, tmp_path: Path) -> None:
    copy = shutil.copytree(url, tmp_path / "copy")
    index = copy / "index.json"
    index.write_text(index.read_text().replace('"version":1', '"version":2', 1))
    with pytest.raises(mdsx.UnsupportedError, match="the index is of version 2, this reader knows 1; upgrade mdsx"):
        mdsx.Dataset(copy)


def test_a_storage_option_with_a_typo() -> None:
    with pytest.raises(mdsx.UsageError, match=r"'endpont': the storage has no such option .*endpoint"):
        mdsx.Dataset("s3://bucket/data", storage_options={"endpont": "x"})
