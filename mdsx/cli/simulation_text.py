"""A simulation's report as text, for the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mdsx.base.sizes import format_count, format_size
from mdsx.cli.output import print_table, say

if TYPE_CHECKING:
    from mdsx.simulate import Cost, Report


def print_report(report: Report) -> None:
    """Print the tables of a report."""
    from mdsx.simulate import words

    whole, settings = report.whole, report.settings
    about = "" if whole.exact else f" (+- {whole.error:.1%})"
    shards = format_count(settings["shards"], "shard")
    say(f"{settings['data']}: {format_count(settings['samples'], 'sample')} in {shards}")
    _section(
        "an epoch on all nodes",
        [
            ("steps", f"{settings['steps']:,} of {settings['global_batch_size']:,} samples"),
            ("bytes", f"{format_size(whole.bytes)}{about}, {_ahead(whole.ahead)}"),
            ("bytes that nodes need", f"{format_size(whole.minimum)}, downloaded {whole.duplication:.3f} times"),
            ("the dataset", format_size(whole.dataset)),
            ("requests", f"{whole.requests:,}"),
            ("time to first batch", words.seconds(whole.first_batch)),
            ("steps that wait", f"{whole.waiting_share:.1%}, {words.seconds(whole.waited)} in all"),
            ("takes", words.seconds(whole.seconds)),
            ("cost", _cost(report.cost)),
        ],
    )
    _section(
        "a node's cache",
        [
            ("shards in use at a time", format_size(whole.cache_needed) if whole.cache_needed else "unknown"),
            ("largest size", format_size(max((each.peak_cache for each in report.epochs), default=0))),
            ("limit", format_size(settings["cache"])),
        ],
    )
    if report.busiest:
        _section("the busiest rank's cost over the mean", _busiest(report.busiest))
    heads = ("node", "epoch", "steps", "bytes", "requests", "duplication", "first batch", "waited")
    rows = [
        (
            str(each.node),
            str(each.epoch),
            f"{each.steps:,}",
            format_size(each.traffic.bytes),
            f"{each.traffic.requests:,}",
            f"{each.traffic.duplication:.3f}" if whole.exact else "",
            words.seconds(each.first_batch),
            words.seconds(each.waited),
        )
        for each in report.epochs
    ]
    _columns("simulated", heads, rows)
    if report.resume is not None:
        after = report.resume
        nodes = f"{format_count(after.nodes, 'node')} ({format_count(after.world_size, 'rank')})"
        _section(
            f"continued at half of the epoch on {nodes}",
            [
                ("bytes to the epoch's end", format_size(after.bytes)),
                ("with empty caches", format_size(after.cold_bytes)),
                ("time to first batch", words.seconds(after.first_batch)),
            ],
        )
    _print_quality(report)
    for note in report.notes:
        say(f"note: {note}")


def _print_quality(report: Report) -> None:
    if not report.quality:
        return
    methods: Sequence[dict[str, Any]] = report.quality["methods"]
    heads = ("shuffle", "bytes held", "correlation", f"distinct {methods[0]['distinct_of']}", "neighbours")
    rows = [
        (
            each["method"],
            format_size(each["held_bytes"]),
            f"{each['correlation']:+.4f}",
            f"{each['distinct']:.1f}",
            f"{each['neighbour_distance']:.3f}",
        )
        for each in methods
    ]
    _columns(f"quality of the shuffle, from {report.quality['sampling']}", heads, rows)
    advice = report.advice
    if advice:
        say("advice")
        for reason in advice["reasons"]:
            say(f"  {reason}")
        say(textwrap.indent(f"{advice['command']}\n{advice['python']}\n", "  "))


def _section(title: str, rows: Iterable[tuple[str, object]]) -> None:
    say(title)
    print_table(rows, indent="  ")


def _columns(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[place]) for row in (heads, *rows)) for place in range(len(heads))]
    say(title)
    for row in (heads, *rows):
        say("  " + "  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def _busiest(found: Mapping[str, float]) -> list[tuple[str, str]]:
    names = (("step", "of each step"), ("micro_batch", "of each micro-batch"))
    return [
        (title, f"{found[name]:.3f} ({found[f'{name}_without']:.3f} without balance)")
        for name, title in names
        if name in found
    ]


def _ahead(size: int) -> str:
    return f"{format_size(size)} of them for the next epoch" if size else "none for the next epoch"


def _cost(cost: Cost) -> str:
    from mdsx.simulate import words

    requests, egress = (words.money(each, cost.currency) for each in (cost.requests, cost.egress))
    return f"{words.money(cost.requests + cost.egress, cost.currency)}: {requests} for requests, {egress} for bytes"
