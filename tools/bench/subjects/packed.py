"""Packed rows and length-bounded batches of texts of many lengths: against rows of one length, and their planning."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

import mdsx
from tools.bench import measure
from tools.bench.measure import Figures, timed
from tools.bench.subject import Contestant, Goal, Subject
from tools.bench.subjects import alone, call

ROWS, LENGTH, LONG = 8, 4096, 131_072
_MEDIAN, _SIGMA = 600, 1.0  # of the lengths, log-normal
_TOKENS = 50_000_000
_SAMPLES = 2_000_000  # to plan
_BATCHINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "packed": ("Pack", {}),
    "packed, int64": ("Pack", {"dtypes": {"tokens": "int64"}}),
    "packed, flat": ("Pack", {"layout": "flat"}),
    "max tokens": ("MaxTokens", {}),
}


def subjects(scale: float) -> list[Subject]:
    return [_rows(max(int(_TOKENS * scale), 20 * ROWS * LENGTH)), _planning(max(int(_SAMPLES * scale), 20_000))]


def _rows(tokens: int) -> Subject:
    fixed, texts = (call(prepare_texts, tokens=tokens, fixed=fixed) for fixed in (True, False))
    found = [alone("mdsx", "fixed rows", read, fixed, batching=None)]
    found += [alone("mdsx", name, read, texts, batching=name) for name in _BATCHINGS]
    return Subject(
        name="packed-rows",
        title=f"tokens: {ROWS} rows of {LENGTH} for each batch, packed or of one length",
        figure="tokens/s",
        more=("fill", "CPU ns/token"),
        contestants=found,
        goals=[
            Goal("packed rows: half the tokens of fixed rows", "packed", ("fixed rows",), at_least=0.5),
            Goal("packed rows: 99.5 % full", "packed", at_least=0.995, figure="fill"),
            Goal("length-bounded batches: 94 % full", "max tokens", at_least=0.94, figure="fill"),
        ],
        note=f"Lengths are log-normal (median {_MEDIAN}, sigma {_SIGMA:g}), at most {LENGTH}. Packed rows come with "
        f"`segment_ids` and `position_ids`. Length-bounded batches are of {ROWS * LENGTH} tokens.",
    )


def _planning(samples: int) -> Subject:
    found: list[Contestant] = []
    lengths = call(prepare_lengths, samples=samples)
    for lanes in (8, 512):
        for capacity in (LENGTH, LONG):
            name = f"packed, L = {capacity:,}, {lanes} lanes"
            found.append(alone("mdsx", name, plan, lengths, batching="Pack", capacity=capacity, lanes=lanes))
        name = f"max tokens, L = 65,536, {lanes} lanes"
        found.append(alone("mdsx", name, plan, lengths, batching="MaxTokens", capacity=65_536, lanes=lanes))
    return Subject(
        name="packed-planning",
        title="Planning the groups of an epoch, from lengths that are kept",
        more=("fill", "first plan s"),
        contestants=found,
        goals=[
            Goal(f"{each.name}: 1,000,000 samples/s", each.name, at_least=1e6)
            for each in found
            if each.name.startswith("packed")
        ],
        note="The first plan also reads the lengths from the rows of the samples.",
    )


def _lengths(count: int) -> NDArray[np.int64]:
    drawn = np.random.default_rng(7).lognormal(np.log(_MEDIAN), _SIGMA, count)
    return np.clip(drawn, 1, LENGTH).astype(np.int64)


def prepare_texts(data: str, tokens: int, fixed: bool) -> Figures:
    """As many random tokens, in rows of one length or in texts."""
    draw = np.random.default_rng(3)
    kind = f"uint16[{LENGTH}]" if fixed else "uint16[*]"
    lengths = np.full(tokens // LENGTH, LENGTH) if fixed else _lengths(tokens // 800)
    with mdsx.Writer(data, {"tokens": kind}) as out:
        for length in lengths.tolist():
            out.write({"tokens": draw.integers(0, 50_000, length, np.uint16)})
    return {}


def prepare_lengths(data: str, samples: int) -> Figures:
    """Samples that have only a length."""
    with mdsx.Writer(data, {"length": "uint32"}) as out:
        out.write_batch({"length": _lengths(samples).astype(np.uint32)})
    return {}


def read(data: str, batching: str | None) -> Figures:
    """Read epochs for some seconds after the first one, which is a warm-up."""
    from mdsx.torch import StreamingDataLoader, StreamingDataset

    dataset = StreamingDataset(data, seed=7)
    if batching is None:
        loader = StreamingDataLoader(dataset, batch_size=ROWS)
    else:
        name, arguments = _BATCHINGS[batching]
        capacity = LENGTH if name == "Pack" else ROWS * LENGTH
        layout = getattr(mdsx, name)(capacity, length="tokens", **arguments)
        loader = StreamingDataLoader(dataset, ROWS if name == "Pack" else None, batching=layout)
    for _ in loader:
        pass
    tokens = places = 0
    started, before = time.perf_counter(), time.process_time()
    while time.perf_counter() - started < measure.SECONDS or not tokens:
        for batch in loader:
            tokens += batch.get("global_tokens", ROWS * LENGTH)
            places += batch["tokens"].numel()
    took, busy = time.perf_counter() - started, time.process_time() - before
    return {"tokens/s": tokens / took, "fill": tokens / places, "CPU ns/token": busy / tokens * 1e9}


def plan(data: str, batching: str, capacity: int, lanes: int) -> Figures:
    """Plan two epochs; the first plan also reads the lengths."""
    from mdsx.torch import StreamingDataLoader, StreamingDataset

    dataset = StreamingDataset(data, seed=7, shuffle=mdsx.Shuffle(lanes=lanes))
    layout = getattr(mdsx, batching)(capacity, length="length")
    loader = StreamingDataLoader(dataset, ROWS if batching == "Pack" else None, batching=layout)
    _, first = timed(lambda: loader.plan(0))
    found, took = timed(lambda: loader.plan(1))
    return {"samples/s": found.samples / took, "fill": found.fill, "first plan s": first}
