"""A server of S3 that counts what it sends: requests and bytes, by object and by kind."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from tools.fault_proxy import Exchange, Proxy, Reply
from tools.servers.process import Server

_REFUSED = 500


@dataclass
class Sent:
    """What was sent of an object. `whole`: by requests without an end, which read a whole object or the rest of it."""

    whole: int = 0
    whole_bytes: int = 0
    ranges: int = 0
    range_bytes: int = 0


@dataclass
class Sums:
    """Requests that were answered, and those that were refused (status 5xx)."""

    answered: int = 0
    refused: int = 0
    times: list[float] = field(default_factory=list)  # of the answers, by the monotonic clock
    objects: dict[str, Sent] = field(default_factory=dict)

    def of(self, suffix: str) -> list[Sent]:
        """Return what was sent of the objects whose keys end with `suffix`."""
        return [sent for key, sent in self.objects.items() if key.endswith(suffix)]


class CountingProxy(Proxy):
    """The proxy, with `sums` of its answers."""

    def __init__(self, server: Server, *, seed: int = 0) -> None:
        super().__init__(server, seed=seed)
        self.sums = Sums()
        self._counting = threading.Lock()

    def answered(self, exchange: Exchange, reply: Reply) -> None:
        sums, size = self.sums, len(reply.body)
        with self._counting:
            if reply.status >= _REFUSED:
                sums.refused += 1
                return
            sums.answered += 1
            sums.times.append(time.monotonic())
            if exchange.command != "GET":
                return
            sent = sums.objects.setdefault(exchange.key, Sent())
            if exchange.range and not exchange.range.endswith("-"):
                sent.ranges, sent.range_bytes = sent.ranges + 1, sent.range_bytes + size
            else:
                sent.whole, sent.whole_bytes = sent.whole + 1, sent.whole_bytes + size
