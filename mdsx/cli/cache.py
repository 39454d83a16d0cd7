"""`mdsx cache`: show, prune, clear and warm the local cache."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mdsx.base.sizes import SECONDS, format_count, format_size, parse_age, parse_size
from mdsx.cli.command import Commands, command, group
from mdsx.cli.options import DryRun, IndexOption, Json, StorageOption, storage_options
from mdsx.cli.output import LongCall, complain, print_json, say
from mdsx.errors import MdsxError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from mdsx.storage.cache import Amount, CachedDataset, Contents, Removal

_FOREIGN = 5  # foreign files printed; all are counted
_LISTED = 1000  # the same in JSON


class _CacheCommands(Commands):
    """Runs `mdsx cache show` if no command is given."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = ["show", *args]
        return super().parse_args(ctx, args)


caches = group(
    "cache",
    "Show what the local cache holds, and add or remove shards while jobs use it. The default command is show.",
    example="mdsx cache",
    kind=_CacheCommands,
)

CacheOption = Annotated[
    str | None,
    typer.Option("--cache", metavar="DIR", help="The cache's directory. Default: $MDSX_CACHE, else ~/.cache/mdsx"),
]
OneDataset = Annotated[
    str | None,
    typer.Argument(metavar="URL", help="Only this dataset: its URL, or 8 or more digits of its fingerprint."),
]


@command("mdsx cache show s3://bucket/corpus", of=caches)
def show(dataset: OneDataset = None, cache: CacheOption = None, as_json: Json = False) -> None:
    """Show what the cache holds of each dataset, most recently used first: shards, bytes, last use, and how many shards
    are in use. Then show the processes that use the cache, with their limits."""
    from mdsx.storage.cache import contents_of

    directory, now = _directory(cache), time.time()
    only = _fingerprints(directory, dataset)
    found = contents_of(directory, now)
    datasets = [each for each in found.datasets if only is None or each.fingerprint in only]
    if as_json:
        print_json(_fields(found, datasets, now))
        return
    _print_contents(found, datasets, now)


def _print_contents(found: Contents, datasets: Sequence[CachedDataset], now: float) -> None:
    total = sum(each.shards for each in found.datasets)
    limit = "" if found.limit is None else f", of at most {format_size(found.limit)}"
    say(f"{found.directory}: {format_size(found.size)} in {format_count(total, 'shard')}{limit}")
    if datasets:
        say()
        _print_columns(
            [
                ("dataset", "fingerprint", "shards", "size", "last used", "held"),
                *(
                    (
                        " ".join(each.urls) or "(unknown URL)",
                        each.fingerprint[:12],
                        f"{each.shards:,}" + (f" + {each.fetching:,} unfinished" if each.fetching else ""),
                        format_size(each.size),
                        _ago(now - each.used),
                        "unknown" if each.held is None else f"{each.held:,}",
                    )
                    for each in datasets
                ),
            ]
        )
    if found.users:
        say()
        _print_columns(
            [
                ("process", "program", "holds", "limit"),
                *(
                    (str(user.pid), user.name, f"{user.held:,}", "" if user.limit is None else format_size(user.limit))
                    for user in found.users
                ),
            ]
        )
    if found.foreign:
        names = ", ".join(found.foreign[:_FOREIGN]) + (", ..." if len(found.foreign) > _FOREIGN else "")
        say(f"\nnot part of the cache, never removed: {names} ({len(found.foreign):,} in all)")


def _fields(found: Contents, datasets: Sequence[CachedDataset], now: float) -> dict[str, object]:
    import platform

    return {
        "directory": str(found.directory),
        "host": platform.node(),
        "size": found.size,
        "limit": found.limit,
        "datasets": [
            {
                "urls": each.urls,
                "fingerprint": each.fingerprint,
                "shards": each.shards,
                "unfinished": each.fetching,
                "size": each.size,
                "held": each.held,
                "idle_seconds": max(0.0, now - each.used),
            }
            for each in datasets
        ],
        "processes": None
        if found.users is None
        else [{"pid": user.pid, "program": user.name, "held": user.held, "limit": user.limit} for user in found.users],
        "foreign": found.foreign[:_LISTED],
    }


@command("mdsx cache prune --older-than 7d --size 100GB", of=caches)
def prune(
    dataset: OneDataset = None,
    older_than: Annotated[
        str | None,
        typer.Option(metavar="AGE", help="Remove shards unused for this long: 90s, 30m, 12h, 7d, 2w."),
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Then remove the least needed shards, down to this size: 100GB."),
    ] = None,
    cache: CacheOption = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Remove shards that are not needed. Jobs may use the cache meanwhile.

    Shards that a process uses, or that a job needs within ten minutes, stay. A job that needs a removed shard later
    fetches it again.
    """
    from mdsx.storage.cache import prune

    if older_than is None and size is None:
        hint = "to remove all shards that no process uses, run `mdsx cache clear`"
        raise UsageError("give --older-than AGE, --size SIZE or both", hint=hint)
    idle = None if older_than is None else parse_age(older_than, name="--older-than")
    most = None if size is None else parse_size(size, name="--size")
    directory = _directory(cache)
    only = _fingerprints(directory, dataset)
    _report(prune(directory, idle=idle, size=most, fingerprints=only, dry_run=dry_run), dataset, dry_run, as_json)


@command("mdsx cache clear s3://bucket/corpus", of=caches)
def clear(
    dataset: OneDataset = None,
    cache: CacheOption = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Remove all shards that no process uses, or only those of one dataset.

    Running jobs continue: they fetch again what they need. Files that are not part of the cache stay.
    """
    from mdsx.storage.cache import clear

    directory = _directory(cache)
    only = _fingerprints(directory, dataset)
    _report(clear(directory, fingerprints=only, dry_run=dry_run), dataset, dry_run, as_json)


def _report(found: Removal, dataset: str | None, dry_run: bool, as_json: bool) -> None:
    if as_json:
        amounts = {"removed": found.removed, "held": found.held, "needed": found.needed, "left": found.left}
        print_json({"dry_run": dry_run, **{name: {"files": n.files, "size": n.size} for name, n in amounts.items()}})
        return
    left = f"{_amount(found.left)} " + ("in the cache" if dataset is None else f"of {dataset} left")
    say(f"{'would remove' if dry_run else 'removed'} {_amount(found.removed)}; {left}")
    if found.held.files:
        say(f"left {_amount(found.held)} that a process uses: see `mdsx cache`")
    if found.needed.files:
        say(f"left {_amount(found.needed)} that a job has just used or needs soon")


@command("mdsx cache warm s3://bucket/corpus --cache-limit 1TB", of=caches)
def warm(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="A finished dataset: in remote storage, or a compressed local one.")
    ],
    shards: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Only the first N shards. Default: all of them.")
    ] = None,
    cache: CacheOption = None,
    cache_limit: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="The most that the cache may hold. Default: 80 % of the free space."),
    ] = None,
    index: IndexOption = None,
    storage_option: StorageOption = None,
    as_json: Json = False,
) -> None:
    """Fetch a dataset's shards into the cache before a run needs them, several at a time, and check each.

    Run it again to continue after an interruption. To make room, it evicts only shards that were unused for a day.
    Exit status: 0 all shards are cached; 1 an error, or some did not fit.
    """
    from mdsx.shards import Shards, warm
    from mdsx.storage.cache import Cache

    with LongCall("fetching", lambda progress: f"{progress.shards:,} of {progress.of_shards:,} shards") as call:
        kept, options = Cache(cache, limit=cache_limit), storage_options(storage_option)
        opened = Shards(url, cache=kept, storage_options=options, index=index)
        done = warm(opened, first=shards, watch=call.watch)
    assert opened.cache is not None
    if as_json:
        print_json(
            {
                "url": opened.storage.url,
                "directory": str(opened.cache.directory),
                "shards": done.shards,
                "size": done.size,
                "cached": done.cached,
                "fetched": done.fetched,
                "fetched_size": done.fetched_size,
                "busy": done.busy,
                "warnings": call.warnings,
            }
        )
    else:
        fetched = f"{done.fetched:,} fetched now, {format_size(done.fetched_size)}"
        there = "is" if done.shards == 1 else "are"
        say(f"{done.cached:,} of {format_count(done.shards, 'shard')} {there} in {opened.cache.directory}; {fetched}")
    if done.busy:
        complain(f"{format_count(done.busy, 'shard')} left to another process, which is fetching them", kind="")
    if done.cached + done.busy < done.shards:
        missing = format_count(done.shards - done.cached - done.busy, "shard")
        complain(f"no room for {missing}: all cached shards were used within a day; see `mdsx cache prune`", kind="")
    if done.cached < done.shards:
        raise typer.Exit(1)


# --- arguments and text


def _directory(given: str | None) -> Path:
    from mdsx.storage.cache import Cache

    return Cache(given).open().directory


def _fingerprints(directory: Path, dataset: str | None) -> set[str] | None:
    from mdsx.storage import open_storage
    from mdsx.storage.cache import fingerprints_of

    if dataset is None:
        return None
    try:
        url = open_storage(dataset).url  # the form in which the cache recorded it
    except MdsxError:  # it needs options, or a package that is not installed
        url = dataset
    return fingerprints_of(directory, dataset, url)


def _ago(seconds: float) -> str:
    unit = next((unit for unit in "wdhm" if seconds >= 2 * SECONDS[unit]), "s")
    return f"{max(0, int(seconds // SECONDS[unit]))} {unit} ago"


def _amount(amount: Amount) -> str:
    return f"{format_count(amount.files, 'shard')} ({format_size(amount.size)})"


def _print_columns(rows: Sequence[Iterable[str]]) -> None:
    rows = [tuple(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        say("  ".join(f"{text:{width}}" for text, width in zip(row, widths, strict=True)).rstrip())
