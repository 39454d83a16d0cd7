"""A run and all that it uses need no PyTorch."""

from __future__ import annotations

from pathlib import Path

import mdsx
from tests.without_torch import run_without_torch

PROGRAM = """
import sys
import mdsx
from mdsx.order import DatasetCourse, Order
from mdsx.shards import View
from mdsx.stream import Batching, RankReader, Run
from mdsx.stream.background import Background

data = mdsx.Dataset(sys.argv[1], cache=sys.argv[2])
course = DatasetCourse(Order(data.excerpt.subset.counts, seed=1, shuffle_block=8))
batching = Batching(course.epoch_samples, 4, 1, drop_last=False)
run = Run()
seen = []
for epoch in range(2):
    iteration = type("Iteration", (), {})()
    while run.coming[0] == epoch:
        place, position = run.place(iteration)
        reader = RankReader(View([data.excerpt]), course, batching, 0)
        tasks = list(batching.tasks(place, position))
        make = lambda: (pair for some in reader.runs(tasks) for pair in zip(some, reader.read(some)))
        for task, batch in Background(make, 2):
            run.hand_out(iteration, task, batching)
            seen += batch.columns["id"].tolist()
        reader.close()
assert sorted(seen) == sorted([*range(50)] * 2), seen
assert (run.epoch, run.position) == (2, 0)
assert "torch" not in sys.modules
"""


def test_a_run_works_without_torch(tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path / "d", {"id": "int64"}, shard_size=256, compression="zstd") as out:
        for number in range(50):
            out.write({"id": number})
    run_without_torch(PROGRAM, str(tmp_path / "d"), str(tmp_path / "cache"))
