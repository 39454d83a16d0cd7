"""Packed rows and length-bounded batches of texts of many lengths: against rows of one length."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

import mdsx
from tools.bench import measure
from tools.bench.measure import Figures
from tools.bench.subject import Goal, Subject
from tools.bench.subjects import alone, call

ROWS, LENGTH = 8, 4096
_MEDIAN, _SIGMA = 600, 1.0  # of the lengths, log-normal
_TOKENS = 50_000_000
_BATCHINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "packed": ("Pack", {}),
    "packed, int64": ("Pack", {"dtypes": {"tokens": "int64"}}),
    "packed, flat": ("Pack", {"layout": "flat"}),
    "concatenated": ("Pack", {"kind": "concat"}),
    "concatenated, labels and ends": ("Pack", {"kind": "concat", "labels": True, "end": 0}),
    "max tokens": ("MaxTokens", {}),
}


def subjects(scale: float) -> list[Subject]:
    tokens = max(int(_TOKENS * scale), 20 * ROWS * LENGTH)
    fixed, texts = (call(prepare_texts, tokens=tokens, fixed=fixed) for fixed in (True, False))
    found = [alone("mdsx", "fixed rows", read, fixed, batching=None)]
    found += [alone("mdsx", name, read, texts, batching=name) for name in _BATCHINGS]
    return [
        Subject(
            name="packed-rows",
            title=f"tokens: {ROWS} rows of {LENGTH} for each batch, packed or of one length",
            figure="tokens/s",
            more=("fill", "CPU ns/token"),
            contestants=found,
            goals=[
                Goal("packed rows: half the tokens of fixed rows", "packed", ("fixed rows",), at_least=0.5),
                Goal("packed rows: 99.5 % full", "packed", at_least=0.995, figure="fill"),
                Goal("concatenated rows: as fast as packed ones", "concatenated", ("packed",), at_least=1),
                Goal("concatenated rows: 99.9 % full", "concatenated", at_least=0.999, figure="fill"),
                Goal("length-bounded batches: 94 % full", "max tokens", at_least=0.94, figure="fill"),
            ],
            note=f"Lengths are log-normal (median {_MEDIAN}, sigma {_SIGMA:g}), at most {LENGTH}. Packed rows have "
            f"`segment_ids` and `position_ids`. Length-bounded batches are of {ROWS * LENGTH} tokens.",
        )
    ]


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
