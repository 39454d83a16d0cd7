"""`mdsx simulate`: plan a training run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mdsx.cli.output import Json, StorageOption, say, storage_options
from mdsx.errors import UsageError
from mdsx.sizes import parse_size

if TYPE_CHECKING:
    from mdsx.simulating import Source
    from mdsx.stream import Layout

SIMULATE_EXAMPLE = "mdsx simulate s3://bucket/corpus --nodes 8 --ranks 8 --cache 500GB --html plan.html"


def simulate(
    url: Annotated[
        list[str] | None,
        typer.Argument(metavar="URL", help="Datasets; several are mixed. None: give --samples, for made-up data."),
    ] = None,
    samples: Annotated[
        str | None, typer.Option(metavar="N", help="Make up a dataset of this many samples, such as 1e10.")
    ] = None,
    sample_size: Annotated[str, typer.Option(metavar="SIZE", help="Bytes of a made-up sample.")] = "100kB",
    shard_size: Annotated[str, typer.Option(metavar="SIZE", help="Bytes of a made-up shard.")] = "64MiB",
    weight: Annotated[
        list[float] | None, typer.Option(metavar="W", help="The weight of each dataset of a mixture, in their order.")
    ] = None,
    nodes: Annotated[int, typer.Option(min=1, help="Machines.")] = 1,
    ranks: Annotated[int, typer.Option(min=1, help="Training processes on each machine.")] = 1,
    workers: Annotated[int, typer.Option(min=0, help="num_workers of each rank's loader.")] = 0,
    batch_size: Annotated[int, typer.Option(min=1, help="Samples of a rank's batch; rows with --pack.")] = 32,
    lanes: Annotated[int, typer.Option(min=1, help="lanes of mdsx.Shuffle.")] = 8,
    shuffle_block: Annotated[int | None, typer.Option(min=1, help="shuffle_block of mdsx.Shuffle.")] = None,
    no_shuffle: Annotated[bool, typer.Option("--no-shuffle", help="In the stored order.")] = False,
    seed: Annotated[int, typer.Option(help="seed of the order.")] = 0,
    drop_last: Annotated[bool, typer.Option("--drop-last", help="Leave out an epoch's short last batch.")] = False,
    pack: Annotated[
        int | None, typer.Option(min=1, metavar="L", help="Pack samples into rows of this length (mdsx.Pack).")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Length-bounded batches (mdsx.MaxTokens).")
    ] = None,
    length: Annotated[str, typer.Option(metavar="COLUMN", help="The column whose length counts.")] = "tokens",
    cache: Annotated[str, typer.Option(metavar="SIZE", help="What each node's cache may hold.")] = "500GB",
    link: Annotated[
        str, typer.Option(metavar="SIZE", help="Bytes a second from storage to a node; 0: no limit.")
    ] = "1.25GB",
    latency: Annotated[
        float, typer.Option(min=0, help="Seconds from a request of mdsx to its first byte, on an idle link.")
    ] = 0.03,
    step: Annotated[float, typer.Option(min=0, help="Seconds of a training step.")] = 0.3,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs to simulate, if that is quick; else a part of one.")] = 1,
    resume_nodes: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Also: continue on this many machines at half of an epoch.")
    ] = None,
    price_requests: Annotated[float, typer.Option(min=0, help="Price of 1,000 requests.")] = 0.0004,
    price_gb: Annotated[float, typer.Option(min=0, help="Price of 10^9 bytes from storage.")] = 0.0,
    currency: Annotated[str, typer.Option(help="The unit of prices.")] = "USD",
    class_column: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Count this column's values in a batch, and not shards.")
    ] = None,
    quality: Annotated[
        float, typer.Option(min=0.01, max=1, help="Advise for this share of an exact shuffle's quality.")
    ] = 0.9,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page with charts.")] = None,
    storage_option: StorageOption = None,
    as_json: Json = False,
) -> None:
    """Plan a training run before it costs money: bytes, requests, cache, waits, cost, and the quality of the shuffle.

    The loader's own code for order, prefetch and eviction runs on the dataset's index with a simulated clock and link.
    No sample is read. What takes too long to simulate as a whole is sampled, and the report says how.
    """
    from mdsx.cli.plan_text import print_report
    from mdsx.order import Shuffle
    from mdsx.simulating import Cluster, Loading, Prices, invented, labels_of, opened, page, simulate

    shuffle: bool | Shuffle = False if no_shuffle else Shuffle(lanes, shuffle_block)
    if html is not None:
        _check_page(html)
    if url and samples is not None:
        raise UsageError("give datasets or --samples, not both", found=f"{url[0]} and --samples {samples}")
    layout = _layout(pack, max_tokens, length)
    source: Source
    if url:
        options = storage_options(storage_option)
        source = opened(url, weights=weight, seed=seed, shuffle=shuffle, layout=layout, storage_options=options)
    elif samples is None:
        raise UsageError("there is nothing to simulate", hint="give a dataset's URL, or --samples N")
    elif layout is not None or class_column is not None:
        raise UsageError("--pack, --max-tokens and --class-column need a dataset", hint="give its URL")
    else:
        sizes = [
            parse_size(text, name=name) for name, text in (("--sample-size", sample_size), ("--shard-size", shard_size))
        ]
        source = invented(_number(samples), *sizes, seed=seed, shuffle=shuffle)
    rate = None if link.strip() == "0" else parse_size(link, name="--link")
    cluster = Cluster(nodes, ranks, parse_size(cache, name="--cache"), rate, latency)
    resume = None if resume_nodes is None else Cluster(resume_nodes, ranks, cluster.cache, cluster.rate, latency)
    report = simulate(
        source,
        cluster,
        Loading(1 if max_tokens is not None else batch_size, workers, 2, drop_last, step),
        Prices(price_requests, price_gb, currency),
        epochs=epochs,
        resume=resume,
        labels=None if class_column is None else labels_of(source, class_column),
        wanted=quality,
        watch=_watch,
    )
    if html is not None:
        try:
            html.write_text(page(report), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"the page cannot be written: {error.strerror}", file=str(html)) from error
    if as_json:
        say(report.as_json())
        return
    print_report(report)
    if html is not None:
        say(f"the page with charts: {html}")


def _check_page(path: Path) -> None:
    """Raise UsageError before a long simulation if the page cannot be written."""
    if path.is_dir():
        raise UsageError("--html names a folder", file=str(path), hint="give the name of a file, such as plan.html")
    if not path.absolute().parent.is_dir():
        raise UsageError("--html is in a folder that does not exist", file=str(path), hint="create the folder first")


def _layout(pack: int | None, max_tokens: int | None, length: str) -> Layout | None:
    from mdsx.stream import MaxTokens, Pack

    if pack is not None and max_tokens is not None:
        raise UsageError("give --pack or --max-tokens, not both")
    if pack is not None:
        return Pack(pack, length=length)
    return None if max_tokens is None else MaxTokens(max_tokens, length=length)


def _number(text: str) -> int:
    """Return a number such as 1e10 or 10_000. Raise UsageError."""
    try:
        number = float(text)
        if number != int(number) or not 1 <= number <= 1e18:
            raise ValueError
        return int(number)
    except (ValueError, OverflowError):
        raise UsageError("--samples must be a whole number of at least 1, such as 1e10", found=text) from None


def _watch(text: str) -> None:
    if sys.stderr.isatty():
        say(f"simulating: {text}", to=sys.stderr)
