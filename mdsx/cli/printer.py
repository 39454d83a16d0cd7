"""What `mdsx convert` prints: warnings, the columns, a bar, each thing skipped, and how it ended."""

from __future__ import annotations

import sys

from mdsx.cli.output import Bar, complain, error_fields, print_json, print_table
from mdsx.convert import Conversion, Plan, Watcher
from mdsx.errors import MdsxError
from mdsx.sizes import format_size

_LISTED = 1000  # skips that JSON lists; all are counted, and all are told on stderr


class Printer(Watcher):
    """Prints a conversion; with `as_json` only its end, as JSON."""

    def __init__(self, *, as_json: bool) -> None:
        self.bar = Bar("converting")
        self._as_json = as_json
        self._bytes, self._samples = 0, 0
        self._skipped: list[dict[str, object]] = []
        self._warnings: list[str] = []
        self._told = 0

    def planned(self, plan: Plan) -> None:
        self.bar.expect(plan.source_bytes)
        if not self._as_json:
            parts = f", in {plan.parts} parts" if plan.parts > 1 else ""
            tars = "1 tar" if len(plan.sources) == 1 else f"{len(plan.sources):,} tars"
            print(f"{tars}, {format_size(plan.source_bytes)}, to {plan.out}{parts}; columns:")
            print_table(plan.columns.items(), indent="  ")
            sys.stdout.flush()  # also in a log that takes both, it stands before what is skipped

    def progress(self, source_bytes: int, samples: int) -> None:
        self._bytes += source_bytes
        self._samples += samples
        self.bar.reach(self._bytes, f"{self._samples:,} samples")

    def warned(self, warning: str) -> None:
        complain(warning, kind="warning: ")
        self._warnings.append(warning)

    def skipped(self, error: MdsxError) -> None:
        self._told += 1
        complain(error, kind="skipped: ")
        if len(self._skipped) < _LISTED:
            self._skipped.append(error_fields(error))

    def conclude(self, conversion: Conversion) -> None:
        """How it ended."""
        if conversion.skipped > self._told:  # of a tar, a finished conversion keeps the first ones only
            complain(f"{conversion.skipped - self._told:,} more", kind="skipped: ")
        skipped = f", {conversion.skipped:,} skipped" if conversion.skipped else ""
        if self._as_json:
            print_json(
                {
                    "url": conversion.url,
                    "samples": conversion.samples,
                    "skipped": conversion.skipped,
                    "already": conversion.already,
                    "columns": dict(conversion.columns),
                    "errors": self._skipped,
                    "warnings": self._warnings,
                }
            )
        elif conversion.already:
            print(f"{conversion.url} was finished before: {conversion.samples:,} samples{skipped}; nothing to do")
        else:
            print(f"{conversion.samples:,} samples in {conversion.url}{skipped}")
