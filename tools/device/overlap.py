"""How much of the time of copies to the device is beside kernels, from a trace of the profiler."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import torch

from tools.device.data import Bench
from tools.device.run import attempt

Span = tuple[float, float]


def part(bench: Bench) -> dict[str, Any]:
    ways: dict[str, dict[str, Any]] = {
        'device="cuda"': {"device": bench.device},
        'batch.to("cuda")': {},
        "pin_memory, non_blocking": {"pin_memory": True},
    }
    found: dict[str, Any] = {}
    for waits in (False, True):
        for name, options in ways.items():
            found[f"{name}{', waiting for each loss' if waits else ''}"] = attempt(_measured, bench, options, waits)
    found["pinning a batch, ms"] = attempt(_pinning, bench)
    return found


def _measured(bench: Bench, options: dict[str, Any], waits: bool) -> dict[str, Any]:
    loader = bench.loader("images", num_threads=4, **options)
    batches, weight = _endless(loader), torch.randn(3 * 224, 2048, device=bench.device, dtype=torch.bfloat16)
    square = torch.randn(2048, 2048, device=bench.device, dtype=torch.bfloat16)

    def steps(count: int) -> float:
        since = time.perf_counter()
        for _ in range(count):
            _step(bench, next(batches), weight, square, options, waits)
        bench.synchronize()
        return (time.perf_counter() - since) / count * 1e3

    count = 2 if bench.small else 15
    steps(count)
    before = loader.stats()
    milliseconds = steps(2 * count)
    spent = loader.stats() - before
    found = {"ms a step": milliseconds, "waiting ms": spent.waited / max(spent.batches, 1) * 1e3}
    if bench.device.type == "cuda":
        found.update(_traced(bench, lambda: steps(count)))
    return found


def _step(
    bench: Bench, batch: Any, weight: torch.Tensor, square: torch.Tensor, options: dict[str, Any], waits: bool
) -> None:
    """Some 10 ms of an H100: products of the images."""
    image = batch["image"]
    if "device" not in options:
        image = image.to(bench.device, non_blocking="pin_memory" in options)
    rows = image.to(torch.bfloat16).permute(0, 2, 1, 3).reshape(-1, 3 * 224)
    hidden = rows @ weight
    for _ in range(1 if bench.small else 10):
        hidden = torch.relu(hidden @ square) * 0.01
    loss = hidden.float().mean()
    if waits:
        loss.item()


def _endless(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


def _traced(bench: Bench, work: Any) -> dict[str, Any]:
    """Return the time of copies to the device, and the share of it in which a kernel ran."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
        work()
    path = bench.folder / "trace.json"
    profiled.export_chrome_trace(str(path))
    events = json.loads(path.read_text())["traceEvents"]
    spans = [(each.get("cat"), each["name"], float(each["ts"]), float(each["ts"]) + float(each["dur"]))
             for each in events if each.get("ph") == "X" and "dur" in each]  # fmt: skip
    kernels = united([(start, stop) for kind, _, start, stop in spans if kind == "kernel"])
    copies = [(start, stop) for kind, name, start, stop in spans if kind == "gpu_memcpy" and "HtoD" in name]
    copies = [(start, stop) for start, stop in copies if stop - start > 50]  # microseconds: those of images
    if not kernels or not copies:
        raise AssertionError(f"the trace has {len(kernels)} spans of kernels and {len(copies)} copies of images")
    total = sum(stop - start for start, stop in copies)
    beside = sum(shared(each, kernels) for each in copies)
    busy = sum(stop - start for start, stop in kernels) / (kernels[-1][1] - kernels[0][0])
    return {"copy ms": total / len(copies) / 1e3, "beside kernels": beside / total, "kernels' share": busy}


def united(spans: list[Span]) -> list[Span]:
    """Return spans that do not overlap, in order, which cover the same."""
    found = list[Span]()
    for start, stop in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(stop, found[-1][1])
        else:
            found.append((start, stop))
    return found


def shared(span: Span, others: list[Span]) -> float:
    """Return how much of a span others cover, which do not overlap."""
    start, stop = span
    return sum(max(0.0, min(stop, end) - max(start, begin)) for begin, end in others)


def _pinning(bench: Bench) -> dict[str, Any]:
    """Copies to pinned memory: with all of PyTorch's threads for operations, and with one."""
    if bench.device.type != "cuda":
        return {}
    batch, found, threads = torch.zeros(bench.batch, 3, 224, 224, dtype=torch.uint8), {}, torch.get_num_threads()
    for count in (threads, 1):
        torch.set_num_threads(count)
        for _ in range(3):
            batch.pin_memory()
        since = time.perf_counter()
        for _ in range(20):
            batch.pin_memory()
        found[f"{count} threads"] = (time.perf_counter() - since) / 20 * 1e3
    torch.set_num_threads(threads)
    return found
