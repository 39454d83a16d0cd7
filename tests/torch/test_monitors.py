"""TensorBoard and Prometheus show a loader's statistics; so does its progress line. Each with the real library."""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest
from tensorboardX import SummaryWriter
from tensorboardX.proto.event_pb2 import Event

import mdsx
from mdsx.torch import PrometheusStats, StreamingDataLoader, StreamingDataset, TensorBoardStats
from tests.terminal import terminal

N, BATCH = 1003, 16
OPERATIONS = (Path(mdsx.__file__).parent.parent / "docs" / "operations.md").read_text(encoding="utf-8")


def loader(url: str, **options: Any) -> StreamingDataLoader:
    return StreamingDataLoader(StreamingDataset(url, shuffle=False), BATCH, **options)


def events(folder: Path) -> Iterator[Any]:
    """Yield the events in TensorBoard's file: records of length, checksum, bytes, checksum."""
    (file,) = folder.iterdir()
    data, start = file.read_bytes(), 0
    while start < len(data):
        (size,) = struct.unpack_from("<Q", data, start)
        yield Event.FromString(data[start + 12 : start + 12 + size])
        start += 16 + size


def test_tensorboard_gets_the_statistics_of_the_last_steps(local_url: str, tmp_path: Path) -> None:
    batches = loader(local_url)
    with SummaryWriter(str(tmp_path)) as writer:
        log = TensorBoardStats(batches, writer, every=20, prefix="read/")
        for step, _ in enumerate(batches, start=1000):
            log(step)
    found = [(event.step, value.tag, value.simple_value) for event in events(tmp_path) for value in event.summary.value]
    steps = [1019, 1039, 1059]
    assert sorted({step for step, *_ in found}) == steps
    by_tag = {tag: [value for _, name, value in found if name == tag] for _, tag, _ in found}
    assert set(by_tag) == {
        f"read/{name}"
        for name in (
            "samples_per_second", "bytes_per_second", "wait_fraction", "downloaded_bytes_per_second", "retries",
            "evictions", "skipped_samples",
        )
    }  # fmt: skip  # no hit rate: nothing goes through the cache
    assert all(rate > 0 for rate in by_tag["read/samples_per_second"])
    assert all(0 <= part <= 1 for part in by_tag["read/wait_fraction"])


@pytest.mark.parametrize("every", [0, True, 1.5])
def test_tensorboard_steps_must_be_a_number(every: Any, local_url: str) -> None:
    with pytest.raises(mdsx.UsageError, match="every must be"):
        TensorBoardStats(loader(local_url), None, every=every)  # type: ignore[arg-type]


def test_prometheus_reads_the_totals_of_each_loader_at_each_scrape(local_url: str) -> None:
    train, evaluation = loader(local_url), loader(local_url, drop_last=False)
    registry = CollectorRegistry()
    registry.register(PrometheusStats(train=train, eval=evaluation))

    def value(name: str, of: str) -> float | None:
        return registry.get_sample_value(name, {"loader": of, "rank": "0"})

    assert value("mdsx_samples_total", "train") == 0
    for _ in train:
        pass
    next(iter(evaluation))
    assert value("mdsx_samples_total", "train") == N - N % BATCH
    assert value("mdsx_samples_total", "eval") == BATCH
    assert value("mdsx_batches_total", "train") == N // BATCH
    assert value("mdsx_reads_in_flight", "train") == 0
    text = generate_latest(registry).decode()
    assert 'mdsx_wait_seconds_total{loader="train",rank="0"}' in text
    names = {line.split("{")[0] for line in text.splitlines() if not line.startswith("#")}
    assert len(names) == 13  # each field of Stats but sample_bytes


def test_opentelemetry_gets_the_totals_with_the_code_of_the_page(local_url: str) -> None:
    reader, batches = InMemoryMetricReader(), loader(local_url)
    metrics.set_meter_provider(MeterProvider(metric_readers=[reader]))
    (code,) = re.findall(r"^```python\n(from opentelemetry.*?)^```$", OPERATIONS, re.MULTILINE | re.DOTALL)
    exec(code, {"loader": batches, "rank": 0})
    for _ in batches:
        pass
    collected = reader.get_metrics_data()
    assert collected is not None
    found: Any = {
        metric.name: (metric.unit, *metric.data.data_points)
        for resource in collected.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    unit, point = found["mdsx.samples"]
    assert (unit, point.value, dict(point.attributes)) == ("{sample}", N - N % BATCH, {"rank": 0})
    assert found["mdsx.waited"][1].value > 0
    assert len(found) == 9


def test_prometheus_is_named_if_it_is_missing(local_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'mdsx\[prometheus\]'"):
        PrometheusStats(train=loader(local_url))


@pytest.mark.parametrize("workers", [0, 2])
def test_progress_is_one_line_for_each_epoch(workers: int, local_url: str) -> None:
    with terminal() as sent:
        batches = loader(local_url, progress=True, num_workers=workers)
        for _ in range(2):
            for _ in batches:
                pass
    lines = "".join(sent).split("\r\n")
    assert len(lines) == 3
    assert not lines[2]
    for epoch, line in enumerate(lines[:2]):
        rates = r"[\d,]+ samples/s, [\d.]+ .?B/s, waiting \d+%"
        assert re.fullmatch(f"epoch {epoch}: 62/62 batches, {rates} *", line.rpartition("\r")[2])


def test_progress_ends_the_line_when_a_pass_is_left(local_url: str) -> None:
    with terminal() as sent:
        for _ in loader(local_url, progress=True):
            break
    assert "epoch 0: 1/62 batches" in "".join(sent).splitlines()[-1]


def test_only_rank_0_shows_progress(local_url: str) -> None:
    data = StreamingDataset(local_url, rank=1, world_size=2)
    with terminal() as sent:
        for _ in StreamingDataLoader(data, BATCH, progress=True):
            pass
    assert not sent


def test_monitors_show_the_components_of_a_mixture(local_url: str, tmp_path: Path) -> None:
    mixture = mdsx.Mixture({"a": (local_url, 0.75), "b": (local_url, 0.25)})
    batches = StreamingDataLoader(StreamingDataset(mixture), BATCH)
    registry = CollectorRegistry()
    registry.register(PrometheusStats(train=batches))
    with SummaryWriter(str(tmp_path)) as writer:
        log = TensorBoardStats(batches, writer, every=60)
        for step, _ in enumerate(batches):
            log(step)
    values = {value.tag: value.simple_value for event in events(tmp_path) for value in event.summary.value}
    assert values["data/component/a"] == pytest.approx(0.75, abs=0.01)
    assert values["data/component/b"] == pytest.approx(0.25, abs=0.01)
    for name, count in batches.stats().components.items():
        labels = {"loader": "train", "rank": "0", "component": name}
        assert registry.get_sample_value("mdsx_component_samples_total", labels) == count > 0
