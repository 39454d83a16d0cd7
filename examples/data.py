"""What the other examples train on, and the record of what they trained on.

python examples/data.py write DATA   # 1,003 samples: tokens, and images
python examples/data.py count RUN    # after a run, however often it was killed: was each sample there once an epoch?
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import NamedTuple, TextIO

import numpy as np

import mdsx

SAMPLES, LENGTH, TOKENS, CAPACITY = 1003, 16, 32, 64
EPOCHS = 2
_files: dict[str, TextIO] = {}


def write(url: str) -> None:
    """Write the dataset.

    `tokens` are mostly ascending, and so are those of `document`, whose length differs; `image` has a bright square in
    the quarter that `label` says.
    """
    columns = {"id": "int64", "tokens": f"int64[{LENGTH}]", "document": "int64[*]", "image": "float32[8,8]"}
    random = np.random.default_rng(0)
    with mdsx.Writer(url, {**columns, "label": "int64"}, shard_size="64kB") as out:
        for number in range(SAMPLES):
            label = number % 4
            image = random.random((8, 8), np.float32)
            image[label // 2 * 4 :, label % 2 * 4 :][1:3, 1:3] += 1
            length = int(min(random.lognormal(2.5, 0.7) + 2, CAPACITY))
            document, tokens = ascending(random, length), ascending(random, LENGTH)
            out.write({"id": number, "tokens": tokens, "document": document, "image": image, "label": label})


def ascending(random: np.random.Generator, length: int) -> np.ndarray:
    """Return tokens: three in four are followed by the next higher one."""
    steps = np.where(random.random(length) < 0.75, 1, random.integers(TOKENS, size=length))
    return steps.cumsum() % TOKENS


def record(run: str | Path, step: int, numbers: Iterable[int], loss: float = 0.0, rank: int | None = None) -> None:
    """Note that this rank trains on these samples in `step`, which is counted over all starts of the run."""
    rank = int(os.environ.get("RANK", "0")) if rank is None else rank
    if str(run) not in _files:  # the first step since this start
        path = Path(run) / "samples" / f"from-{step:06}.{rank}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        _files[str(run)] = path.open("w")
    file = _files[str(run)]
    file.write(json.dumps([step, list(map(int, numbers)), float(loss).hex()]) + "\n")
    file.flush()


class Step(NamedTuple):
    """What was recorded of a step, over all ranks."""

    numbers: list[int]
    losses: set[str]  # exactly, as float.hex()


def steps(run: str | Path) -> dict[int, Step]:
    """Return the steps of a run.

    A start from a checkpoint repeats the steps after it, so what was recorded of them before does not count.
    """
    files = sorted((Path(run) / "samples").iterdir())
    starts = [(int(first), list(of)) for first, of in groupby(files, lambda file: file.name[5:11])]
    found: dict[int, Step] = {}
    for (_, of), (end, _) in zip(starts, [*starts[1:], (sys.maxsize, [])], strict=True):
        for number, samples, loss in (json.loads(line) for file in of for line in file.open()):
            if number < end:
                step = found.setdefault(number, Step([], set()))
                step.numbers.extend(samples)
                step.losses.add(loss)
    return dict(sorted(found.items()))


def epochs(run: str | Path) -> list[Counter[int]]:
    """Return how often each sample was trained on, in each epoch of the run."""
    found = [Counter[int]()]
    for step in steps(run).values():
        if found[-1].total() >= SAMPLES:
            found.append(Counter())
        found[-1].update(step.numbers)
    return found


def publish(run: str | Path, checkpoint: str) -> None:
    """Make this checkpoint, which every rank has written, the one that the next start continues."""
    new = Path(run) / "latest.new"
    new.write_text(checkpoint)
    new.replace(Path(run) / "latest")  # a kill leaves the one before or this one


def latest(run: str | Path) -> Path | None:
    """Return the folder of the last checkpoint that was published."""
    name = Path(run) / "latest"
    return Path(run) / name.read_text() if name.exists() else None


def main(command: str, where: str) -> None:
    if command == "write":
        write(where)
        return
    for epoch, counts in enumerate(epochs(where)):
        once = sum(times == 1 for times in counts.values())
        print(f"epoch {epoch}: {once:,} of {SAMPLES:,} samples once, {len(counts) - once:,} more than once")


if __name__ == "__main__":
    main(*sys.argv[1:])
