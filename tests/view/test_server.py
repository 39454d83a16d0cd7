"""The server refuses requests without the token or for another host name, and each answer has a strict policy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

import pytest

from mdsx import UsageError
from mdsx.view import Library, Opening, serve
from mdsx.view.server import HEADERS
from tests.view.conftest import SAMPLES, served


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@pytest.fixture(scope="module")
def address(dataset: Path) -> Iterator[str]:
    with served(dataset) as address:
        yield address


def request(address: str, path: str, host: str | None = None, method: str = "GET") -> Answer:
    """Ask the server of `address` for a path of its own."""
    place = urlsplit(address)
    connection = HTTPConnection(str(place.hostname), place.port, timeout=20)
    try:
        connection.request(method, path, headers={} if host is None else {"Host": host})
        answer = connection.getresponse()
        return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
    finally:
        connection.close()


def ask(address: str, name: str, **fields: object) -> Answer:
    return request(address, f"{urlsplit(address).path}{name}{'?' if fields else ''}{urlencode(fields)}")


def test_it_listens_on_this_machine_alone(address: str) -> None:
    assert urlsplit(address).hostname == "127.0.0.1"
    assert len(urlsplit(address).path.strip("/")) >= 32


@pytest.mark.parametrize("path", ["/", "/api/overview", "/x/", "/x/api/overview", "/uplot.js", "//", "/%00/", "/é/"])
def test_without_the_token_everything_is_refused(address: str, path: str) -> None:
    answer = request(address, path.encode().decode("latin-1") if path.isascii() else "/%C3%A9/")
    assert answer.status == 403
    assert b"mdsx view" in answer.body


def test_a_part_of_the_token_is_refused(address: str) -> None:
    token = urlsplit(address).path.strip("/")
    for wrong in (token[:-1], token + "x", token.swapcase()):
        assert request(address, f"/{wrong}/").status == 403
    assert request(address, f"/{token}").status == 403
    assert request(address, f"/{token}/").status == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "127.0.0.1:80:80"])
def test_another_host_name_is_refused(address: str, host: str) -> None:
    assert request(address, urlsplit(address).path, host=host).status == 403


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "localhost:9999", "LOCALHOST:1"])
def test_a_tunnel_may_have_another_port(address: str, host: str) -> None:
    assert request(address, urlsplit(address).path, host=host).status == 200


def test_every_answer_has_the_policy(address: str) -> None:
    paths = ["", "app.js", "uplot.js", "api/overview", "api/0/samples/0", "api/0/samples/0/picture?column=image", "x"]
    answers = [request(address, urlsplit(address).path + path) for path in paths]
    assert [answer.status for answer in answers] == [200, 200, 200, 200, 200, 200, 404]
    for answer in (*answers, request(address, "/"), ask(address, "api/9/samples")):
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
        assert "server" not in answer.headers
    assert "unsafe" not in HEADERS["content-security-policy"]


def test_only_its_own_files_are_served(address: str) -> None:
    for name in ("../server.py", "%2e%2e/server.py", "uplot.LICENSE", "server.py", "/etc/passwd", "assets/app.js"):
        assert ask(address, name).status == 404


def test_a_number_of_thousands_of_digits_is_not_found(address: str) -> None:
    assert ask(address, f"api/0/samples/{'9' * 5000}").status == 404


def test_only_get_is_answered_except_for_checks(address: str) -> None:
    path = urlsplit(address).path
    for method in ("POST", "PUT", "DELETE"):
        assert request(address, f"{path}api/overview", method=method).status == 405
    assert request(address, f"{path}api/0/shards/0/check").status in (404, 405)
    assert request(address, f"{path}api/0/shards/0/check", method="POST").json["state"] == "undamaged"


def test_samples_shards_and_searches_are_json(address: str) -> None:
    found = ask(address, "api/0/samples", start=115, count=10).json
    assert [each["number"] for each in found["samples"]] == list(range(115, SAMPLES))
    assert found["samples"][0]["lines"][0] == ["caption", "caption 115"]
    assert found["samples"][0]["picture"] == "image"
    shards = ask(address, "api/0/shards", start=0, count=200).json
    assert sum(each["samples"] for each in shards["shards"]) == SAMPLES
    second = shards["shards"][1]["first"]
    assert ask(address, f"api/0/samples/{second}").json["shard"] == 1
    matches = ask(address, "api/0/search", column="caption", text="RED", start=10, stop=40).json
    assert [each["number"] for each in matches["matches"]] == [17, 27, 37]
    assert matches["next"] == 40
    assert ask(address, "api/0/search", column="info", text='"id": 5,', stop=20).json["matches"][0]["number"] == 5


@pytest.mark.parametrize(
    ("name", "fields", "status"),
    [
        ("api/1/samples", {}, 400),
        ("api/0/samples/120", {}, 400),
        ("api/0/samples", {"start": "-1"}, 400),
        ("api/0/samples", {"start": "1e99"}, 400),
        ("api/0/samples/0/picture", {"column": "caption"}, 400),
        ("api/0/samples/0/picture", {"column": "raw"}, 400),
        ("api/0/samples/0/picture", {"column": "nothing"}, 400),
        ("api/0/samples/0/text", {"column": "raw"}, 400),
        ("api/0/search", {"column": "caption", "text": ""}, 400),
        ("api/0/search", {"column": "audio", "text": "x"}, 400),
        ("api/order", {"world_size": "0"}, 400),
        ("api/order", {"batch": "99999"}, 400),
        ("api/order", {"rank": "1"}, 400),
        ("api/order", {"seed": "x"}, 400),
        ("api/order", {"seed": str(2**64)}, 400),
        ("api/order", {"lanes": "0"}, 400),
        ("api/order", {"batch_size": "1000"}, 400),
    ],
)
def test_a_wrong_question_gets_an_error_that_says_what(
    address: str, name: str, fields: dict[str, str], status: int
) -> None:
    answer = ask(address, name, **fields)
    assert answer.status == status, answer.body
    assert answer.json["error"]["message"]


def test_several_datasets_are_one_mixture(dataset: Path) -> None:
    with served(dataset, dataset) as address:
        assert len(ask(address, "api/overview").json["datasets"]) == 2
        found = ask(address, "api/order", batch_size=40).json
        assert found["epoch_samples"] == 2 * SAMPLES
        assert {row[1] for row in found["samples"]} == {0, 1}
        weighted = ask(address, "api/order", batch_size=40, proportions="1, 0").json
        assert {row[1] for row in weighted["samples"]} == {0}
        assert ask(address, "api/order", proportions="1").status == 400


def test_a_taken_port_is_explained(dataset: Path) -> None:
    library = Library([str(dataset)], Opening())
    with serve(library) as server, pytest.raises(UsageError, match="cannot be used"):
        serve(library, int(str(urlsplit(server.address).port)))
