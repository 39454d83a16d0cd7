"""A run and all that it uses need no PyTorch."""

from __future__ import annotations

from pathlib import Path

import mdsx
from tests.without_torch import run_without_torch

PROGRAM = """
import sys
import mdsx
from mdsx.base.work import iterate_ahead
from mdsx.datasets import excerpt_of
from mdsx.order import DatasetCourse, Order
from mdsx.shards import View
from mdsx.stream import SampleSteps, RankReader, Run

data = mdsx.Dataset(sys.argv[1], cache=sys.argv[2])
course = DatasetCourse(Order(excerpt_of(data).subset.counts, seed=1, shuffle_block=8))
steps = SampleSteps(course.epoch_samples, 4, 1, drop_last=False)
run = Run()
seen = []
for epoch in range(2):
    iteration = type("Iteration", (), {})()
    while run.coming_epoch == epoch:
        reader = RankReader(View([excerpt_of(data)]), course, steps, 0)
        tasks = list(steps.tasks(run.cursor_of(iteration)))
        made = (pair for some in reader.chunks(tasks) for pair in zip(some, reader.read(some)))
        for task, batch in iterate_ahead(made, 2):
            run.hand_out(iteration, task)
            seen += batch.columns["id"].tolist()
        reader.close()
assert sorted(seen) == sorted([*range(50)] * 2), seen
assert run.cursor[:2] == (2, 0)
assert "torch" not in sys.modules
"""


def test_a_run_works_without_torch(tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path / "d", {"id": "int64"}, shard_size=256, compression="zstd") as out:
        for number in range(50):
            out.write({"id": number})
    run_without_torch(PROGRAM, str(tmp_path / "d"), str(tmp_path / "cache"))
