"""A simulation's results as plain values, which the terminal, `--json` and the page show without computing anything.

Bytes are stored bytes that cross the link, times are simulated seconds, and money is in the unit of the price table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Traffic:
    """A node's traffic from storage.

    Attributes:
        bytes: Bytes received.
        requests: Requests made.
        shards: Shards fetched whole, counted each time.
        samples: Samples fetched by byte range.
        minimum: Bytes of the shards that the node reads, each fetched once.
        ahead: Bytes of shards for the next epoch that were fetched already.
    """

    bytes: int
    requests: int
    shards: int
    samples: int
    minimum: int
    ahead: int

    @property
    def duplication(self) -> float:
        """Return the bytes relative to the minimum: 1.0 is the best."""
        return (self.bytes - self.ahead) / self.minimum if self.minimum else 0.0


@dataclass(frozen=True, slots=True)
class Epoch:
    """One simulated stretch of an epoch on one node.

    Attributes:
        node: Its number.
        epoch: The epoch's number.
        steps: How many steps were simulated.
        traffic: The traffic from storage for them.
        first_batch: Seconds from the start to the first batch of the node's slowest rank.
        waiting_steps: Steps that waited for data.
        waited: Seconds that they waited.
        seconds: How long all steps took, including waits.
        peak_cache: The most bytes that the node's cache held.
    """

    node: int
    epoch: int
    steps: int
    traffic: Traffic
    first_batch: float
    waiting_steps: int
    waited: float
    seconds: float
    peak_cache: int


@dataclass(frozen=True, slots=True)
class Series:
    """One node over time: each list has one value for each of `seconds`.

    Attributes:
        node: Its number.
        seconds: float, ascending.
        downloaded: Bytes received by then.
        cached: Bytes in the cache at that time.
        waited: Seconds that the node's slowest rank had waited by then.
    """

    node: int
    seconds: Sequence[float]
    downloaded: Sequence[int]
    cached: Sequence[int]
    waited: Sequence[float]


@dataclass(frozen=True, slots=True)
class Whole:
    """All nodes and one whole epoch: exact, or scaled up from the simulated part.

    Attributes:
        exact: Whether every step of every node was simulated.
        share: The simulated share of the epoch's steps on all nodes, 0 to 1.
        error: The standard error of `bytes`, relative; 0 if exact.
        bytes: Bytes from storage on all nodes.
        requests: Requests of all nodes.
        ahead: The part of `bytes` that is for the next epoch.
        minimum: The bytes if each node fetched each of its shards once.
        dataset: Bytes of the dataset.
        cache_needed: The bytes that a node's cache needs to fetch no shard twice in an epoch.
        first_batch: Seconds to the first batch.
        waiting_share: The share of steps that wait for data.
        waited: Seconds that an epoch's steps wait.
        seconds: Seconds that an epoch takes.
    """

    exact: bool
    share: float
    error: float
    bytes: int
    requests: int
    ahead: int
    minimum: int
    dataset: int
    cache_needed: int
    first_batch: float
    waiting_share: float
    waited: float
    seconds: float

    @property
    def duplication(self) -> float:
        """Return the bytes relative to the minimum: 1.0 is the best."""
        return (self.bytes - self.ahead) / self.minimum if self.minimum else 0.0


@dataclass(frozen=True, slots=True)
class Resume:
    """A run that continues, in the middle of an epoch, on another number of nodes.

    Attributes:
        nodes: The nodes afterwards.
        world_size: The ranks afterwards.
        bytes: Bytes that all nodes fetch to the epoch's end if old nodes keep their caches.
        cold_bytes: The same if every node starts with an empty cache.
        first_batch: Seconds to the first batch.
        waited: Seconds that the simulated steps wait.
    """

    nodes: int
    world_size: int
    bytes: int
    cold_bytes: int
    first_batch: float
    waited: float


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of an epoch, by the user's price table.

    Attributes:
        requests: Money for requests.
        egress: Money for bytes out of storage.
        per_thousand_requests: Price.
        per_gigabyte: Price of 10^9 bytes.
        currency: Unit of money, as the user named it.
    """

    requests: float
    egress: float
    per_thousand_requests: float
    per_gigabyte: float
    currency: str


@dataclass(frozen=True, slots=True)
class Report:
    """A whole simulation.

    Attributes:
        settings: What was simulated: every input by its option's name, and derived values (samples, shards, bytes).
        whole: An epoch of all nodes.
        epochs: The simulated stretches, by node and epoch.
        series: The simulated nodes over time.
        resume: The run after the change of the world size, if one was requested.
        cost: The cost, by the price table.
        quality: How well the order shuffles, as quality.py describes it.
        advice: Which cache, lanes and block to use, as advice.py describes it.
        busiest: The busiest rank's cost over the mean of all ranks, in a `step` and in a `micro_batch`, and the same
            without balance. Empty without `balance`.
        notes: What the reader must know: what was sampled, and what was assumed.
    """

    settings: Mapping[str, Any]
    whole: Whole
    epochs: Sequence[Epoch]
    series: Sequence[Series]
    resume: Resume | None
    cost: Cost
    quality: Mapping[str, Any]
    advice: Mapping[str, Any]
    notes: Sequence[str]
    busiest: Mapping[str, Any] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """Return the report as plain values, with its version first."""
        plain = asdict(self)
        plain["whole"]["duplication"] = self.whole.duplication
        for epoch, found in zip(plain["epochs"], self.epochs, strict=True):
            epoch["traffic"]["duplication"] = found.traffic.duplication
        return {"mdsx_simulation": 1, **plain}

    def as_json(self) -> str:
        """Return the report as one JSON object."""
        return json.dumps(self.plain(), indent=1)
