"""The progress of a conversion, for the caller's `watch`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mdsx.base.progress import Progress, Totals
from mdsx.errors import MdsxError
from mdsx.transfer.converting.pipeline import Advance
from mdsx.transfer.converting.plan import ConversionPlan
from mdsx.transfer.converting.record import added


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionProgress(Progress):
    """The progress of converting `files` files of a `kind` to a dataset at `url`, in `parts` parts, with `columns`.
    `amounts`: what the source counts besides samples; `earlier`: the part of it that earlier calls did."""

    kind: str
    url: str
    columns: Mapping[str, str]
    files: int
    parts: int
    amounts: tuple[int, ...] = ()
    earlier: tuple[int, ...] = ()


class WatchReporter:
    """Adds up the workers' messages, and passes the sums to `watch`."""

    def __init__(self, plan: ConversionPlan, watch: Callable[[Progress], object], amounts: int) -> None:
        """`amounts`: how many amounts the source counts."""
        self._plan, self._watch, self._amounts = plan, watch, amounts
        self._of_size = plan.source_bytes
        self._totals = Totals(3 + amounts)
        self._earlier: dict[int, list[int]] = {}  # part -> its amounts when it began

    def __call__(self, message: Advance) -> None:
        skipped = self._totals.sums[2]
        amounts = added([0] * self._amounts, message.amounts)
        self._earlier.setdefault(message.part, amounts)
        self._totals.reach(message.part, message.size, message.samples, message.skipped, *amounts)
        again = self._totals.sums[2] == skipped  # a worker had reported this error before it died
        self.report(*([] if message.error is None or again else [message.error]))

    def finished_before(self, samples: int, problems: list[MdsxError]) -> None:
        """Report that there is nothing to do."""
        self._totals.reach(0, self._of_size, samples, len(problems), *[0] * self._amounts)
        self.report(*problems)

    def report(self, *problems: MdsxError) -> None:
        """Call `watch`."""
        plan, (size, samples, _, *amounts) = self._plan, self._totals.sums
        self._watch(
            ConversionProgress(
                samples,
                size,
                self._of_size,
                problems=problems,
                kind=plan.kind,
                url=plan.out,
                columns=plan.columns,
                files=len(plan.files),
                parts=plan.parts,
                amounts=tuple(amounts),
                earlier=tuple(map(sum, zip([0] * self._amounts, *self._earlier.values(), strict=True))),
            )
        )
