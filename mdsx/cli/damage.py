"""`mdsx verify` and `mdsx repair`: find damage in a dataset, and repair it."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from mdsx.base.sizes import format_count, format_size
from mdsx.cli.command import command
from mdsx.cli.options import DatasetUrl, IndexOption, Json, StorageOption, storage_options
from mdsx.cli.output import Bar, complain, error_fields, one_line, print_json, say

if TYPE_CHECKING:
    from mdsx.base.progress import Progress
    from mdsx.checks.damage import Repair, ShardRepair, Verification


_LINES = 10  # that `verify` prints for a file; all are counted
_PROBLEMS = 5  # that `repair` prints for a shard
_RANGES = 100  # of lost samples
_LISTED = 1000  # damages or shards in JSON; all are counted
_NumThreads = Annotated[int, typer.Option(min=1, max=256, help="Shards to check at once; each is held in memory.")]


@command("mdsx verify s3://bucket/corpus")
def verify(
    url: DatasetUrl,
    num_threads: _NumThreads = 4,
    index: IndexOption = None,
    storage_option: StorageOption = None,
    as_json: Json = False,
) -> None:
    """Check every byte of a dataset against every checksum that its format has; `mdsx info` names them. Print a line
    for each problem, up to 10 for each file.

    Exit status: 0 undamaged; 1 damaged, or the dataset could not be read.
    """
    from mdsx.checks.damage import unnamed, verify_stored
    from mdsx.shards import OURS
    from mdsx.storage import open_beside, open_storage

    options = storage_options(storage_option)
    files, storage = Counter[str](), open_storage(url, options)
    place = storage if index is None else open_beside(url, index, options)
    with Bar("verifying") as bar:

        def watch(progress: Progress) -> None:
            bar.reach_shards(progress)
            for damage in progress.problems:
                file = damage.file or ""
                files[file] += 1
                if not as_json and files[file] <= _LINES:
                    say(f"damaged: {one_line(damage)}")
                elif not as_json and files[file] == _LINES + 1:
                    say(f"damaged: {file}: and more; see --json")

        found = verify_stored(storage, place, num_threads=num_threads, watch=watch)
    beside = unnamed(storage) if index is None else []
    if as_json:
        print_json(
            {
                "url": found.url,
                "format": found.format,
                "undamaged": found.ok,
                "checks": found.checks,
                "shards": found.shards,
                "samples": found.samples,
                "size": found.size,
                "damaged_files": len(files),
                "damages_found": len(found),
                "damages": [error_fields(damage) for damage in islice(found, _LISTED)],
                "unnamed": beside[:_LISTED],
            }
        )
    else:
        what = f"{_what(found)}, {format_size(found.size)}"
        if beside:
            names = ", ".join(beside[:_LINES]) + (", ..." if len(beside) > _LINES else "")
            say(f"not in the index: {format_count(len(beside), 'file')}: {names}")
        if not found.ok:
            say(f"{format_count(len(found), 'problem')} in {format_count(len(files), 'file')}, found in {what}")
            if found.format in (None, OURS.name):
                complain(f"`mdsx repair {url}` shows what can be kept, and drops the rest if you allow it", kind="")
            else:
                complain("copy the damaged files again from their origin, or write the dataset again", kind="")
        else:
            say(f"undamaged: {what}; checked: {found.checks}")
    if not found.ok:
        raise typer.Exit(1)


def _what(found: Verification | Repair) -> str:
    return f"{format_count(found.samples, 'sample')} in {format_count(found.shards, 'shard')}"


@command("mdsx repair s3://bucket/corpus --drop-damaged")
def repair(
    url: Annotated[str, typer.Argument(metavar="URL", help="A dataset: a path or a URL (docs/clouds.md).")],
    drop_damaged: Annotated[
        bool, typer.Option("--drop-damaged", help="Drop damaged samples. Without it, nothing is dropped.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only report what would be done.")] = False,
    num_threads: _NumThreads = 4,
    storage_option: StorageOption = None,
    as_json: Json = False,
) -> None:
    """Check every byte of a dataset, and repair it: rebuild a missing or damaged index from the shards, and replace
    damaged shards with new ones that have their undamaged samples.

    If a sample would be lost, nothing is changed unless --drop-damaged is given; the samples are listed either way. No
    shard is changed or removed: new shards are written next to them as repaired.*, and a replaced index is kept as a
    copy. If samples are dropped, later samples are renumbered, and states of running jobs no longer load.

    Exit status: 0 undamaged, or repaired; 1 damage remains, or an error.
    """
    import mdsx

    with Bar("checking") as bar:
        done = mdsx.repair(
            url,
            drop_damaged=drop_damaged,
            dry_run=dry_run,
            num_threads=num_threads,
            storage_options=storage_options(storage_option),
            watch=bar.reach_shards,
        )
    if as_json:
        print_json(_repair_fields(done))
    else:
        _print_repair(done, drop_damaged, dry_run)
    if not done.ok:
        raise typer.Exit(1)


def _print_repair(done: Repair, dropping: bool, dry_run: bool) -> None:
    if not done.needed:
        say(f"undamaged: {_what(done)}; nothing to repair")
        return
    for shard in done.damaged:
        _print_shard(shard)
    if done.index != "undamaged":
        _print_index(done)
    what = _what(done)
    lost = _lost(done)
    if done.written:
        say(f"repaired: {what}; {lost}")
        if done.old_index:
            say(f"the previous index: {done.old_index}")
        if done.damaged:
            say("the damaged files are still there; nothing reads them")
        if any(shard.drops for shard in done.damaged):
            say("samples were renumbered: this is another dataset now, and states of running jobs no longer load")
        return
    say(f"nothing was changed: a repair would leave {what}; {lost}")
    if done.drops and not dropping:
        complain("give --drop-damaged to repair it without the damaged samples, or restore undamaged copies", kind="")
    elif dry_run:
        complain("run without --dry-run to repair it", kind="")


def _print_shard(shard: ShardRepair) -> None:
    from mdsx.format import format_ranges

    for problem in shard.problems[:_PROBLEMS]:
        say(f"damaged: {one_line(problem)}")
    if len(shard.problems) > _PROBLEMS:
        say(f"damaged: {shard.file}: and more")
    if shard.samples is None:
        say("  lost: the whole shard; its number of samples is unknown")
    elif not shard.lost:
        say(f"  lost: no sample; all {shard.samples:,} are kept")
    else:
        numbers = format_ranges(shard.lost, most=_RANGES)
        if shard.first is not None:
            numbers += f" ({format_ranges(shard.lost, shard.first, most=_RANGES)} of the dataset)"
        say(f"  lost: {shard.lost_samples:,} of {shard.samples:,} samples: {numbers}")
    if shard.replacement:
        say(f"  replaced by {shard.replacement}")


def _print_index(done: Repair) -> None:
    from mdsx.format import filenames

    if done.index == "missing":
        say(f"damaged: {done.url}/{filenames.INDEX}: not found")
        say("  rebuilt from the shards; metadata, and missing last shards, cannot be recovered")
        return
    say(f"damaged: {one_line(done.index_error)}")
    if done.proven:
        say("  rebuilt from the shards: the original, byte for byte, as its checksum proves")
    else:
        say("  lost: its metadata and any unknown fields; its checksum does not prove that all shards are present")


def _lost(done: Repair) -> str:
    unknown = sum(shard.samples is None for shard in done.damaged)
    lost = f"{done.lost_samples:,} lost" if done.lost_samples or not unknown else ""
    if unknown:
        lost += f"{' and ' if lost else ''}{format_count(unknown, 'shard')} lost completely"
    return lost if done.lost_samples or unknown else "no sample is lost"


def _repair_fields(done: Repair) -> dict[str, object]:
    return {
        "url": done.url,
        "needed": done.needed,
        "written": done.written,
        "index": done.index,
        "index_error": None if done.index_error is None else error_fields(done.index_error),
        "index_proven": done.proven,
        "old_index": done.old_index,
        "samples": done.samples,
        "shards": done.shards,
        "lost_samples": done.lost_samples,
        "damaged_shards": len(done.damaged),
        "fingerprint": done.fingerprint,
        "fingerprint_before": done.was,
        "damaged": [
            {
                "file": shard.file,
                "samples": shard.samples,
                "first": shard.first,
                "lost_samples": shard.lost_samples,
                "lost": shard.lost,
                "replacement": shard.replacement,
                "problems": [error_fields(problem) for problem in shard.problems],
            }
            for shard in done.damaged[:_LISTED]
        ],
    }
