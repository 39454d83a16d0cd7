"""The simulated link: the same bytes, later, slower, and counted. Bounds are loose: a machine may be busy."""

from __future__ import annotations

import hashlib
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise

import pytest

from tools.link import Lane, Link, RoundTrips

_SIZE = 8  # bytes of a request, which holds the number of bytes to send


def _bytes(size: int) -> bytes:
    return (bytes(range(251)) * (size // 251 + 1))[:size]


@pytest.fixture
def server() -> Iterator[str]:
    """A server that answers each request with the requested number of bytes."""

    def answer(client: socket.socket) -> None:
        with client, suppress(OSError):
            while request := client.recv(_SIZE, socket.MSG_WAITALL):
                client.sendall(_bytes(int.from_bytes(request)))

    def accept() -> None:
        while True:
            try:
                client = listening.accept()[0]
            except OSError:  # it was closed
                return
            threading.Thread(target=answer, args=(client,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)


@contextmanager
def _connected(link: Link) -> Iterator[socket.socket]:
    host, port = link.endpoint.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as client:
        yield client


def _ask(client: socket.socket, size: int) -> bytes:
    client.sendall(size.to_bytes(_SIZE))
    found = bytearray()
    while len(found) < size and (data := client.recv(size - len(found))):
        found += data
    return bytes(found)


@pytest.mark.parametrize(("rtt", "rate"), [(0.0, None), (0.01, None), (0.01, 50e6)])
def test_bytes_arrive_as_they_were_sent(server: str, rtt: float, rate: float | None) -> None:
    size, clients = 3_000_000, 4
    with Link(server, rtt=rtt, rate=rate) as link:
        found: list[str] = []

        def fetch() -> None:
            with _connected(link) as client:
                found.extend(hashlib.sha256(_ask(client, size)).hexdigest() for _ in range(2))

        threads = [threading.Thread(target=fetch) for _ in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        counts = link.counts()
    assert found == [hashlib.sha256(_bytes(size)).hexdigest()] * 2 * clients
    assert (counts.connections, counts.requests) == (clients, 2 * clients)
    assert (counts.sent, counts.received) == (2 * clients * _SIZE, 2 * clients * size)


def test_a_connection_and_each_request_cost_a_round_trip(server: str) -> None:
    with Link(server, rtt=0.2) as link, _connected(link) as client:
        seconds = []
        for _ in range(2):
            before = time.monotonic()
            _ask(client, 1)
            seconds.append(time.monotonic() - before)
        assert seconds[0] >= 0.39  # never sooner
        assert seconds[1] >= 0.19
        assert link.counts().round_trips == 3


def test_requests_in_flight_together_share_a_round_trip(server: str) -> None:
    with Link(server, rtt=0.5) as link:
        with _connected(link) as one, _connected(link) as other:
            for client in (one, other):
                client.sendall((1).to_bytes(_SIZE))
            for client in (one, other):
                client.recv(1)
        counts = link.counts()
    assert counts.requests == 2
    assert counts.round_trips == 2  # to connect, and to ask


def test_all_connections_share_the_bandwidth(server: str) -> None:
    size, clients, rate = 500_000, 4, 4e6
    with Link(server, rate=rate) as link:
        before = time.monotonic()
        threads = []
        for _ in range(clients):

            def fetch() -> None:
                with _connected(link) as client:
                    _ask(client, size)

            threads.append(threading.Thread(target=fetch))
            threads[-1].start()
        for thread in threads:
            thread.join()
        assert time.monotonic() - before >= 0.95 * size * clients / rate


def test_a_leaving_client_ends_only_its_own_connection(server: str) -> None:
    with Link(server, rtt=0.02, rate=20e6) as link, _connected(link) as stays:
        with _connected(link) as leaves:
            leaves.sendall((2**24).to_bytes(_SIZE))
            leaves.recv(1)
        assert _ask(stays, 100_000) == _bytes(100_000)


def test_without_a_server_the_connection_is_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with Link(f"127.0.0.1:{port}") as link, _connected(link) as client, suppress(ConnectionResetError):
        assert client.recv(1) == b""


def test_the_lane_keeps_its_rate_for_every_reader() -> None:
    now = 0.0
    lane = Lane(1000.0, lambda: now)
    times = [lane.leave(100) for _ in range(5)]
    assert times[0] == pytest.approx(0.1)
    assert [later - sooner for sooner, later in pairwise(times)] == pytest.approx([0.1] * 4)
    now = 100.0  # unused rate is lost
    assert lane.leave(100) == pytest.approx(100.1)
    assert Lane(None, lambda: now).leave(10**9) == now


def test_only_dependent_requests_count_as_round_trips() -> None:
    trips = RoundTrips(1.0)
    for at in (0.0, 0.3, 0.9):  # before any answer
        trips.sending(at)
    assert trips.count == 1
    trips.sending(1.0)
    trips.sending(1.9)
    assert trips.count == 2
    trips.sending(5.0)
    assert trips.count == 3
