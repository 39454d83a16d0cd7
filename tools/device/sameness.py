"""Bytes on the device equal those on the CPU: plain, nested and packed, in threads and workers, after a resume.

Pictures that the GPU decodes differ a little: `pictures.py` has how much.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import mdsx
from tools.device import pictures
from tools.device.data import Bench
from tools.device.run import attempt

_WAYS: dict[str, dict[str, Any]] = {
    "1 thread": {},
    "4 threads": {"num_threads": 4},
    "2 workers": {"num_workers": 2},
    "2 persistent workers": {"num_workers": 2, "persistent_workers": True},
}
_KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "nested": {"collate_fn": "nested"},
    "packed": {"batching": mdsx.Pack(512, length="tokens"), "batch_size": 8},
    "flat": {"batching": mdsx.Pack(512, length="tokens", layout="flat"), "batch_size": 8},
}


def part(bench: Bench) -> dict[str, Any]:
    found = {f"{kind}, {way}": attempt(_compared, bench, kind, way) for kind in _KINDS for way in _WAYS}
    if bench.device.type == "cuda":
        found["memory"] = attempt(_memory, bench)
        found.update(pictures.rows(bench))
    return found


def nested(samples: list[Any]) -> Any:
    """Make a batch of dicts, lists and tuples."""
    images = torch.stack([torch.as_tensor(sample["image"]) for sample in samples])
    ids = torch.tensor([sample["id"] for sample in samples])
    return {"pair": (images, [ids, {"text": [sample["text"] for sample in samples]}]), "n": len(samples)}


def flattened(value: Any) -> list[Any]:
    """Return the values in a batch, in order."""
    if isinstance(value, dict):
        return [each for key in value for each in flattened(value[key])]
    return [each for item in value for each in flattened(item)] if isinstance(value, list | tuple) else [value]


def _compared(bench: Bench, kind: str, way: str) -> dict[str, Any]:
    options = {**_KINDS[kind]}
    if "collate_fn" in options:
        options["collate_fn"] = nested
    plain = bench.loader("mixed", **options)
    moved = bench.loader("mixed", device=bench.device, **options, **_WAYS[way])
    batches = 0
    for _ in range(2):
        expected, found = [flattened(batch) for batch in plain], _kept(bench, moved)
        batches += _check(expected, found, bench)
    for _, _ in zip(range(5), moved, strict=False):
        pass
    state = moved.state_dict()
    again, rest = bench.loader("mixed", device=bench.device, **options, **_WAYS[way]), bench.loader("mixed", **options)
    again.load_state_dict(state)
    rest.load_state_dict(state)
    return {"batches": batches + _check([flattened(batch) for batch in rest], _kept(bench, again), bench)}


def _kept(bench: Bench, loader: Any) -> list[list[Any]]:
    """Return copies of all batches, which the device makes late: it is busy, and the loop frees each batch at once."""
    busy = torch.ones(2048, 2048, device=bench.device) if bench.device.type == "cuda" else None
    found = list[list[Any]]()
    for batch in loader:
        if busy is not None:
            for _ in range(4):
                busy = (busy @ busy).clamp(0, 1)
        found.append([each.clone() if isinstance(each, torch.Tensor) else each for each in flattened(batch)])
        del batch
    bench.synchronize()
    return found


def _check(expected: list[list[Any]], found: list[list[Any]], bench: Bench) -> int:
    if len(expected) != len(found):
        raise AssertionError(f"{len(found)} batches, not {len(expected)}")
    for number, (mine, other) in enumerate(zip(expected, found, strict=True)):
        for one, two in zip(mine, other, strict=True):
            if isinstance(one, torch.Tensor):
                if two.device.type != bench.device.type:
                    raise AssertionError(f"batch {number} has a tensor on {two.device}")
                same = one.dtype == two.dtype and torch.equal(one, two.cpu())
            else:
                same = one == two
            if not same:
                raise AssertionError(f"batch {number} differs")
    return len(found)


def _memory(bench: Bench) -> dict[str, Any]:
    """The most memory that batches take in a loop that never waits for its device, in batches."""
    loader: Callable[..., Any] = bench.loader
    busy = torch.ones(4096, 4096, device=bench.device)
    size = 0
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    for _ in range(3):
        for batch in loader("images", device=bench.device):
            size = sum(each.nbytes for each in flattened(batch) if isinstance(each, torch.Tensor))
            torch.mm(busy, busy, out=busy)
            batch["image"].sum()
            busy.clamp_(0, 1)
    torch.cuda.synchronize()
    return {"batches": (torch.cuda.max_memory_allocated() - before) / size}
