"""`mdsx doctor`: check a URL and this machine, and say what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mdsx.cli.cache import CacheOption
from mdsx.cli.command import command
from mdsx.cli.options import Json, RanksPerNode, StorageOption, WorldSize, nodes_of, storage_options
from mdsx.cli.output import as_plain, print_json, say

if TYPE_CHECKING:
    from mdsx.checks.doctor import Finding

_STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red"}


@command("mdsx doctor s3://bucket/corpus --cache /nvme/cache --world-size 64 --ranks-per-node 8 --batch-size 32")
def doctor(
    url: Annotated[str, typer.Argument(metavar="URL", help="A dataset, or where to write one.")],
    cache: CacheOption = None,
    cache_limit: Annotated[
        str | None, typer.Option(metavar="SIZE", help="The most that the cache may hold: 500GB.")
    ] = None,
    world_size: WorldSize = 1,
    ranks_per_node: RanksPerNode = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Samples that each rank takes in a step.")] = None,
    step: Annotated[float, typer.Option(min=0.001, help="Seconds that a step takes.")] = 1.0,
    write: Annotated[bool, typer.Option("--write", help="Also write, read and remove a small object.")] = False,
    storage_option: StorageOption = None,
    as_json: Json = False,
) -> None:
    """Check the storage, the dataset and this machine before a run, and say what to do.

    It shows which credentials are used (never the secrets), measures the storage for two seconds, and checks the
    cache's disk and the limits of the process. It recommends lanes, shuffle block and cache limit for the run given by
    --world-size, --ranks-per-node and --batch-size. It writes to the storage only with --write.

    Exit status: 0 no problem (there may be warnings); 1 a problem.
    """
    from rich.console import Console

    from mdsx.checks.doctor import Job, examine
    from mdsx.storage.cache import Cache

    nodes, _ = nodes_of(world_size, ranks_per_node)
    console = Console(soft_wrap=True, highlight=False, markup=False, emoji=False)
    findings = []
    for finding in examine(
        url,
        job=Job(world_size, nodes, batch_size, step),
        cache=Cache(cache, limit=cache_limit),
        storage_options=storage_options(storage_option),
        write=write,
    ):
        findings.append(finding)
        if not as_json:
            console.print(f"{finding.state:7}", style=_STYLES[finding.state], end="")
            say(f"  {finding.check:14}  {' '.join(finding.found.split())}")
    problems = [finding for finding in findings if finding.state == "problem"]
    if as_json:
        fields = [
            {
                "check": finding.check,
                "state": finding.state,
                "found": finding.found,
                "advice": finding.advice,
                "figures": as_plain(finding.figures),
            }
            for finding in findings
        ]
        print_json({"ok": not problems, "findings": fields})
    else:
        _print_advice(findings)
    if problems:
        raise typer.Exit(1)


def _print_advice(findings: list[Finding]) -> None:
    """Print what to do, problems first, each advice once; then the recommendation as Python."""
    wrong = sorted((each for each in findings if each.advice), key=lambda finding: finding.state)
    advice: dict[str, list[str]] = {}
    for finding in wrong:
        advice.setdefault(str(finding.advice), []).append(finding.check)
    if advice:
        say("\nwhat to do")
        for text, checks in advice.items():
            say(f"  {', '.join(dict.fromkeys(checks))}: {text}")
    python = [finding.figures["python"] for finding in findings if "python" in finding.figures]
    if python:
        say(f"\nrecommended\n  {python[0]}")
