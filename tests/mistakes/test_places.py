"""Mistakes with URLs, credentials and what lies at a place: each message says what to do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import mdsx
from mdsx.torch import StreamingDataset
from tools.servers.s3 import S3Server


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("dta", r"dta: no dataset is here: .*check the URL"),
        ("s4://bucket/data", r"there is no storage for s4:// \(expected a path, file://, s3://"),
        ("s3:/bucket/data", "a URL has two slashes after the colon .*write two slashes"),
        ("s3://", r"a URL is s3://bucket/prefix"),
        ("https://s3.console.aws.amazon.com/s3/buckets/b?prefix=x", "a page for people.*write s3://bucket/prefix"),
        ("https://console.cloud.google.com/storage/browser/b", "a page for people.*write gs://bucket/prefix"),
        ("https://huggingface.co/datasets/a/b", "a page for people.*write hf://datasets/owner/name"),
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
    with pytest.raises(mdsx.CorruptError, match=r"this is no mdsx index .*a web page has answered: check the URL"):
        mdsx.Dataset(tmp_path)


def test_a_list_of_urls(url: str) -> None:
    with pytest.raises(mdsx.UsageError, match=r"several datasets are read as one by mdsx\.Mixture"):
        StreamingDataset([url, url])  # type: ignore[arg-type]


def test_a_dataset_that_is_still_written_or_whose_writer_died(tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path, {"x": "int64"}, shard_size=200) as out:
        for number in range(100):
            out.write({"x": number})
        with pytest.raises(mdsx.MissingError, match=r"the index is written last: .*resume=True"):
            mdsx.Dataset(tmp_path)
    assert len(mdsx.Dataset(tmp_path)) == 100
    with mdsx.Writer(tmp_path / "small", {"x": "int64"}) as out:
        out.write({"x": 1})
        with pytest.raises(mdsx.MissingError, match=r"a writer has begun here: .*resume=True"):
            mdsx.Dataset(tmp_path / "small")


def test_a_missing_or_edited_file(url: str, tmp_path: Path) -> None:
    copy = shutil.copytree(url, tmp_path / "copy")
    (copy / "shard.00001.mdsx").unlink()
    with pytest.raises(mdsx.MissingError, match=r"shard\.00001\.mdsx: .*copy it from where .* is whole.*verify"):
        list(mdsx.Dataset(copy))
    index = copy / "index.json"
    index.write_text(index.read_text().replace('"samples":300', '"samples":301', 1))
    with pytest.raises(mdsx.CorruptError, match=r"index is damaged.*an index cannot be edited by hand"):
        mdsx.Dataset(copy)


def test_a_newer_index_than_this_version_reads(url: str, tmp_path: Path) -> None:
    copy = shutil.copytree(url, tmp_path / "copy")
    index = copy / "index.json"
    index.write_text(index.read_text().replace('"version":1', '"version":2', 1))
    with pytest.raises(mdsx.UnsupportedError, match="the index is of version 2, this reader knows 1; upgrade mdsx"):
        mdsx.Dataset(copy)


def opened(url: str, **environment: str) -> str:
    """Return the error of a process that opens a dataset, with only these variables of AWS."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "HTTP", "NO_PROXY"))}
    kept |= {"AWS_EC2_METADATA_DISABLED": "true", "HOME": "/nowhere", **environment}
    program = "import sys, mdsx; mdsx.Dataset(sys.argv[1], storage_options={'connect_timeout': 1})"
    done = subprocess.run([sys.executable, "-c", program, url], env=kept, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    return done.stderr.splitlines()[-1]


KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}


def test_no_credentials_a_wrong_profile_and_a_proxy_that_refuses() -> None:
    found = opened("s3://bucket/data")
    assert "no credentials" in found
    assert "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or a role" in found
    assert "The config profile (mine) could not be found" in opened("s3://bucket/data", AWS_PROFILE="mine")
    proxied = opened("s3://bucket/data", HTTPS_PROXY="http://127.0.0.1:9", AWS_REGION="eu-west-1", **KEYS)
    assert "Failed to connect to proxy" in proxied
    assert "check HTTPS_PROXY and HTTP_PROXY" in proxied
    down = opened("s3://bucket/data", AWS_ENDPOINT_URL="http://127.0.0.1:9", AWS_REGION="eu-west-1", **KEYS)
    assert "check AWS_ENDPOINT_URL" in down


def test_wrong_keys_and_a_bucket_that_is_not_there(tmp_path: Path) -> None:
    with S3Server(tmp_path) as server:
        env = server.env()
        assert "ForbiddenError" in opened("s3://bucket/data", **{**env, "AWS_SECRET_ACCESS_KEY": "wrong"})
        assert "there is no such bucket" in opened("s3://bucket/data", **env)


def test_a_storage_option_with_a_typo() -> None:
    with pytest.raises(mdsx.UsageError, match=r"'endpont': the storage has no such option .*endpoint"):
        mdsx.Dataset("s3://bucket/data", storage_options={"endpont": "x"})
