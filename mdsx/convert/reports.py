"""Reports about a running conversion, for the caller's `watch`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from mdsx.convert.plan import Plan
from mdsx.errors import MdsxError
from mdsx.progress import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionProgress(Progress):
    """Progress, and what is converted: `tars` tars to a dataset at `url` in `parts` parts, with these `columns`."""

    url: str
    columns: Mapping[str, str]
    tars: int
    parts: int


class Reporter(Protocol):
    """Takes reports from the conversion of a part."""

    def advance(self, size: int, samples: int) -> None:
        """Note that `size` more bytes were read, and `samples` more samples converted."""

    def skip(self, error: MdsxError) -> None:
        """Note that a sample, or a stretch of a damaged tar, was skipped."""


class WatchReporter:
    """Adds reports up and passes them to `watch`."""

    def __init__(self, plan: Plan, watch: Callable[[Progress], object]) -> None:
        self._plan, self._watch = plan, watch
        self._size = self._samples = 0

    def advance(self, size: int, samples: int) -> None:
        self._size += size
        self._samples += samples
        self._report()

    def skip(self, error: MdsxError) -> None:
        self._report(error)

    def finished_before(self, samples: int, problems: list[MdsxError]) -> None:
        """Note that nothing needs to be done."""
        self._size, self._samples = self._plan.source_bytes, samples
        self._report(*problems)

    def _report(self, *problems: MdsxError) -> None:
        plan = self._plan
        self._watch(
            ConversionProgress(
                self._samples,
                self._size,
                plan.source_bytes,
                problems=problems,
                url=plan.out,
                columns=plan.columns,
                tars=len(plan.sources),
                parts=plan.parts,
            )
        )
