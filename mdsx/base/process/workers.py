"""Where the tasks of a long call run: in processes on this machine, or on a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from mdsx.base.arguments import check_count
from mdsx.base.process.on_ray import map_on_ray
from mdsx.base.process.pool import Report, Result, Task, Work, map_in_processes
from mdsx.base.process.ray_nodes import import_ray
from mdsx.errors import UsageError, shown

Engine: TypeAlias = Literal["ray"]


@dataclass(frozen=True, slots=True)
class Workers:
    """The workers that a caller asked for.

    `num_workers`: how many at once (None: one on this machine, or all CPUs of a cluster). `engine`: None means
    processes on this machine.
    """

    num_workers: int | None
    engine: Engine | None

    @classmethod
    def of(cls, num_workers: int | None, engine: Engine | None) -> Workers:
        """Raise UsageError if an argument is invalid, or the engine is not installed."""
        if num_workers is not None:
            check_count("num_workers", num_workers)
        if engine not in (None, "ray"):
            raise UsageError("unknown engine", found=shown(engine), expected="ray")
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
        """Return the results of `work` for each task, in order; see `map_in_processes` and `map_on_ray`.

        On a cluster, a task may run more than once, even concurrently. `paths`: all nodes must have those that exist
        here.
        """
        if self.engine is None:
            return map_in_processes(work, tasks, self.num_workers or 1, report, name=name)
        return map_on_ray(work, tasks, self.num_workers, report, name=name, paths=paths)
