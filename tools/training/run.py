"""`python3 -m tools training`: the study, its table, and its chart."""

from __future__ import annotations

import argparse
import os

import torch

from tools.console import Console
from tools.pages import machine, put_between_marks, table, today
from tools.processes import ROOT
from tools.training.chart import chart
from tools.training.orders import Cost, costs, default_name
from tools.training.setting import BASELINES, CONTROL, FEWEST_PAIRS, NARROW, STUDY, changed
from tools.training.statistics import Difference, difference, narrow, verdicts
from tools.training.study import Pairs, text_from

PAGE = ROOT / "docs" / "shuffling.md"
CHART = ROOT / "docs" / "pictures" / "shuffling-training.svg"


def run(given: argparse.Namespace) -> int:
    """Return 1 if the control or the default fails what is asked of it, or if there are too few pairs."""
    if given.docs and given.set:
        raise SystemExit("the page has the study as it is fixed: give --docs without --set")
    console, setting = Console(), changed(STUDY, given.set)
    jobs = given.jobs or (len(os.sched_getaffinity(0)) if given.device == "cpu" else 1)
    with console.step("Text of packages"):
        text = text_from(given.text, setting)
    pairs = Pairs(setting, text, given.device, given.json)
    with console.step("Pairs of trainings") as step:
        pairs.add(given.minutes * 60, jobs, lambda said: step.note(said, milestone=True))
        step.result = f"{len(pairs.found)}"
    if len(pairs.found) < FEWEST_PAIRS:
        console.print(f"{len(pairs.found)} pairs are too few: give more --minutes, and a --json file to add to")
        return 1
    default = default_name(setting)
    found = {name: difference(pairs.found, name) for name in pairs.found[0] if name not in BASELINES}
    page = page_of(found, costs(setting), default, setting.all_shards) + "\n" + measured(pairs)
    console.page(page)
    if given.docs:
        put_between_marks(PAGE, "training", "losses", page)
        CHART.write_text(chart(found, default))
    said = verdicts(pairs.found, default)
    for what, holds in said.items():
        console.print(f"{'✓' if holds else '✗'} {what}")
    return int(not all(said.values()))


def page_of(found: dict[str, Difference], needed: dict[str, Cost], default: str, shards: int) -> str:
    """Return the table, with the default in bold."""
    exact = needed[BASELINES[0]]
    rows = [["exact", f"{exact.held:,.0f}", f"{exact.fetched:.1f}", "", "", ""]]
    for name, one in found.items():
        cost = needed[name]
        rows.append(
            [
                f"**{name}**" if name == default else name,
                f"{cost.held:,.0f}",
                f"{cost.fetched:.1f}",
                f"{one.mean:+.2%}",
                f"± {one.width:.2%}",
                f"{one.upper:+.2%}",
            ]
        )
    heads = ["shuffle", f"of {shards:,} shards held", "downloads of each", "loss", "", "at most"]
    return table(heads, rows, right=range(1, 6))


def measured(pairs: Pairs) -> str:
    """Say on what it was measured, and whether the bounds are as narrow as wanted."""
    found = pairs.found
    widest = max(difference(found, name).width for name in found[0] if name not in (*BASELINES, CONTROL))
    limit = "" if narrow(found) else f", more than the {NARROW:.2%} wanted: the time was over"
    on = machine()["processor"] if pairs.device == "cpu" else pairs.study["device"]
    return (
        f"{len(found)} pairs, {today()}, PyTorch {torch.__version__} on {on}. The text has the hash "
        f"{pairs.corpus.identity}. The widest bound but the control's is "
        f"± {widest:.2%}{limit}.\n"
    )
