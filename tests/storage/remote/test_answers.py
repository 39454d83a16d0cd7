"""Whatever a server answers, storage raises only MdsxErrors, and asks, receives and keeps no more than its limits."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import mdsx
from mdsx import secret
from mdsx.checks.doctor.endpoint import check_region, reach
from mdsx.storage import Storage, open_storage, retry
from mdsx.storage.remote import RemoteStorage, limits
from tests.conftest import Often
from tests.storage.remote.answers import BODY, Answers, Tokens
from tests.storage.remote.hostile import CLOUDS, ENDPOINT, Hostile, serving

MOST_REQUESTS = 2000
MOST_SENT = 40 * 2**20  # bytes, in all requests of one verb


def tag_of(storage: Storage) -> str:
    return {"gs": "7", "hf": "x"}.get(storage.url.partition(":")[0], '"x"')


def download(storage: Storage) -> None:
    storage.download("a", lambda chunk: None, size=len(BODY))


def downloaded(storage: Storage) -> None:
    """As a listing says."""
    for entry in storage.list():
        storage.download(entry.key, lambda chunk: None, size=entry.size, etag=entry.etag)
        storage.get(entry.key, etag=entry.etag)
        break


def examined(storage: Storage) -> None:
    assert isinstance(storage, RemoteStorage)
    _, headers = reach(storage)
    if headers is not None:
        list(check_region(storage, headers, works=False))


READS: dict[str, Callable[[Storage], object]] = {
    "get": lambda storage: storage.get("a"),
    "range": lambda storage: storage.get("a", start=100, stop=200, etag=tag_of(storage)),
    "download": download,
    "list": lambda storage: list(storage.list()),
    "listed": downloaded,
    "doctor": examined,
}
WRITES: dict[str, Callable[[Storage], object]] = {
    "put": lambda storage: storage.put("a", b"1"),
    "parts": lambda storage: storage.put("a", BODY, BODY),
    "create": lambda storage: storage.create("a", BODY),
    "replace": lambda storage: storage.replace("a", BODY, etag=tag_of(storage)),
    "delete": lambda storage: storage.delete("a"),
    "discard": lambda storage: storage.discard_unfinished(),
}


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits that a test meets soon; each is enforced as its large one. No other test's messages hide the tokens."""
    monkeypatch.setattr(secret, "_known", set(secret._known))
    monkeypatch.setattr(retry, "TRIES", 2)
    monkeypatch.setattr(retry, "OBEDIENCE", 10.0)
    small = {"OBJECT": 10**6, "DOCUMENT": 10**6, "ERROR": 10**4, "HEAD": 10**5, "FRAMING": 10**4}
    for name, value in {**small, "PAGES": 20, "EMPTY_PAGES": 10}.items():
        monkeypatch.setattr(limits, name, value)
    for module in ("s3", "gs", "az"):
        monkeypatch.setattr(f"mdsx.storage.remote.{module}.MULTIPART", len(BODY))


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("cloud", CLOUDS)
def test_any_answer_raises_only_errors_of_mdsx(cloud: str, often: Often) -> None:
    url, options = CLOUDS[cloud]
    verbs = READS if cloud in ("hf", "web") else {**READS, **WRITES}
    failures = []
    for seed in range(often(120, 20_000)):
        verb = [*verbs.values()][seed % len(verbs)]
        failures += failing(Answers(cloud, seed), partial(verb, open_storage(url, options)))
    assert not failures, f"{len(failures)}: {failures[:10]}"


def failing(answers: Answers, ask: Callable[[], object]) -> list[tuple[int, str]]:
    """Return the seed and what is wrong, if anything is."""
    server = Hostile(answers)
    with serving(server):
        try:
            ask()
        except mdsx.MdsxError:
            pass
        except Exception as error:
            return [(answers.seed, repr(error)[:200])]
    if len(server.requests) > MOST_REQUESTS or server.sent > MOST_SENT:
        return [(answers.seed, f"{len(server.requests)} requests, {server.sent:,} bytes")]
    return []


def private_key() -> str:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(65537, 1024)
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return key.private_bytes(*form).decode()


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("cloud", ["gs", "az"])
def test_any_answer_with_a_token_raises_only_errors_of_mdsx(
    cloud: str, often: Often, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """google-auth and azure-identity read what the servers of tokens answer."""
    url, options = CLOUDS[cloud]
    account = tmp_path / "account.json"
    about = {"type": "service_account", "client_email": "me@x.example", "token_uri": f"{ENDPOINT}/token"}
    account.write_text(json.dumps({**about, "private_key": private_key()}))
    monkeypatch.setenv("IDENTITY_ENDPOINT", f"{ENDPOINT}/token")
    monkeypatch.setenv("IDENTITY_HEADER", "h" * 10)
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "ManagedIdentityCredential")
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # both libraries retry by themselves
    options = {**options, "anonymous": False, **({"credentials": str(account)} if cloud == "gs" else {})}
    failures = []
    for seed in range(often(30, 1000)):
        monkeypatch.setenv("GOOGLE_RUN" if cloud == "gs" else "AZURE_RUN", str(seed))  # so that no token is known
        failures += failing(Tokens(cloud, seed), lambda: open_storage(url, options).get("a"))
    assert not failures, f"{len(failures)}: {failures[:10]}"
