"""Where the tasks of a long call are done: in processes of this machine, or on a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from mdsx.errors import UsageError, shown
from mdsx.process.on_ray import map_on_ray
from mdsx.process.pool import Report, Result, Task, Work, map_in_processes
from mdsx.process.ray_nodes import import_ray

Engine: TypeAlias = Literal["ray"]


@dataclass(frozen=True, slots=True)
class Workers:
    """The workers that a caller asked for: `processes` at once (None: one here, or all CPUs of a cluster), of `engine`
    (None: processes of this machine).
    """

    processes: int | None
    engine: Engine | None

    @classmethod
    def of(cls, processes: int | None, engine: Engine | None) -> Workers:
        """Raise UsageError if an argument is invalid, or the engine is not installed."""
        if processes is not None and (type(processes) is not int or processes < 1):
            raise UsageError("processes must be an integer of at least 1", found=shown(processes))
        if engine not in (None, "ray"):
            raise UsageError("there is no such engine", found=shown(engine), expected="ray")
        if engine is not None:
            import_ray()
        return cls(processes, engine)

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
            return map_in_processes(work, tasks, self.processes or 1, report, name=name)
        return map_on_ray(work, tasks, self.processes, report, name=name, paths=paths)
