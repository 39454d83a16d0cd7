"""Where the tasks of a long call are done: in processes of this machine, or on a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from mdsx.base.process.on_ray import map_on_ray
from mdsx.base.process.pool import Report, Result, Task, Work, map_in_processes
from mdsx.base.process.ray_nodes import import_ray
from mdsx.errors import UsageError, shown

Engine: TypeAlias = Literal["ray"]


@dataclass(frozen=True, slots=True)
class Workers:
    """The workers that a caller asked for: `num_workers` at once (None: one here, or all CPUs of a cluster), of
    `engine` (None: processes of this machine).
    """

    num_workers: int | None
    engine: Engine | None

    @classmethod
    def of(cls, num_workers: int | None, engine: Engine | None) -> Workers:
        """Raise UsageError if an argument is invalid, or the engine is not installed."""
        if num_workers is not None and (type(num_workers) is not int or num_workers < 1):
            raise UsageError("num_workers must be an integer of at least 1", found=shown(num_workers))
        if engine not in (None, "ray"):
            raise UsageError("there is no such engine", found=shown(engine), expected="ray")
        if engine is not None:
            import_ray()
        return cls(num_workers, engine)

    def map(
        self,
        work: Work[Task, Result],
        tasks: Sequence[Task],
        report: Report,
        *,
        name: str,
        paths: Iterable[str] = (),
    ) -> list[Result]:
        """Return what `work` returns for each task, in order; see `map_in_processes` and `map_on_ray`.

        On a cluster, a task may be done more than once, even at the same time. `paths`: what all nodes must have, as
        far as it exists here.
        """
        if self.engine is None:
            return map_in_processes(work, tasks, self.num_workers or 1, report, name=name)
        return map_on_ray(work, tasks, self.num_workers, report, name=name, paths=paths)
