"""The faults, and which loaders meet them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tools.conformance.matrix import EVEN
from tools.fault_proxy import Fault, cut, reset, status

DATA = EVEN
REMOTE = ("mdsx", "mosaicml", "litdata", "webdataset")
"""The loaders that read from object storage here. Of the others, one has no client, and one's is another package."""

NAMES = (*REMOTE, "huggingface", "grain")
LIMIT = 120.0  # seconds: mosaicml gives a shard 60


@dataclass(frozen=True)
class Case:
    """A fault. `where`: what is damaged or killed. A `fault` of the storage meets `times` requests of a shard.

    A case runs twice, in fresh processes: with the fault, and again when it is over, with the cache or the dataset that
    the first run left.
    """

    name: str
    title: str
    where: Literal["storage", "stored", "transit", "cached", "worker", "writer"]
    fault: Fault | None = None
    times: int | None = None
    deed: Literal["", "raise", "kill"] = ""

    def loaders(self) -> tuple[str, ...]:
        if self.where in ("storage", "transit", "cached"):
            return REMOTE
        return tuple(name for name in NAMES if name != "huggingface" or self.where != "writer")


CASES = (
    Case("stored", "a bit flipped in a stored shard", "stored"),
    Case("transit", "a bit flipped on the way, once", "transit", times=1),
    Case("cached", "a bit flipped in the copy that an earlier run cached", "cached"),
    Case("missing", "a shard is not there (404)", "storage", status(404, "NoSuchKey")),
    Case("busy", "503 SlowDown, twice", "storage", status(503, "SlowDown"), 2),
    Case("reset", "connection reset within a shard, once", "storage", reset(0.5), 1),
    Case("cut", "a shard's body ends early, once", "storage", cut(0.5), 1),
    Case("worker", "SIGKILL of a worker process", "worker"),
    Case("writer-error", "an exception while a dataset is written", "writer", deed="raise"),
    Case("writer-killed", "SIGKILL while a dataset is written", "writer", deed="kill"),
)
