"""A loader's statistics for TensorBoard and Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

from mdsx.base.arguments import check_count

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from mdsx.torch.loader import StreamingDataLoader


class ScalarWriter(Protocol):
    """The method that the SummaryWriters of PyTorch and tensorboardX share."""

    def add_scalar(self, tag: str, scalar_value: Any, global_step: Any = ..., /) -> object: ...


class TensorBoardStats:
    """Writes a loader's statistics to TensorBoard, every `every` steps, for the steps since the last time.

        log = TensorBoardStats(loader, SummaryWriter("runs/7"))
        for step, batch in enumerate(loader):
            ...
            log(step)

    It writes samples and bytes per second, the fraction of time that the training waited for data, bytes downloaded per
    second, the cache's hit rate, and the numbers of retries, evictions and skipped samples since the start. For a
    mixture, it also writes each component's share of the samples, `component/<name>`.

    Args:
        loader: The loader.
        writer: Anything with `add_scalar(tag, value, step)`, such as PyTorch's SummaryWriter.
        every: Steps between two writes.
        prefix: The prefix of the tags.
    """

    def __init__(
        self, loader: StreamingDataLoader, writer: ScalarWriter, *, every: int = 100, prefix: str = "data/"
    ) -> None:
        check_count("every", every)
        self._loader, self._writer, self._every, self._prefix = loader, writer, every, prefix
        self._before = loader.stats()
        self._calls = 0

    def __call__(self, step: int) -> None:
        """Note that `step` is done. Every `every`-th call writes."""
        self._calls += 1
        if self._calls % self._every:
            return
        now = self._loader.stats()
        recent, self._before = now - self._before, now
        values: dict[str, float | None] = {
            "samples_per_second": recent.samples_per_second,
            "bytes_per_second": recent.bytes_per_second,
            "wait_fraction": recent.wait_fraction,
            "downloaded_bytes_per_second": recent.downloaded_per_second,
            "hit_rate": recent.hit_rate,
            "retries": now.retries,
            "evictions": now.evictions,
            "skipped_samples": now.skipped,
        }
        handed_out = sum(recent.components.values())
        for name, count in recent.components.items():
            values[f"component/{name}"] = count / handed_out if handed_out else None
        for name, value in values.items():
            if value is not None:
                self._writer.add_scalar(self._prefix + name, value, step)


_COUNTERS = {
    "seconds": ("mdsx_seconds", "Seconds since the first batch was requested."),
    "waited": ("mdsx_wait_seconds", "Seconds in which the training waited for a batch."),
    "batches": ("mdsx_batches", "Batches returned."),
    "samples": ("mdsx_samples", "Samples returned."),
    "skipped": ("mdsx_skipped_samples", "Samples left out because they are damaged or their transform raised."),
    "bytes_read": ("mdsx_read_bytes", "Uncompressed bytes of the samples read for batches."),
    "bytes_from_cache": ("mdsx_cache_read_bytes", "Bytes of these samples that were read from shards in the cache."),
    "bytes_downloaded": ("mdsx_downloaded_bytes", "Bytes received from storage."),
    "cache_hits": ("mdsx_cache_hits", "Shards opened that were in the cache already."),
    "cache_misses": ("mdsx_cache_misses", "Shards downloaded into the cache."),
    "retries": ("mdsx_retries", "Requests to storage that were sent again."),
    "evictions": ("mdsx_evictions", "Shards removed from the cache to make room."),
}


class PrometheusStats:
    """The statistics of loaders as a collector of `prometheus_client`, which reads them at each scrape.

        from prometheus_client import REGISTRY, start_http_server

        REGISTRY.register(PrometheusStats(train=loader))
        start_http_server(9100 + local_rank)

    It needs `pip install 'mdsx[prometheus]'`. Each metric (`mdsx_samples_total`, `mdsx_wait_seconds_total`,
    `mdsx_reads_in_flight`, ...) has the labels `loader`, the name given here, and `rank`.
    `mdsx_component_samples_total`, for mixtures, also has `component`. The fraction of time that the training waits is
    `rate(mdsx_wait_seconds_total[5m])`.

    Args:
        loaders: The loaders, by name.
    """

    def __init__(self, **loaders: StreamingDataLoader) -> None:
        try:
            import prometheus_client  # noqa: F401  to say what is missing
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError("PrometheusStats needs: pip install 'mdsx[prometheus]'") from error
        self._loaders = loaders

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics for prometheus_client."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        labels = ["loader", "rank"]
        found = [
            ([name, str(loader._reading.spec.ranks.part[0])], loader.stats()) for name, loader in self._loaders.items()
        ]
        for field, (name, text) in _COUNTERS.items():
            counter = CounterMetricFamily(name, text, labels=labels)
            for values, stats in found:
                counter.add_metric(values, getattr(stats, field))
            yield counter
        gauge = GaugeMetricFamily("mdsx_reads_in_flight", "Storage reads in flight.", labels=labels)
        for values, stats in found:
            gauge.add_metric(values, stats.in_flight)
        yield gauge
        of_components = CounterMetricFamily(
            "mdsx_component_samples",
            "Samples returned from each component of a mixture.",
            labels=[*labels, "component"],
        )
        for values, stats in found:
            for name, count in stats.components.items():
                of_components.add_metric([*values, name], count)
        yield of_components
