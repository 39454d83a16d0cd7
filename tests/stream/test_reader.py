"""A rank's reader, with the order that it reads by."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import mdsx
from mdsx.datasets import excerpt_of
from mdsx.order import DatasetCourse, Order
from mdsx.shards import View
from mdsx.stream import RankReader, SampleSteps, Task
from mdsx.stream.steps import START


@pytest.mark.parametrize("joined", [False, True])
def test_the_next_order_is_computed_before_an_epoch_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, joined: bool
) -> None:
    with mdsx.Writer(tmp_path / "data", {"id": "int64"}) as out:
        for number in range(100):
            out.write({"id": number})
    made = list[int]()  # the epochs whose order was computed, or a part of it
    make = Order._make_tile

    def noted(order: Order, *where: Any) -> Any:
        made.append(order.epoch)
        return make(order, *where)

    monkeypatch.setattr(Order, "_make_tile", noted)
    view = View([excerpt_of(mdsx.Dataset(tmp_path / "data"))])
    course = DatasetCourse(Order(view.counts, seed=1))
    steps = SampleSteps(course.epoch_samples, 10, 1, drop_last=False)
    reader = RankReader(view, course, steps, 0)

    def read(tasks: list[Task]) -> list[int]:
        return [number for batch in reader.read(tasks, joined=joined) for number in batch.columns["id"].tolist()]

    first, second, third, *rest = steps.tasks(START)
    read([first])
    read([second, third])
    assert set(made) == {0}
    read(rest)
    assert set(made) == {0, 1}
    made.clear()
    assert len(set(read(list(steps.tasks(rest[-1].after))[:2]))) == 20
    assert not made
    reader.close()
