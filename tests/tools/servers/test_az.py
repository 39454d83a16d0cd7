from __future__ import annotations

from collections.abc import Iterator
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tools.servers.az import AzureServer


def answer(url: str, method: str = "GET", data: bytes | None = None, **headers: str) -> tuple[int, bytes]:
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        with urlopen(Request(url, data, fields, method=method)) as response:
            return response.status, response.read()
    except HTTPError as error:
        return error.code, str(error.headers["x-ms-error-code"]).encode()


@pytest.fixture
def blob(az: AzureServer) -> Iterator[str]:
    """The URL of a blob of ten bytes."""
    url = f"{az.url}/tools-servers/of ten bytes".replace(" ", "%20")
    az.make_bucket("tools-servers")
    answer(f"{url}?{az.sas()}", "PUT", b"0123456789", x_ms_blob_type="BlockBlob")
    yield url
    answer(f"{az.url}/tools-servers?restype=container&{az.sas()}", "DELETE")


def test_a_range_is_read_on_condition(az: AzureServer, blob: str) -> None:
    assert answer(f"{blob}?{az.sas()}", x_ms_range="bytes=2-4") == (206, b"234")
    assert answer(f"{blob}?{az.sas()}", If_Match='"another"') == (412, b"ConditionNotMet")


def test_requests_need_a_valid_token(az: AzureServer, blob: str) -> None:
    assert answer(blob)[0] == 403
    assert answer(f"{blob}?{az.sas(seconds=-60)}") == (403, b"AuthorizationFailure")
    assert answer(f"{blob}?{az.sas('l')}") == (403, b"AuthorizationPermissionMismatch")


def test_blobs_survive_a_restart(az: AzureServer, blob: str) -> None:
    before = az.endpoint
    az.stop()
    az.start()
    assert az.endpoint == before
    assert answer(f"{blob}?{az.sas()}") == (200, b"0123456789")
