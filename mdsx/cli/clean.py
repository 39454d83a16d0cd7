"""`mdsx clean`: remove leftovers of dead writers that cannot be resumed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from mdsx.base.sizes import format_size, parse_age
from mdsx.cli.command import command
from mdsx.cli.options import DryRun, Json, StorageOption, storage_options
from mdsx.cli.output import Bar, print_json, say

if TYPE_CHECKING:
    from mdsx.base.progress import Progress
    from mdsx.writer.runs import Leftover

_KINDS = {
    "attempt": "attempts that do not count",
    "replaced": "of a dataset that was replaced",
    "unfinished": "unfinished files",
    "record": "records of runs",
}
_LISTED = 1000  # leftovers in JSON; all are counted


@command("mdsx clean s3://bucket/corpus --older-than 7d")
def clean(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="Where something was written: a path or a URL (docs/clouds.md).")
    ],
    older_than: Annotated[
        str, typer.Option(metavar="AGE", help="Remove only leftovers this old: 90m, 12h, 7d, 2w.")
    ] = "24h",
    dry_run: DryRun = False,
    storage_option: StorageOption = None,
    as_json: Json = False,
) -> None:
    """Remove leftovers of dead writers that cannot be resumed: runs of Ray and Spark, and writers that overwrite. These
    are attempts that are not part of the dataset, remains of a dataset that was being replaced, and unfinished files.

    A run counts as dead if its driver gave no sign of life for --older-than, and at least for an hour, by the storage's
    clock. Files of running jobs stay, whatever their age. So do unfinished outputs of `mdsx.Writer` and `mdsx convert`:
    the same program resumes them. If this command is interrupted, run it again.
    """
    from mdsx.writer.runs import clean

    age = parse_age(older_than, name="--older-than")
    with Bar("removing") as bar:

        def watch(progress: Progress) -> None:
            bar.expect(progress.of_size)
            bar.reach(progress.size, "")

        done = clean(url, older_than=age, dry_run=dry_run, storage_options=storage_options(storage_option), watch=watch)
    if as_json:
        amounts = {name: _amounts(found) for name, found in (("removed", done.removed), ("kept", done.kept))}
        lists = {f"{name}_list": [asdict(each) for each in getattr(done, name)[:_LISTED]] for name in amounts}
        print_json({"url": done.url, "dry_run": dry_run, "running": done.running, **amounts, **lists})
        return
    if done.running:
        say(f"still running here: {', '.join(f'run {run}' for run in done.running)}")
    _print("would remove" if dry_run else "removed", done.removed)
    for why in dict.fromkeys(leftover.kept for leftover in done.kept):
        _print("kept", [leftover for leftover in done.kept if leftover.kept == why], f" ({why})")
    if not done.removed:
        say("nothing to remove")


def _print(what: str, leftovers: Iterable[Leftover], why: str = "") -> None:
    """Print one line for each kind and run."""
    found: dict[tuple[str, str | None], list[Leftover]] = {}
    for leftover in leftovers:
        found.setdefault((leftover.kind, leftover.run), []).append(leftover)
    for (kind, run), some in found.items():
        files, size = sum(each.files for each in some), sum(each.size for each in some)
        counted = f"{len(some):,} " if kind == "attempt" else ""
        of = f", of run {run}" if run else ""
        amount = f"{files:,} {'file' if files == 1 else 'files'}, {format_size(size)}"
        say(f"{what} {counted}{_KINDS[kind]}{of}: {amount}{why}")


def _amounts(leftovers: Iterable[Leftover]) -> dict[str, int]:
    leftovers = list(leftovers)
    files = sum(leftover.files for leftover in leftovers)
    return {"leftovers": len(leftovers), "files": files, "size": sum(leftover.size for leftover in leftovers)}
