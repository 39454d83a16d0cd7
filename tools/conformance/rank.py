"""One rank of a leg: takes batches, writes down their ids, saves the checkpoint, waits to be killed."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from tools.conformance.adaptors import Adaptor
from tools.conformance.task import END, SAVED, Consumed, Task


def run_rank(adaptor: Adaptor, task: Task, stand_still: Callable[[], NoReturn]) -> NoReturn:
    """Ends in `stand_still`, alive with all its workers: at its stop, or at the end of all epochs."""
    loader = adaptor.open(task, _load(task))
    stop = task.stop
    left: int | None = None  # batches until the rank is to be killed, once the checkpoint is saved
    with task.log_file(task.rank).open("a") as log:

        def note(value: Any) -> None:
            log.write(value if isinstance(value, str) else json.dumps(value))
            log.flush()

        def save() -> None:
            _save(loader.state(), task.state_file(task.rank))
            note(json.dumps(SAVED) + "\n")

        for epoch in range(loader.epoch, task.epochs):
            stops_here = stop is not None and stop.epoch == epoch
            for step, ids in enumerate(loader.batches(epoch), 1):
                note(Consumed(epoch, step, tuple(ids)).to_line())  # what was read counts before the checkpoint knows
                if left is not None:
                    left -= 1
                elif stops_here and stop is not None and step == stop.step:
                    save()
                    left = stop.more
                if left == 0:
                    stand_still()
            if stops_here and stop is not None and left is None:
                save()
                left = stop.more
                if left == 0:
                    stand_still()
        note(json.dumps(END) + "\n")
        stand_still()


def _load(task: Task) -> list[Any]:
    if task.resume is None:
        return []
    states: list[Any] = []
    while (path := Path(task.resume, f"state{len(states)}.pickle")).exists():
        states.append(pickle.loads(path.read_bytes()))
    return states


def _save(state: Any, path: Path) -> None:
    partial = path.with_suffix(".part")
    partial.write_bytes(pickle.dumps(state))
    os.replace(partial, path)
