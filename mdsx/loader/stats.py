"""The statistics of a loader: totals, their differences, and one line of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

from mdsx.base.process import Counter
from mdsx.base.sizes import format_size
from mdsx.loader.components import ComponentCounts
from mdsx.stream import Meter

_SHOWN = 8  # components
_LATEST = {"sample_bytes", "in_flight", "order_hash"}  # not totals: a difference has the later value


@dataclass(frozen=True, slots=True)
class Stats:
    """Statistics of a loader on this rank, in all its processes, since it was made. `loader.stats()` returns them.

    The difference of two shows what happened in between:

        before = loader.stats()
        ...
        print(loader.stats() - before)  # 5,210 samples/s, 42.7 MB/s, waiting 3%, ...

    If `wait_fraction` is near 0, data is not the bottleneck: batches are ready when the training asks for them. If it
    is near 1, the training waits for data.

    Attributes:
        seconds: Seconds since the first batch was requested.
        waited: Seconds in which `next()` waited for a batch, or for workers to start.
        batches: Batches returned.
        samples: Samples in these batches.
        skipped: Samples that on_error="skip" left out of them. Prefetched batches do not count.
        sample_bytes: Average uncompressed bytes of a sample, over the samples read so far.
        bytes_read: Uncompressed bytes of the samples read, also for prefetched batches. Each sample counts with its
            shard's average.
        bytes_from_cache: The part of `bytes_read` that came from shards in the cache.
        bytes_downloaded: Bytes received from storage, as stored there (maybe compressed).
        in_flight: Storage reads in flight now: whole shards, and byte ranges.
        cache_hits: Shards opened that were in the cache already, from an earlier epoch, or another job or rank.
        cache_misses: Shards downloaded into the cache.
        retries: Requests to storage that were sent again.
        evictions: Shards removed from the cache to make room.
        order_hash: A hash of all that determines which samples come in which step: the dataset's fingerprint, seed,
            order, lengths and window of groups, batch size and world size. It must be equal on all ranks. Empty before
            the first batch.
        components: For a mixture, the samples of each component in the batches returned, by name. Skipped samples
            count too.
    """

    seconds: float
    waited: float
    batches: int
    samples: int
    skipped: int
    sample_bytes: float
    bytes_read: int
    bytes_from_cache: int
    bytes_downloaded: int
    in_flight: int
    cache_hits: int
    cache_misses: int
    retries: int
    evictions: int
    order_hash: str = field(default="", kw_only=True)
    components: Mapping[str, int] = field(default_factory=dict, kw_only=True)

    @property
    def samples_per_second(self) -> float:
        """Return the samples returned per second."""
        return self._per_second(self.samples)

    @property
    def bytes_per_second(self) -> float:
        """Return the uncompressed bytes of the samples returned, per second."""
        return self.samples_per_second * self.sample_bytes

    @property
    def downloaded_per_second(self) -> float:
        """Return the bytes received from storage per second."""
        return self._per_second(self.bytes_downloaded)

    @property
    def wait_fraction(self) -> float:
        """Return the fraction of time that `next()` waited, 0 to 1."""
        return min(self._per_second(self.waited), 1.0)

    @property
    def hit_rate(self) -> float | None:
        """Return the fraction of shards that were in the cache already, 0 to 1; None if none was needed."""
        shards = self.cache_hits + self.cache_misses
        return self.cache_hits / shards if shards else None

    def __sub__(self, earlier: Stats) -> Stats:
        """Return what happened since `earlier`. `sample_bytes`, `in_flight` and `order_hash` keep their values."""
        before = earlier.components
        components = {name: count - before.get(name, 0) for name, count in self.components.items()}
        return Stats(
            components=components,
            **{
                name: getattr(self, name) if name in _LATEST else getattr(self, name) - getattr(earlier, name)
                for name in (field.name for field in fields(self))
                if name != "components"
            },
        )

    def __str__(self) -> str:
        """Return one line, without figures that are 0."""
        parts = [
            f"{self.samples_per_second:,.0f} samples/s",
            f"{format_size(round(self.bytes_per_second))}/s",
            f"waiting {self.wait_fraction:.0%}",
        ]
        if self.bytes_downloaded:
            parts.append(f"{format_size(round(self.downloaded_per_second))}/s downloaded")
        if (rate := self.hit_rate) is not None:
            parts.append(f"cache hits {rate:.0%}")
        for number, name in (
            (self.in_flight, "in flight"),
            (self.retries, "retried"),
            (self.evictions, "evicted"),
            (self.skipped, "skipped"),
        ):
            if number:
                parts.append(f"{number:,} {name}")
        total = sum(self.components.values())
        parts += [f"{name} {count / total:.0%}" for name, count in self.components.items() if total][:_SHOWN]
        return ", ".join(parts)

    def _per_second(self, total: float) -> float:
        return total / self.seconds if self.seconds > 0 else 0.0


def stats_of(meter: Meter, workers: Sequence[int], order_hash: str, components: ComponentCounts | None = None) -> Stats:
    """Return the statistics of a loader. `workers`: totals over its worker processes, one for each Counter."""
    totals = [sum(pair) for pair in zip(meter.counters.totals, workers, strict=True)]
    return Stats(
        seconds=meter.seconds,
        waited=meter.waiting.seconds,
        batches=meter.batches,
        samples=meter.samples,
        skipped=meter.skipped,
        sample_bytes=totals[Counter.READ_BYTES] / max(totals[Counter.READ_SAMPLES], 1),
        bytes_read=totals[Counter.READ_BYTES],
        bytes_from_cache=totals[Counter.CACHE_BYTES],
        bytes_downloaded=totals[Counter.DOWNLOADED],
        in_flight=totals[Counter.IN_FLIGHT],
        cache_hits=totals[Counter.HITS],
        cache_misses=totals[Counter.MISSES],
        retries=totals[Counter.RETRIES],
        evictions=totals[Counter.EVICTIONS],
        order_hash=order_hash,
        components={} if components is None else components.totals,
    )
