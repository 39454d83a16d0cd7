"""What all converting commands share: their output and exit status."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, cast

import typer

from mdsx.base.progress import Progress
from mdsx.base.sizes import format_count, format_size
from mdsx.cli.output import LongCall, complain, error_fields, print_json, print_table, say

if TYPE_CHECKING:
    from mdsx.transfer.converting import ConversionProgress

_SKIPPED = 3
_LISTED = 1000  # skips in JSON; all are counted, and all are printed on stderr


class OnBadSample(StrEnum):
    RAISE = "raise"
    SKIP = "skip"


class Result(Protocol):
    """How a conversion ended."""

    @property
    def url(self) -> str: ...
    @property
    def columns(self) -> Mapping[str, str]: ...
    @property
    def samples(self) -> int: ...
    @property
    def skipped(self) -> int: ...
    @property
    def already(self) -> bool: ...


class ConversionPrinter(LongCall):
    """Also prints the columns, each skip, and the result; with `as_json`, the result as JSON."""

    def __init__(self, doing: str, note: Callable[[Progress], str] | None = None, *, as_json: bool) -> None:
        super().__init__(doing, note)
        self._as_json = as_json
        self._begun = False
        self._skipped = 0
        self._errors: list[dict[str, object]] = []

    def watch(self, progress: Progress) -> None:
        self._warn()
        if not self._begun:
            self._begun = True
            if progress.size == 0 and not self._as_json:  # otherwise the output was finished before
                _print_plan(cast("ConversionProgress", progress))
        for error in progress.problems:
            self._skipped += 1
            complain(error, kind="skipped: ")
            if len(self._errors) < _LISTED:
                self._errors.append(error_fields(error))
        super().watch(progress)

    def conclude(self, conversion: Result, more: Mapping[str, object] | None = None, text: str = "") -> None:
        """Print the result: in JSON with `more` fields, else with `text`. Exit with 3 if something was skipped."""
        if conversion.skipped > self._skipped:  # a finished conversion's record has only each unit's first skips
            complain(f"{conversion.skipped - self._skipped:,} more", kind="skipped: ")
        skipped = f", {conversion.skipped:,} skipped" if conversion.skipped else ""
        samples = format_count(conversion.samples, "sample")
        if self._as_json:
            print_json(
                {
                    "url": conversion.url,
                    "samples": conversion.samples,
                    "skipped": conversion.skipped,
                    "already": conversion.already,
                    "columns": dict(conversion.columns),
                    **(more or {}),
                    "errors": self._errors,
                    "warnings": self.warnings,
                }
            )
        elif conversion.already:
            say(f"{conversion.url} was finished before: {samples}{text}{skipped}; nothing to do")
        else:
            say(f"{samples} in {conversion.url}{text}{skipped}")
        if conversion.skipped:
            raise typer.Exit(_SKIPPED)


def _print_plan(progress: ConversionProgress) -> None:
    parts = f", in {progress.parts} parts" if progress.parts > 1 else ""
    what = "tar" if progress.kind == "tar" else "file"
    files = format_count(progress.files, what)
    say(f"{files}, {format_size(progress.of_size)}, to {progress.url}{parts}; columns:")
    print_table(progress.columns.items(), indent="  ")
    sys.stdout.flush()  # so that it precedes the skips in a log of both streams
