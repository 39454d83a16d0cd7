"""What only Google Cloud Storage has: ways to authorise, generations, sessions of uploads, and its errors."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import mdsx
from mdsx.base.pieces import Pieces
from mdsx.storage import Storage, open_storage, retry, throttle
from mdsx.storage.remote import gs as gs_module
from mdsx.storage.remote import gs_credentials
from mdsx.storage.remote.storage import RemoteStorage
from tests.forks import forked
from tests.storage.remote.google import Google, google_server

SECRET = "1//a-refresh-token"
WORKLOAD = "projects/1/locations/global/workloadIdentityPools/pool/providers/provider"


@pytest.fixture
def google(monkeypatch: pytest.MonkeyPatch) -> Iterator[Google]:
    """A server that holds the object "set/key". Pauses between tries are short."""
    monkeypatch.setattr(retry, "pause", lambda failures: None)
    monkeypatch.setattr(throttle, "pause", lambda seconds: None)
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with google_server() as server:
        # google-auth always asks Google for the tokens of users, whatever token_uri is in their file
        monkeypatch.setattr("google.oauth2.credentials._GOOGLE_OAUTH2_TOKEN_ENDPOINT", f"{server.endpoint}/token")
        server.objects["set/key"] = 7, b"0123456789"
        yield server


def opened(google: Google, **options: object) -> Storage:
    return open_storage("gs://bucket/set", {"endpoint": google.endpoint, **options})


def open_to_all(google: Google) -> Storage:
    return opened(google, anonymous=True)


# --- credentials


def user(google: Google, tmp_path: Path) -> Path:
    """Return a file as `gcloud auth application-default login` writes it."""
    path = tmp_path / "user.json"
    secrets = {"client_id": "me", "client_secret": "d-client-secret", "refresh_token": SECRET}
    path.write_text(json.dumps({"type": "authorized_user", **secrets}))
    return path


def service_account(google: Google, tmp_path: Path) -> Path:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(65537, 1024).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = tmp_path / "service.json"
    known = {"type": "service_account", "client_email": "me@example.com", "token_uri": f"{google.endpoint}/token"}
    path.write_text(json.dumps({**known, "private_key": key.decode()}))
    return path


def workload(google: Google, tmp_path: Path) -> Path:
    """Return a file of workload identity federation: a token of another provider, in a file, is exchanged."""
    (tmp_path / "subject").write_text("subject-token")
    path = tmp_path / "workload.json"
    source = {
        "type": "external_account",
        "audience": f"//iam.googleapis.com/{WORKLOAD}",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": f"{google.endpoint}/token",
        "credential_source": {"file": str(tmp_path / "subject")},
    }
    path.write_text(json.dumps(source))
    return path


@pytest.mark.parametrize("make", [user, service_account, workload])
def test_a_file_of_credentials_gives_one_token_for_all(
    google: Google, tmp_path: Path, make: Callable[[Google, Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(make(google, tmp_path))
    storages = [opened(google, credentials=path) for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        assert {piece.data for piece in threads.map(lambda storage: storage.get("key"), storages * 5)} == {
            b"0123456789"
        }
    assert forked(lambda: storages[0].get("key").data) == b"0123456789"
    assert pickle.loads(pickle.dumps(storages[0])).get("key").data == b"0123456789"
    assert google.tokens == 1
    assert google.valid is not None
    whose = "service account me@example.com" if make is service_account else "the credentials that google-auth finds"
    assert isinstance(storages[0], RemoteStorage)
    assert storages[0].identity() == whose
    if make is not user:
        assert any("devstorage.read_write" in text for text in scopes(google))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", path)
    assert opened(google).get("key").data == b"0123456789"
    assert google.tokens == 2


def scopes(google: Google) -> list[str]:
    """Return what was asked for: in an exchange, or in the signed claims of a service account."""
    from google.auth import jwt

    grant = google.grants[0]
    return [grant.get("scope", "") or jwt.decode(grant["assertion"], verify=False)["scope"]]


MACHINE = """
from mdsx.storage import open_storage
print(open_storage("gs://bucket/set", {"endpoint": %r}).get("key").data.decode())
"""


def test_the_metadata_server_of_a_machine_gives_a_token(google: Google, tmp_path: Path) -> None:
    """Workload identity in Kubernetes is the same server. google-auth reads its address when it is imported."""
    google.valid = "none yet"
    host = google.endpoint.removeprefix("http://")
    environment = {**os.environ, "GCE_METADATA_HOST": host, "GCE_METADATA_IP": host, "CLOUDSDK_CONFIG": str(tmp_path)}
    environment.pop("NO_GCE_CHECK", None)
    program = [sys.executable, "-c", MACHINE % google.endpoint]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=False, timeout=100)
    assert done.stdout == "0123456789\n", done.stderr
    assert google.tokens == 1


def test_a_token_is_used_until_a_new_one_comes(google: Google, tmp_path: Path) -> None:
    google.lifetime = 100  # less than the time before which it is renewed
    storage = opened(google, credentials=str(user(google, tmp_path)))
    for _ in range(3):
        storage.get("key")
    assert google.tokens == 3
    google.refusal = 400, {"error": "invalid_grant"}
    for _ in range(2):
        assert storage.get("key").data == b"0123456789"
    assert google.sent("Authorization")[-1] == "Bearer token-0003"
    assert len(google.grants) == 4  # not asked again at once


def test_an_expired_token_is_renewed(google: Google, tmp_path: Path) -> None:
    google.lifetime = -1
    storage = opened(google, credentials=str(user(google, tmp_path)))
    for _ in range(2):
        storage.get("key")
    assert google.tokens == 2
    google.refusal = 400, {"error": "invalid_grant", "error_description": f"Token {SECRET} is revoked", "x": SECRET}
    with pytest.raises(mdsx.ForbiddenError, match=r"/set/key: no access token: invalid_grant.*gcloud auth") as caught:
        storage.get("key")
    google.refusal = None
    assert storage.get("key").data == b"0123456789"
    assert "refusal" not in str(caught.value)


def test_a_refused_token_is_replaced(google: Google, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that was accepted for a while is replaced at once; a new one that is refused is an error."""
    path = user(google, tmp_path)
    storage = opened(google, credentials=str(path))
    storage.get("key")
    google.valid = "revoked"
    with pytest.raises(mdsx.ForbiddenError, match=r"401 Invalid Credentials.*GOOGLE_APPLICATION_CREDENTIALS"):
        storage.get("key")
    assert storage.get("key").data == b"0123456789"  # with another
    monkeypatch.setattr(gs_credentials, "YOUNG", -1)
    google.valid = "revoked"
    with ThreadPoolExecutor(4) as threads:
        assert {piece.data for piece in threads.map(lambda _: storage.get("key"), range(12))} == {b"0123456789"}
    assert google.tokens == 3


def test_an_unreachable_server_of_tokens_is_retried_then_named(google: Google, tmp_path: Path) -> None:
    path = service_account(google, tmp_path)
    path.write_text(path.read_text().replace(google.endpoint, "http://127.0.0.1:9"))
    with pytest.raises(mdsx.TransportError, match=rf"/key: no access token: .*given up after {retry.TRIES} tries"):
        opened(google, credentials=str(path)).get("key")


@pytest.mark.parametrize("text", [None, "{", '{"type": "unknown"}', '{"type": "service_account"}'])
def test_a_broken_file_of_credentials_is_named(google: Google, tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "broken.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(mdsx.ForbiddenError, match=r"/set/key: no access token: .*broken\.json"):
        opened(google, credentials=str(path)).get("key")


def test_without_credentials_the_ways_are_named(
    google: Google, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from google.auth.compute_engine import _metadata

    monkeypatch.setattr(_metadata, "_NO_GCE_CHECK", True)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    with pytest.raises(mdsx.ForbiddenError, match=r"no access token: .*GOOGLE_APPLICATION_CREDENTIALS.*anonymous"):
        opened(google).get("key")
    monkeypatch.setitem(sys.modules, "google.auth.exceptions", None)
    with pytest.raises(mdsx.UsageError, match=r"pip install 'mdsx\[gs\]'"):
        opened(google).get("key")


def test_a_given_token_or_none_is_sent(google: Google, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.auth.exceptions", None)  # neither needs google-auth
    opened(google, token="a-given-token").get("key")
    open_to_all(google).get("key")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", google.endpoint.removeprefix("http://"))
    open_storage("gs://bucket/set").get("key")
    open_storage("gs://bucket/set", {"token": "a-given-token"}).get("key")
    assert google.sent("Authorization") == ["Bearer a-given-token", None, None, "Bearer a-given-token"]


def test_no_error_shows_a_credential(google: Google, tmp_path: Path) -> None:
    file = user(google, tmp_path)
    secrets = ["a-given-token", SECRET, "d-client-secret", "token-00"]
    storages = [opened(google, token="a-given-token"), opened(google, credentials=str(file))]
    for storage in storages:
        storage.get("key")  # token-0001 is handed out
    for storage in storages:
        for answer in ((403, f"no: {secrets}".encode()), (500, f"no: {secrets[0]} token-0001".encode())):
            google.answers = [answer] * retry.TRIES
            google.valid = None
            with pytest.raises(mdsx.TransportError) as caught:
                storage.get("key")
            shown = "".join(traceback.format_exception(caught.value)) + repr(pickle.dumps(caught.value)) + repr(storage)
            assert not any(secret in shown for secret in ("a-given-token", "token-0001"))
            google.answers = []


# --- objects


def test_reads_are_of_one_generation(google: Google) -> None:
    storage = open_to_all(google)
    etag = storage.get("key").etag
    assert [entry.etag for entry in storage.list()] == [etag] == ["7"]
    storage.get("key", start=2, etag=etag)
    google.objects["set/key"] = 8, b"another"
    with pytest.raises(mdsx.ChangedError, match="/set/key"):
        storage.get("key", start=2, etag=etag)
    assert [path.partition("?")[2] for _, path, _ in google.asked if "key" in path][1:] == [
        "alt=media&ifGenerationMatch=7"
    ] * 2


def test_a_listing_has_pages_without_folders(google: Google) -> None:
    storage = open_to_all(google)
    google.objects |= dict.fromkeys(("set/", "set/a", "set/a/", "set/b c", "set/z", "sets"), (1, b"1"))
    assert [entry.key for entry in storage.list()] == ["a", "b c", "key", "z"]
    assert [entry.key for entry in storage.list("b ")] == ["b c"]


@pytest.mark.parametrize("page", ["<html>", "[]", {"items": [{"name": "set/a", "generation": "1"}]}])
def test_a_page_that_is_no_listing_raises(google: Google, page: object) -> None:
    google.answers = [(200, page)]
    with pytest.raises(
        mdsx.TransportError, match="gs://bucket/set: the endpoint did not return a listing of Google Cloud Storage"
    ):
        list(open_to_all(google).list())


def test_bytes_are_read_as_they_are_stored(gs_url: str) -> None:
    """The server decompresses what is stored with an encoding, for those who do not accept it."""
    storage = open_storage(f"{gs_url}/set")
    assert isinstance(storage, gs_module.GsStorage)
    zipped = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03K\x04\x00C\xbe\xb7\xe8\x01\x00\x00\x00"
    storage._ask("key", "POST", storage._uploading("media", "key", None) + "&contentEncoding=gzip", body=Pieces(zipped))
    assert storage.get("key").data == zipped
    assert storage.get("key", start=2, stop=5).data == zipped[2:5]


def test_what_is_not_there_is_the_object_or_the_bucket(google: Google, gs_url: str) -> None:
    with pytest.raises(mdsx.MissingError, match=r"/set/absent: not found: .*No such object"):
        open_to_all(google).get("absent")
    elsewhere = open_storage("gs://elsewhere/set", {"endpoint": google.endpoint, "anonymous": True})
    verbs: list[Callable[[], object]] = [
        lambda: elsewhere.get("key"),
        lambda: elsewhere.put("key", b""),
        lambda: elsewhere.delete("key"),
        lambda: list(elsewhere.list()),
        lambda: list(open_storage("gs://elsewhere/set").list()),
    ]
    for verb in verbs:
        with pytest.raises(mdsx.MissingError, match=r"no such bucket.*1 try, on first contact.*create it"):
            verb()


@pytest.mark.parametrize("size", [3 * 2**18, 3 * 2**18 - 5])
def test_a_large_object_is_uploaded_in_parts(gs_url: str, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(gs_module, "MULTIPART", 2**18)
    storage, data = open_storage(f"{gs_url}/set"), bytes(range(256)) * 4096
    storage.put("large", memoryview(data)[:size])
    assert storage.get("large").data == data[:size]
    assert [entry.size for entry in storage.list()] == [size]


def test_a_broken_part_continues_where_the_server_kept_it(google: Google, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gs_module, "MULTIPART", 400)
    data = bytes(range(250)) * 4
    google.cuts = [0, 150, 400, 50]
    open_to_all(google).put("large", data)
    assert google.objects["set/large"][1] == data
    ranges = [str(headers["Content-Range"]) for method, _, headers in google.asked if method == "PUT"]
    assert ranges == [
        *("bytes 0-399/1000", "bytes */1000", "bytes 0-399/1000", "bytes */1000", "bytes 150-549/1000"),
        *("bytes */1000", "bytes 550-949/1000", "bytes */1000", "bytes 600-999/1000"),
    ]
    google.cuts = [0] * 100
    with pytest.raises(mdsx.TransportError, match=rf"/set/larger: .*given up after {retry.TRIES} tries"):
        open_to_all(google).put("larger", data)
    assert "set/larger" not in google.objects


def test_bytes_that_the_server_loses_again_and_again_are_no_progress(
    google: Google, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gs_module, "MULTIPART", 400)
    google.cuts, google.forgets = [400, 0] * 50, [False, True] * 50
    with pytest.raises(mdsx.TransportError, match=rf"given up after {retry.TRIES} tries"):
        open_to_all(google).put("large", bytes(1000))


@pytest.mark.parametrize("size", [100, 1000])
def test_a_replace_depends_on_the_generation(google: Google, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(gs_module, "MULTIPART", 400)
    storage: Any = open_to_all(google)
    with pytest.raises(mdsx.ChangedError, match="set/key"):
        storage._store("key", Pieces(bytes(size)), "6")  # as if another one had come after the first look
    storage.replace("key", bytes(size), etag="7")
    assert google.objects["set/key"][1] == bytes(size)
    assert storage._has("key", bytes(size))  # so a retry after a lost answer succeeds
    storage.replace("key", bytes(size), etag="7")


def test_a_lost_session_is_started_again(google: Google, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gs_module, "MULTIPART", 400)
    sessions, kept = google.sessions, dict[str, Any]()
    google.sessions = kept  # every session but the first is known

    class Forgetful(dict[str, Any]):
        def __setitem__(self, session: str, value: object) -> None:
            if self or kept.setdefault("first", session) != session:
                super().__setitem__(session, value)

    google.sessions = Forgetful(sessions)
    open_to_all(google).put("large", bytes(1000))
    assert google.objects["set/large"][1] == bytes(1000)


# --- answers that are no success


def refusal(reason: str, message: str = "injected") -> dict[str, object]:
    return {"error": {"message": message, "errors": [{"reason": reason}]}}


@pytest.mark.parametrize(
    ("status", "reason"),
    [(403, "rateLimitExceeded"), (403, "userRateLimitExceeded"), (429, "rateLimitExceeded"), (408, "x"), (503, "x")],
)
def test_limits_of_the_rate_are_retried(google: Google, status: int, reason: str) -> None:
    google.answers = [(status, refusal(reason))] * 3
    assert open_to_all(google).get("key").data == b"0123456789"
    assert len(google.asked) == 4


@pytest.mark.parametrize(
    ("status", "reason", "error"),
    [
        (401, "authError", mdsx.ForbiddenError),
        (403, "forbidden", mdsx.ForbiddenError),
        (403, "quotaExceeded", mdsx.ForbiddenError),
        (412, "conditionNotMet", mdsx.ChangedError),
        (416, "requestedRangeNotSatisfiable", mdsx.TruncatedError),
        (400, "invalid", mdsx.TransportError),
    ],
)
def test_refusals_are_not_retried(google: Google, status: int, reason: str, error: type[mdsx.MdsxError]) -> None:
    google.answers = [(status, refusal(reason))]
    with pytest.raises(error, match="/set/key") as caught:
        open_to_all(google).get("key")
    assert type(caught.value) is error
    assert len(google.asked) == 1


def test_a_requester_that_pays_is_named(google: Google) -> None:
    google.answers = [(400, refusal("required", "Bucket is a requester pays bucket but no user project provided."))]
    with pytest.raises(mdsx.ForbiddenError, match="give the option requester_pays"):
        open_to_all(google).get("key")
    storage = opened(google, anonymous=True, requester_pays="my-project")
    google.asked.clear()
    storage.get("key")
    storage.put("key 2", b"")
    list(storage.list())
    storage.delete("key")
    assert all("userProject=my-project" in path for _, path, _ in google.asked)
    assert len(google.asked) == 4


@pytest.mark.parametrize("url", ["gs://", "gs://a:secret@b:1/c", "gs://bucket/a?generation=secret", "gs://bucket/a#1"])
def test_wrong_urls_raise_without_showing_them(url: str) -> None:
    with pytest.raises(mdsx.UsageError, match=r"a URL is gs://bucket/prefix") as caught:
        open_storage(url)
    assert "secret" not in str(caught.value)


def test_an_endpoint_is_a_url() -> None:
    with pytest.raises(mdsx.UsageError, match=r"gs://bucket: the endpoint is not a URL"):
        open_storage("gs://bucket", {"endpoint": "storage.example"})


def test_an_upload_ends_when_the_object_is_there(google: Google, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gs_module, "MULTIPART", 400)
    data = bytes(range(250)) * 4
    google.unready = 2
    open_to_all(google).put("large", data)
    assert google.objects["set/large"][1] == data
    google.unready = 100
    with pytest.raises(mdsx.TransportError, match="the server has all bytes, but not the object yet; given up"):
        open_to_all(google).put("larger", data)
