"""With the hub's own client, huggingface_hub."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import huggingface_hub
import pytest
from huggingface_hub.errors import (
    BucketNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    RemoteEntryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.errors import RepositoryNotFoundError as NoRepository

from tools.servers.hub import Hub

FILES = {"small.json": b"{}", "sub/large.bin": bytes(range(256)) * 8, "sub/x y.txt": b"text"}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("source")
    (directory / "sub").mkdir()
    for name, data in FILES.items():
        (directory / name).write_bytes(data)
    return directory


@pytest.fixture
def hub(tmp_path: Path, source: Path) -> Iterator[Hub]:
    with Hub(tmp_path / "hub", page=2) as hub:
        hub.publish("org/name", source)
        yield hub


def client(hub: Hub, token: str | None = None) -> huggingface_hub.HfApi:
    return huggingface_hub.HfApi(hub.endpoint, token=token or False)


def location(hub: Hub, name: str, token: str | None = None) -> str:
    url = f"{hub.endpoint}/datasets/org/{name}"
    return huggingface_hub.get_hf_file_metadata(url, token=token or False).location


def test_a_commit_is_listed_and_downloaded(hub: Hub, tmp_path: Path) -> None:
    api = client(hub)
    commit = api.dataset_info("org/name").sha
    listed = [entry.path for entry in api.list_repo_tree("org/name", repo_type="dataset", recursive=True)]
    assert listed == ["small.json", "sub", "sub/large.bin", "sub/x y.txt"]
    for name, data in FILES.items():
        path = api.hf_hub_download("org/name", name, repo_type="dataset", revision=commit, cache_dir=tmp_path)
        assert Path(path).read_bytes() == data
    assert hub.requests["tree"] == 2  # pages
    assert hub.requests["signed"] == 1


def test_a_commit_stays_when_its_branch_moves(hub: Hub, tmp_path: Path) -> None:
    before = client(hub).dataset_info("org/name").sha
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "small.json").write_bytes(b"new")
    after = hub.publish("org/name", tmp_path / "new")
    for commit, data in ((before, b"{}"), (after, b"new")):
        with urlopen(f"{hub.endpoint}/datasets/org/name/resolve/{commit}/small.json") as response:
            assert response.read() == data


def test_signed_links_have_ranges_and_expire(hub: Hub) -> None:
    link = location(hub, "name/resolve/main/sub/large.bin")
    with urlopen(Request(link, headers={"Range": "bytes=3-5"})) as response:
        assert (response.status, response.read()) == (206, b"\3\4\5")
    with pytest.raises(HTTPError, match="400"):
        urlopen(Request(link, headers={"Authorization": f"Bearer {hub.token}"}))
    hub.expire_links()
    with pytest.raises(HTTPError, match="403"):
        urlopen(link)


def test_each_refusal_has_its_own_error(hub: Hub, source: Path) -> None:
    hub.publish("org/private", source, private=True)
    hub.publish("org/gated", source, gated=True)
    assert client(hub, hub.token).dataset_info("org/private").private
    with pytest.raises(NoRepository):
        client(hub, hub.stranger).dataset_info("org/private")
    with pytest.raises(HfHubHTTPError, match="401"):
        client(hub).dataset_info("org/private")
    with pytest.raises(HfHubHTTPError, match="401"):
        client(hub, "hf_wrong").dataset_info("org/name")
    with pytest.raises(RevisionNotFoundError):
        client(hub).dataset_info("org/name", revision="none")
    with pytest.raises(RemoteEntryNotFoundError):
        location(hub, "name/resolve/main/none")
    with pytest.raises(GatedRepoError):
        location(hub, "gated/resolve/main/small.json", hub.stranger)


def test_the_next_requests_are_limited(hub: Hub) -> None:
    hub.limit(1, seconds=7, kind="api")
    with pytest.raises(HfHubHTTPError, match="Retry after 7 seconds"):
        client(hub).dataset_info("org/name")
    assert client(hub).dataset_info("org/name").sha
    assert hub.requests == {"limited": 1, "api": 1}


def test_a_bucket_is_listed_read_and_replaced(hub: Hub, source: Path, tmp_path: Path) -> None:
    hub.fill("org/bucket", source)
    hub.fill("org/secret", source, private=True)
    api = client(hub)
    assert api.bucket_info("org/bucket").total_files == 3
    listed: dict[str, Any] = {entry.path: entry for entry in api.list_bucket_tree("org/bucket", recursive=True)}
    assert list(listed) == ["small.json", "sub/large.bin", "sub/x y.txt"]
    assert hub.requests["bucket_tree"] == 2  # pages
    assert [entry.path for entry in api.list_bucket_tree("org/bucket", "sub", recursive=True)] == list(listed)[1:]
    files = huggingface_hub.HfFileSystem(endpoint=hub.endpoint, token=False)
    with files.open("hf://buckets/org/bucket/sub/large.bin") as opened:
        opened.seek(3)
        assert opened.read(3) == b"\3\4\5"
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "small.json").write_bytes(b"new")
    hub.fill("org/bucket", tmp_path / "new")
    replaced = api.get_bucket_file_metadata("org/bucket", "small.json")
    assert replaced.size == 3
    assert replaced.xet_file_data.file_hash != listed["small.json"].xet_hash
    with pytest.raises(BucketNotFoundError):
        client(hub, hub.stranger).bucket_info("org/secret")
    assert client(hub, hub.token).bucket_info("org/secret").private
