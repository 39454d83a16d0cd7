"""The command: runs and simulates each setting, and prints both side by side."""

from __future__ import annotations

import argparse

from mdsx.sizes import format_size
from tools.console import Console
from tools.pages import machine, put_between_marks, table, today
from tools.processes import ROOT
from tools.simulated.measured import Found, measure, written
from tools.simulated.planned import simulate
from tools.simulated.settings import SETTINGS, Setting

PAGE = ROOT / "docs" / "simulate.md"
_HEADS = (
    "setting",
    "bytes of shards: measured",
    "simulated",
    "requests (whole shards + ranges): measured",
    "simulated",
    "steps waited: measured",
    "simulated",
    "difference",
    "first batch: measured",
    "simulated",
)


def run(given: argparse.Namespace) -> int:
    """Return 1 if a simulation's bytes or requests differ from what the server counted."""
    console, rows, settings, failed = Console(), [], [], False
    for setting in SETTINGS:
        setting = setting.quick() if given.quick else setting
        with console.step(setting.title) as step:
            try:
                real, simulated = compare(setting)
            except AssertionError as error:
                step.passed, step.result, failed = False, str(error), True
                continue
            if setting.exact and counts(real) != counts(simulated):
                step.passed, failed = False, True
                step.result = f"{counts(real)} measured, {counts(simulated)} simulated"
            rows.append(_row(setting, real, simulated))
            settings.append(_about(setting, real))
    heads = (
        "setting",
        "samples",
        "shards",
        "batch of a rank",
        "step",
        "a step took",
        "cache",
        "link",
        "a request took",
    )
    text = table(_HEADS, rows, right=range(1, len(_HEADS))) + "\n" + table(heads, settings, right=range(1, len(heads)))
    console.page(text)
    if given.docs and not failed:
        here = machine()
        when = f"\nMeasured {today()} on {here['cores']} cores, {here['memory']}, shared with others.\n"
        put_between_marks(PAGE, "simulated", "measured", text + when)
    return int(failed)


def compare(setting: Setting) -> tuple[Found, Found]:
    """Return what a setting does for real, and simulated."""
    with written(setting) as place:
        real = measure(place)
        return real, simulate(place, real.latency, real.step)


def counts(found: Found) -> tuple[int, int, int]:
    """Return what must be equal: bytes, requests for whole shards, and requests for ranges."""
    return found.bytes, found.whole, found.ranges


def _row(setting: Setting, real: Found, simulated: Found) -> list[str]:
    both = real, simulated
    cells = [setting.title, *(f"{found.bytes:,}" for found in both)]
    cells += [f"{found.whole + found.ranges:,} ({found.whole:,} + {found.ranges})" for found in both]
    cells += [f"{real.waited:.2f} s", f"{simulated.waited:.2f} s", f"{simulated.waited / real.waited - 1:+.1%}"]
    return [*cells, *(f"{found.first:.2f} s" for found in both)]


def _about(setting: Setting, real: Found) -> list[str]:
    least, most = setting.sizes
    size = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    shard = f"{setting.shard_samples} samples" + (f", {setting.compression}" if setting.compression else "")
    cache = "holds all" if setting.cache > 1 else f"{setting.cache:.0%} of the dataset"
    link = f"{format_size(int(setting.rate))}/s, {1000 * setting.rtt:.0f} ms"
    return [
        setting.title,
        f"{setting.samples:,} of {size} bytes",
        shard,
        f"{setting.batch}",
        f"{1000 * setting.step:.0f} ms",
        f"{1000 * real.step:.1f} ms",
        cache,
        link,
        f"{1000 * real.latency:.0f} ms",
    ]
