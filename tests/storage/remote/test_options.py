"""Storage options belong to one URL, reach every call that takes a URL, and are never shown or stored."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

import mdsx
from mdsx.storage import open_storage
from mdsx.torch import StreamingDataset
from tests.foreign.tars.tars import sample_members, write_tar
from tests.storage.remote.test_web import answering, send
from tools.servers.s3 import S3Server


class OtherServer(S3Server):
    """A server with other credentials."""

    key = "other-key-id"
    secret = "other-secret-access-key"


def options(server: S3Server) -> dict[str, Any]:
    return {"endpoint": server.endpoint, "access_key_id": server.key, "secret_access_key": server.secret}


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OtherServer]:
    with OtherServer(tmp_path_factory.mktemp("other")) as server:
        yield server


def write(url: str | Path, numbers: range, storage_options: dict[str, Any] | None = None) -> None:
    with mdsx.Writer(url, {"n": "int64"}, shard_size=2000, storage_options=storage_options) as out:
        for n in numbers:
            out.write({"n": n})


def test_one_run_reads_equal_names_at_several_endpoints(s3_url: str, other: OtherServer, tmp_path: Path) -> None:
    other.make_bucket(s3_url.removeprefix("s3://"))
    write(f"{s3_url}/set", range(500))
    write(f"{s3_url}/set", range(500, 1000), options(other))
    cache = mdsx.Cache(tmp_path / "cache", limit="1MB")
    there = mdsx.Dataset(f"{s3_url}/set", cache=cache, storage_options=options(other))
    here = mdsx.Component(f"{s3_url}/set", storage_options=options(other))
    assert mdsx.Mixture([here, mdsx.Dataset(f"{s3_url}/set")]).epoch_samples == 1000
    assert other.secret not in repr(here)
    mixture = mdsx.Mixture([mdsx.Dataset(f"{s3_url}/set", cache=cache), there])
    run = StreamingDataset(mixture, batch_size=10)
    read: list[int] = []
    for batch in run:
        read += batch["n"].tolist()
        if len(read) == 300:
            break
    state = run.state_dict()
    again = StreamingDataset(mixture, batch_size=10)
    again.load_state_dict(state)
    first = next(iter(StreamingDataset(f"{s3_url}/set", storage_options=options(other), shuffle=False, batch_size=4)))
    assert first["n"].tolist() == [500, 501, 502, 503]
    with pytest.raises(mdsx.UsageError, match=r"give storage_options= to the mdsx\.Mixture"):
        StreamingDataset(mixture, storage_options=options(other))
    read += [n for batch in again for n in batch["n"].tolist()]
    assert sorted(read) == list(range(1000))
    stored = json.dumps(state) + repr((mixture, there, again)) + open_storage(f"{s3_url}/set").url
    assert other.secret not in stored
    assert other.key not in stored
    assert [pickle.loads(pickle.dumps(there))[n]["n"] for n in range(2)] == [500, 501]


def test_every_call_that_takes_a_url_takes_options(s3_url: str, other: OtherServer, tmp_path: Path) -> None:
    other.make_bucket(name := s3_url.removeprefix("s3://"))
    # First, because the server may list a folder as it was some moments before.
    write_tar(other.directory / name / "a.tar", sample_members(range(5)))
    write_tar(other.directory / name / "b.tar", sample_members(range(5, 9)))
    given = options(other)
    for part in range(2):
        write(f"{s3_url}/merged/part-{part:05d}", range(100 * part, 100 * part + 100), given)
    mdsx.merge(f"{s3_url}/merged", storage_options=given)
    assert mdsx.verify(f"{s3_url}/merged", storage_options=given).ok
    assert mdsx.repair(f"{s3_url}/merged", storage_options=given).ok
    assert mdsx.Mixture([f"{s3_url}/merged"], storage_options=given).epoch_samples == 200
    done = mdsx.convert(
        "tar",
        f"{s3_url}/{{a,b}}.tar",
        f"{s3_url}/converted",
        num_workers=2,
        storage_options=given,
        source_options=given,
    )
    assert done.samples == 9
    mdsx.convert("tar", f"{s3_url}/a.tar", tmp_path / "here", source_options=given)
    for path in [*(other.directory / name).rglob("*"), *(tmp_path / "here").rglob("*")]:
        assert not path.is_file() or not {part.encode() for part in (other.key, other.secret)} & {path.read_bytes()}
        assert not path.is_file() or other.secret.encode() not in path.read_bytes()


@pytest.mark.slow
def test_commands_take_options(s3_url: str, other: OtherServer) -> None:
    other.make_bucket(s3_url.removeprefix("s3://"))
    write(f"{s3_url}/set", range(10), options(other))
    given = [text for pair in options(other).items() for text in ("--storage-option", "=".join(pair))]
    command = [sys.executable, "-m", "mdsx", "info", f"{s3_url}/set", *given]
    assert "10" in subprocess.run(command, capture_output=True, text=True, check=True).stdout
    command[-1] = "secret_access_key=PLANTED-secret"
    wrong = subprocess.run(command, capture_output=True, text=True, check=False)
    assert wrong.returncode == 1
    assert "SignatureDoesNotMatch" in wrong.stderr
    assert "PLANTED-secret" not in wrong.stderr


def test_a_profile_is_chosen_by_its_name(
    s3_url: str, other: OtherServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other.make_bucket(s3_url.removeprefix("s3://"))
    profile = f"[profile lab]\nregion=us-east-1\nendpoint_url={other.endpoint}\n"
    (tmp_path / "config").write_text(profile)
    (tmp_path / "credentials").write_text(
        f"[lab]\naws_access_key_id={other.key}\naws_secret_access_key={other.secret}\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    given = {"profile": "lab", "endpoint": other.endpoint}
    write(f"{s3_url}/set", range(10), given)
    assert mdsx.Dataset(f"{s3_url}/set", storage_options=given)[3]["n"] == 3


def test_requests_carry_what_the_options_say(s3_url: str) -> None:
    seen: list[dict[str, str]] = []

    def reply(request: BaseHTTPRequestHandler) -> None:
        seen.append(dict(request.headers))
        send(request, 200, b"data")

    with answering(reply) as url:
        open_storage("s3://bucket", {"endpoint": url, "anonymous": True}).get("x")
        open_storage("s3://bucket", {"endpoint": url, "requester_pays": "true", "region": "eu-west-1"}).get("x")
    assert "Authorization" not in seen[0]
    assert seen[1]["x-amz-request-payer"] == "requester"
    assert "/eu-west-1/s3/" in seen[1]["Authorization"]


@pytest.mark.parametrize("given", [{"regoin": "x"}, {"anonymous": "maybe"}, {"endpoint": 5}, {"token": ""}])
def test_a_wrong_option_is_named(given: dict[str, object]) -> None:
    with pytest.raises(mdsx.UsageError, match=next(iter(given))):
        open_storage("s3://bucket/x", given)


def test_a_disk_has_no_options_but_patience(tmp_path: Path) -> None:
    open_storage(tmp_path, {"connect_timeout": 5})
    with pytest.raises(mdsx.UsageError, match="connect_timeout"):
        open_storage(tmp_path, {"region": "eu-west-1"})
