"""Packed rows and length-bounded batches of texts of many lengths: against rows of one length, and peers that pack."""

from __future__ import annotations

import time
from typing import Any

import mdsx
from tools.bench import measure
from tools.bench.measure import Figures
from tools.bench.subject import Subject
from tools.bench.subjects import Workload, alone, call, prepare, reads
from tools.peers import Peer, Reading
from tools.workloads import LONGEST

ROWS = 8
_TOKENS = 50_000_000
_MEAN = 1000  # tokens of a text, about
_BATCHINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "packed": ("Pack", {}),
    "concatenated": ("Pack", {"kind": "concat"}),
    "max tokens": ("MaxTokens", {}),
}


def subjects(scale: float) -> list[Subject]:
    tokens = max(int(_TOKENS * scale), 40 * ROWS * LONGEST)
    fixed, texts = Workload("rows", tokens // LONGEST), Workload("texts", tokens // _MEAN)
    rows, written = (call(prepare, "mdsx", **each.arguments) for each in (fixed, texts))
    found = [alone("mdsx", "mdsx, fixed rows", read, rows, batching=None)]
    found += [alone("mdsx", f"mdsx, {name}", read, written, batching=name) for name in _BATCHINGS]
    found += [reads(loader, read_packed, "packed", texts) for loader in ("grain", "lancedb", "energon")]
    return [
        Subject(
            name="packed-rows",
            title=f"tokens: {ROWS} rows of {LONGEST} for each batch, packed or of one length",
            figure="tokens/s",
            more=("fill",),
            contestants=found,
            note=f"Lengths are log-normal (median 600, sigma 1), at most {LONGEST}. Packed rows have segments and "
            f"positions (LanceDB's: documents). Length-bounded batches are of {ROWS * LONGEST} tokens. Grain packs "
            "first fit in 16 rows, Energon first fit among 100 texts; LanceDB concatenates.",
        )
    ]


def read(data: str, batching: str | None) -> Figures:
    """Read epochs after a first one, which is a warm-up."""
    from mdsx.torch import StreamingDataLoader, StreamingDataset

    dataset = StreamingDataset(data, seed=7)
    if batching is None:
        loader = StreamingDataLoader(dataset, batch_size=ROWS)
    else:
        name, arguments = _BATCHINGS[batching]
        layout = getattr(mdsx, name)(LONGEST if name == "Pack" else ROWS * LONGEST, length="tokens", **arguments)
        loader = StreamingDataLoader(dataset, ROWS if name == "Pack" else None, batching=layout)
    for _ in loader:
        pass
    tokens = places = 0
    started = time.perf_counter()
    while time.perf_counter() - started < measure.SECONDS or not tokens:
        for batch in loader:
            tokens += batch.get("global_tokens", ROWS * LONGEST)
            places += batch["tokens"].numel()
    return {"tokens/s": tokens / (time.perf_counter() - started), "fill": tokens / places}


def read_packed(peer: Peer, data: str, workload: str, samples: int) -> Figures:  # noqa: ARG001  as others
    """The tokens of packed rows, those that pad them included, after a warm-up."""
    batches = iter(peer.loader(Reading(data, workload, ROWS, packed=LONGEST)))
    begin, places, started = time.perf_counter(), 0, 0.0
    for batch in batches:
        now = time.perf_counter()
        if started:
            places += ROWS * LONGEST
        elif now - begin > measure.WARM_UP / 2:
            started = now
        if started and now - started > measure.SECONDS:
            break
        del batch
    return {"tokens/s": places / (now - (started or begin))}
