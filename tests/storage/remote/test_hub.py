"""Reading datasets from the Hugging Face Hub: pinned to a commit, through links that expire, within rate limits."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import mdsx
from mdsx.checks.doctor import Job, examine
from mdsx.storage import open_storage, retry
from mdsx.torch import StreamingDataset
from tests import fork_server
from tests.forks import forked
from tests.storage.remote.test_web import answering, send
from tools.servers.hub import Hub

DATA = bytes(range(256)) * 20


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with Hub(tmp_path / "hub") as running:
        for name, value in running.env().items():
            monkeypatch.setenv(name, value)
        yield running


def written(folder: Path, numbers: range) -> Path:
    """Write a dataset of one column to `folder`/data, in several shards. Return `folder`."""
    with mdsx.Writer(folder / "data", {"n": "int64"}, shard_size=4000) as out:
        for n in numbers:
            out.write({"n": n})
    return folder


def streamed(url: str, cache: Path) -> list[int]:
    batches = StreamingDataset(url, cache=cache, batch_size=10)
    return sorted(n for batch in batches for n in batch["n"].tolist())


def test_a_dataset_is_streamed_verified_and_listed(hub: Hub, tmp_path: Path) -> None:
    hub.publish("org/set", written(tmp_path / "new", range(1000)))
    url = "hf://datasets/org/set/data"
    assert streamed(url, tmp_path / "cache") == list(range(1000))
    assert mdsx.verify(url).ok
    hub.page = 2
    entries = list(open_storage(url).list())
    assert [entry.key for entry in entries] == sorted(path.name for path in (tmp_path / "new" / "data").iterdir())
    assert all(open_storage(url).get(entry.key).etag == entry.etag for entry in entries)
    assert list(open_storage("hf://datasets/org/set/none").list()) == []
    found = examine(url, job=Job(), cache=mdsx.Cache(tmp_path / "cache"))
    assert {each.check for each in found if each.state != "ok"} <= {"latency"}  # a busy machine may be slow


def test_what_is_open_stays_at_its_commit(hub: Hub, tmp_path: Path) -> None:
    hub.publish("org/set", written(tmp_path / "old", range(1000)))
    dataset = mdsx.Dataset("hf://datasets/org/set/data", cache=tmp_path / "cache")
    commit = hub.publish("org/set", written(tmp_path / "new", range(1000, 2000)))
    hub.expire_links()
    assert [sample["n"] for sample in dataset] == list(range(1000))
    assert [pickle.loads(pickle.dumps(dataset))[n]["n"] for n in range(3)] == [0, 1, 2]
    assert mdsx.Dataset("hf://datasets/org/set/data")[0]["n"] == 1000
    assert mdsx.Dataset(f"hf://datasets/org/set@{commit}/data")[0]["n"] == 1000


def test_branches_of_pull_requests_have_slashes(hub: Hub, tmp_path: Path) -> None:
    hub.publish("org/set", written(tmp_path / "new", range(10)), branch="refs/pr/1")
    assert mdsx.Dataset("hf://datasets/org/set@refs/pr/1/data")[3]["n"] == 3
    assert mdsx.Dataset("hf://datasets/org/set@refs%2Fpr%2F1/data")[3]["n"] == 3


def test_expired_links_are_renewed(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "large").write_bytes(DATA)
    (tmp_path / "new" / "small").write_bytes(DATA[:100])
    hub.publish("org/set", tmp_path / "new")
    storage = open_storage("hf://datasets/org/set")
    for _ in range(3):
        assert storage.get("large", start=5, stop=9).data == DATA[5:9]
        assert storage.get("small", start=5, stop=9).data == DATA[5:9]
        hub.expire_links()
    chunks: list[bytes] = []
    storage.download("large", chunks.append, size=len(DATA))
    assert b"".join(chunks) == DATA


def test_a_file_is_resolved_once_for_a_process(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "large").write_bytes(DATA)
    hub.publish("org/set", tmp_path / "new")
    storage = open_storage("hf://datasets/org/set")
    with ThreadPoolExecutor(16) as threads:
        pieces = threads.map(lambda start: storage.get("large", start=start, stop=start + 1).data, range(64))
        assert b"".join(pieces) == DATA[:64]
    assert hub.requests["resolve"] == 1
    assert fork_server.call(read_before_and_after_a_fork, "hf://datasets/org/set") == (DATA, DATA)


def read_before_and_after_a_fork(url: str) -> tuple[bytes, bytes]:
    """It needs a process without other threads: a child that is forked while one of them looks up a host may hang."""
    storage = open_storage(url)
    before = storage.get("large").data
    return before, forked(lambda: storage.get("large").data)


def test_the_rate_limit_is_obeyed(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.publish("org/set", written(tmp_path / "new", range(10)))
    waits: list[float] = []
    monkeypatch.setattr(retry, "wait", waits.append)
    hub.limit(2, seconds=90)
    assert mdsx.Dataset("hf://datasets/org/set/data")[3]["n"] == 3
    assert waits == [90, 90]


def test_a_token_opens_private_repositories(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.publish("org/set", written(tmp_path / "new", range(1000)), private=True)
    url = "hf://datasets/org/set/data"
    with pytest.raises(mdsx.ForbiddenError, match="HF_TOKEN"):
        mdsx.Dataset(url)
    assert mdsx.Dataset(url, storage_options={"token": hub.token})[3]["n"] == 3
    monkeypatch.delenv("HF_HUB_DISABLE_IMPLICIT_TOKEN")
    (tmp_path / "token").write_text(f"{hub.token}\n")
    monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "token"))
    assert mdsx.Dataset(url)[3]["n"] == 3
    with pytest.raises(mdsx.ForbiddenError):
        mdsx.Dataset(url, storage_options={"anonymous": True})


def test_errors_say_what_is_missing(hub: Hub, tmp_path: Path) -> None:
    hub.publish("org/set", written(tmp_path / "new", range(10)))
    hub.publish("org/gated", tmp_path / "new", gated=True)
    for url, options, kind, text in (
        ("hf://datasets/org/set/nothing", None, mdsx.MissingError, "no dataset is here"),
        ("hf://datasets/org/set@v9/data", None, mdsx.MissingError, "RevisionNotFound"),
        ("hf://datasets/org/none/data", {"token": hub.token}, mdsx.MissingError, "no such repository"),
        ("hf://datasets/org/gated/data", {"token": hub.stranger}, mdsx.ForbiddenError, "accept its terms"),
        ("hf://datasets/org/set/data", {"token": "hf_wrongtoken"}, mdsx.ForbiddenError, "log in"),
    ):
        with pytest.raises(kind, match=text) as caught:
            mdsx.Dataset(url, storage_options=options)
        assert "hf_" not in str(caught.value)


@pytest.mark.parametrize("url", ["hf://datasets/org/set/data", "hf://buckets/org/set/data"])
def test_it_is_not_written(hub: Hub, url: str) -> None:
    with pytest.raises(mdsx.UsageError, match=r"hf upload.*hf buckets sync"):
        mdsx.Writer(url, {"n": "int64"})


def test_a_bucket_is_streamed_verified_and_listed(hub: Hub, tmp_path: Path) -> None:
    hub.fill("org/bucket", written(tmp_path / "new", range(1000)))
    url = "hf://buckets/org/bucket/data"
    assert streamed(url, tmp_path / "cache") == list(range(1000))
    assert mdsx.Dataset(url)[731]["n"] == 731  # by range
    assert mdsx.verify(url).ok
    hub.page = 2
    entries = list(open_storage(url).list())
    assert [entry.key for entry in entries] == sorted(path.name for path in (tmp_path / "new" / "data").iterdir())
    assert all(open_storage(url).get(entry.key).etag == entry.etag for entry in entries)
    assert list(open_storage("hf://buckets/org/bucket/none").list()) == []
    found = examine(url, job=Job(), cache=mdsx.Cache(tmp_path / "cache"))
    assert {each.check for each in found if each.state != "ok"} <= {"latency"}  # a busy machine may be slow


def test_files_of_a_bucket_are_read_through_links_that_expire(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "new" / "a folder").mkdir(parents=True)
    (tmp_path / "new" / "a folder" / "large").write_bytes(DATA)
    hub.fill("org/bucket", tmp_path / "new")
    storage = open_storage("hf://buckets/org/bucket/a folder")
    for _ in range(3):
        assert storage.get("large", start=5, stop=9).data == DATA[5:9]
        hub.expire_links()
    assert hub.requests["bucket_file"] == 3
    assert pickle.loads(pickle.dumps(storage)).get("large").data == DATA


def test_a_file_of_a_bucket_that_was_replaced_is_noticed(hub: Hub, tmp_path: Path) -> None:
    hub.fill("org/bucket", written(tmp_path / "old", range(1000)))
    url = "hf://buckets/org/bucket/data"
    storage, dataset = open_storage(url), mdsx.Dataset(url)
    first = storage.get("shard.00000.mdsx")
    hub.fill("org/bucket", written(tmp_path / "new", range(1000, 2000)))
    assert storage.get("shard.00000.mdsx", etag=first.etag).data == first.data  # the link is one of the content
    hub.expire_links()
    with pytest.raises(mdsx.ChangedError, match=r"bucket/data/shard\.00000"):
        storage.get("shard.00000.mdsx", etag=first.etag)
    with pytest.raises(mdsx.CorruptError):
        dataset[0]
    assert mdsx.Dataset(url)[0]["n"] == 1000


def test_errors_say_what_is_missing_in_a_bucket(hub: Hub, tmp_path: Path) -> None:
    hub.fill("org/secret", written(tmp_path / "new", range(10)), private=True)
    for url, options, kind, text in (
        ("hf://buckets/org/secret/data", None, mdsx.ForbiddenError, "HF_TOKEN"),
        ("hf://buckets/org/secret/data", {"token": hub.stranger}, mdsx.MissingError, "no such bucket"),
        ("hf://buckets/org/secret/none", {"token": hub.token}, mdsx.MissingError, "no dataset is here"),
        ("hf://buckets/org/secret@main/data", {"token": hub.token}, mdsx.UsageError, "a bucket has no revisions"),
    ):
        with pytest.raises(kind, match=text) as caught:
            mdsx.Dataset(url, storage_options=options)
        assert "hf_" not in str(caught.value)
    assert mdsx.Dataset("hf://buckets/org/secret/data", storage_options={"token": hub.token})[3]["n"] == 3


@pytest.mark.parametrize("url", ["hf://org/set", "hf://datasets/set", "hf://datasets/org/set?x=1", "hf://models/a/b"])
def test_what_is_no_url_of_a_dataset_raises(url: str) -> None:
    with pytest.raises(mdsx.UsageError, match="hf://datasets/ORG/NAME"):
        open_storage(url)


def test_a_file_that_a_server_without_commits_replaces_is_noticed() -> None:
    etags = iter(["one", "one", "two"])
    with answering(lambda request: send(request, 200, b"0123", ETag=f'"{next(etags)}"')) as url:
        storage = open_storage("hf://datasets/org/set", {"endpoint": url, "anonymous": True})
        first = storage.get("x")
        assert storage.get("x", start=1, stop=2, etag=first.etag).data == b"1"
        with pytest.raises(mdsx.ChangedError, match="org/set/x"):
            storage.get("x", start=2, stop=3, etag=first.etag)
