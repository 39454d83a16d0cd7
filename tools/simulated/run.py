"""The command: runs and simulates each setting, and prints both side by side."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from mdsx.base.sizes import format_size
from tools.console import Console
from tools.pages import measured_on, put_between_marks, table
from tools.processes import ROOT
from tools.simulated.measured import Found, measure, written
from tools.simulated.planned import simulate
from tools.simulated.settings import SETTINGS, Setting

Row = list[tuple[str, str]]
"""Cells of a table, each with its head."""
PAGE = ROOT / "docs" / "scale.md"


def run(given: argparse.Namespace) -> int:
    """Return 1 if a simulation's bytes or requests differ from what the server counted."""
    console, rows, settings, failed = Console(), [], [], False
    for setting in SETTINGS:
        with console.step(setting.title) as step:
            real, simulated = compare(setting)
            if setting.exact and real.counts != simulated.counts:
                step.passed, failed = False, True
                step.result = f"{real.counts} measured, {simulated.counts} simulated"
            rows.append(_figures(real, simulated))
            settings.append(_about(setting, real))
    text = "\n".join(_table(found) for found in (rows, settings))
    console.page(text)
    if given.docs and not failed:
        put_between_marks(PAGE, "simulated", "measured", f"{text}\n{measured_on()}")
    return int(failed)


def compare(setting: Setting) -> tuple[Found, Found]:
    """Return what a setting does for real, and simulated."""
    with written(setting) as place:
        real = measure(place)
        return real, simulate(place, real.latency, real.step)


def _table(found: Sequence[Row]) -> str:
    heads = ["setting", *(head for head, _ in found[0])]
    rows = [[setting.title, *(cell for _, cell in row)] for setting, row in zip(SETTINGS, found, strict=True)]
    return table(heads, rows, right=range(1, len(heads)))


def _figures(real: Found, simulated: Found) -> Row:
    requests = [f"{each.whole + each.ranges:,} ({each.whole:,} + {each.ranges})" for each in (real, simulated)]
    return [
        ("bytes of shards: measured", f"{real.bytes:,}"),
        ("simulated", f"{simulated.bytes:,}"),
        ("requests (whole shards + ranges): measured", requests[0]),
        ("simulated", requests[1]),
        ("steps waited: measured", f"{real.waited:.2f} s"),
        ("simulated", f"{simulated.waited:.2f} s"),
        ("difference", f"{simulated.waited / real.waited - 1:+.1%}"),
        ("first batch: measured", f"{real.first:.2f} s"),
        ("simulated", f"{simulated.first:.2f} s"),
    ]


def _about(setting: Setting, real: Found) -> Row:
    least, most = setting.sizes
    size = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    return [
        ("samples", f"{setting.samples:,} of {size} bytes"),
        ("shards", f"{setting.shard_samples} samples" + (f", {setting.compression}" if setting.compression else "")),
        ("batch of a rank", f"{setting.batch}"),
        ("step", f"{1000 * setting.step:.0f} ms"),
        ("a step took", f"{1000 * real.step:.1f} ms"),
        ("cache", "holds all" if setting.cache > 1 else f"{setting.cache:.0%} of the dataset"),
        ("link", f"{format_size(int(setting.rate))}/s, {1000 * setting.rtt:.0f} ms"),
        ("a request took", f"{1000 * real.latency:.0f} ms"),
    ]
