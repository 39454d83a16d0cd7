"""Images a second through StreamingDataLoader to the device, by the number of threads and workers, in batches of 64."""

from __future__ import annotations

import time
from itertools import islice
from typing import Any

import mdsx
from tools.device.data import HEIGHT, WIDTH, Bench
from tools.device.run import attempt

_BATCH = 64
_SIZES: dict[str, Any] = {f"{HEIGHT} x {WIDTH}": (HEIGHT, WIDTH), "224": 224}


def part(bench: Bench) -> dict[str, Any]:
    some = [2] if bench.small else [1, 4, 8, 16]
    ways = {f"{count} threads": {"num_threads": count} for count in some}
    ways |= {f"{count} workers": {"num_workers": count} for count in ([2] if bench.small else [4, 16])}
    found = {way: attempt(_row, bench, "cpu", options) for way, options in ways.items()}
    if bench.device.type == "cuda":
        for way in (f"{some[0]} threads", f"{some[1]} threads", "4 workers"):
            found[f'Image(device="cuda"), {way}'] = attempt(_row, bench, "cuda", ways[way])
    return found


def _row(bench: Bench, device: Any, options: dict[str, Any]) -> dict[str, Any]:
    return {f"{name}, images/s": _rate(bench, size, device, options) for name, size in _SIZES.items()}


def _rate(bench: Bench, size: Any, device: Any, options: dict[str, Any]) -> float:
    """Return images a second once all threads or workers have made a batch."""
    decode = {"image": mdsx.Image(size=size, layout="CHW", device=device)}
    loader = bench.loader("jpegs", data={"decode": decode}, batch_size=_BATCH, device=bench.device, **options)
    batches = iter(loader)
    ahead = max(options.get("num_threads", 1), options.get("num_workers", 1))
    for _ in islice(batches, ahead + 2):
        pass
    bench.synchronize()
    since, count = time.perf_counter(), 0
    until = since + (0.2 if bench.small else 1.2)
    while time.perf_counter() < until:
        next(batches)
        count += 1
    bench.synchronize()
    return count * _BATCH / (time.perf_counter() - since)
