"""`mdsx simulate`: plan a training run."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mdsx.base.sizes import parse_size
from mdsx.cli.command import command
from mdsx.cli.options import (
    Json,
    Lanes,
    RanksPerNode,
    Seed,
    ShuffleBlock,
    StorageOption,
    WorldSize,
    check_page,
    nodes_of,
    storage_options,
    write_page,
)
from mdsx.cli.output import say
from mdsx.errors import UsageError

if TYPE_CHECKING:
    from mdsx.simulate import SimulatedData
    from mdsx.stream import Batching


@command("mdsx simulate s3://bucket/corpus --world-size 64 --ranks-per-node 8 --html plan.html")
def simulate(
    url: Annotated[
        list[str] | None,
        typer.Argument(metavar="URL", help="Datasets; several are mixed. Omit them if you give --samples."),
    ] = None,
    samples: Annotated[
        str | None, typer.Option(metavar="N", help="Make up a dataset of this many samples, such as 1e10.")
    ] = None,
    sample_size: Annotated[str, typer.Option(metavar="SIZE", help="Bytes of a made-up sample.")] = "100kB",
    shard_size: Annotated[str, typer.Option(metavar="SIZE", help="Bytes of a made-up shard.")] = "64MiB",
    proportion: Annotated[
        list[float] | None, typer.Option(metavar="P", help="Each dataset's share of the mixture, in their order.")
    ] = None,
    world_size: WorldSize = 1,
    ranks_per_node: RanksPerNode = None,
    num_workers: Annotated[int, typer.Option(min=0, help="num_workers of each rank's loader.")] = 0,
    batch_size: Annotated[int, typer.Option(min=1, help="Samples of a rank's batch; rows with --pack.")] = 32,
    lanes: Lanes = None,
    shuffle_block: ShuffleBlock = None,
    no_shuffle: Annotated[bool, typer.Option("--no-shuffle", help="Read in the stored order.")] = False,
    seed: Seed = 0,
    drop_last: Annotated[
        bool, typer.Option("--drop-last/--no-drop-last", help="Leave out an epoch's short last batch, as loaders do.")
    ] = True,
    pack: Annotated[
        int | None, typer.Option(min=1, metavar="L", help="Pack samples into rows of this length (mdsx.Pack).")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Length-bounded batches (mdsx.MaxTokens).")
    ] = None,
    length: Annotated[str, typer.Option(metavar="COLUMN", help="The column whose lengths count.")] = "tokens",
    kind: Annotated[str, typer.Option(metavar="pack|concat", help="kind of mdsx.Pack, for --pack.")] = "pack",
    balance: Annotated[
        str | None,
        typer.Option(metavar="LINEAR,QUADRATIC", help="Deal the rows of --pack by cost: balance of mdsx.Pack."),
    ] = None,
    balance_over: Annotated[str, typer.Option(metavar="node|job", help="balance_over of mdsx.Pack.")] = "node",
    micro_batch: Annotated[
        int | None, typer.Option(min=1, metavar="ROWS", help="Rows of a rank's micro-batch, for --balance.")
    ] = None,
    cache_limit: Annotated[str, typer.Option(metavar="SIZE", help="What each node's cache may hold.")] = "500GB",
    link: Annotated[
        str, typer.Option(metavar="SIZE", help="Bytes a second from storage to a node; 0: no limit.")
    ] = "1.25GB",
    latency: Annotated[
        float, typer.Option(min=0, help="Seconds from a request to its first byte, on an idle link.")
    ] = 0.03,
    step: Annotated[float, typer.Option(min=0, help="Seconds of a training step.")] = 0.3,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs to simulate. Long ones are sampled.")] = 1,
    resume_world_size: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Also resume on this many ranks after half of an epoch.")
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
    No sample is read. If a full simulation would take too long, a part is simulated, and the report says which.
    """
    from mdsx.cli.simulation_text import print_report
    from mdsx.order import Shuffle
    from mdsx.simulate import Cluster, Loading, Prices, invented, labels_of, opened, page, simulate

    shuffle: bool | Shuffle = False if no_shuffle else Shuffle(lanes, shuffle_block)
    if html is not None:
        check_page(html)
    if url and samples is not None:
        raise UsageError("give datasets or --samples, not both", found=f"{url[0]} and --samples {samples}")
    batching = _batching(pack, max_tokens, length, kind, balance, balance_over)
    source: SimulatedData
    if url:
        options = storage_options(storage_option)
        source = opened(
            url, proportions=proportion, seed=seed, shuffle=shuffle, batching=batching, storage_options=options
        )
    elif samples is None:
        raise UsageError("no dataset to simulate", hint="give a dataset's URL, or --samples N")
    elif batching is not None or class_column is not None:
        raise UsageError("--pack, --max-tokens and --class-column need a dataset", hint="give its URL")
    else:
        sizes = [
            parse_size(text, name=name) for name, text in (("--sample-size", sample_size), ("--shard-size", shard_size))
        ]
        source = invented(_number(samples), *sizes, seed=seed, shuffle=shuffle)
    rate = None if link.strip() == "0" else parse_size(link, name="--link")
    nodes, ranks = nodes_of(world_size, ranks_per_node)
    cluster = Cluster(nodes, ranks, parse_size(cache_limit, name="--cache-limit"), rate, latency)
    resume = None
    if resume_world_size is not None:
        resume = replace(cluster, nodes=nodes_of(resume_world_size, ranks, name="--resume-world-size")[0])
    report = simulate(
        source,
        cluster,
        Loading(
            batch_size=1 if max_tokens is not None else batch_size,
            num_workers=num_workers,
            drop_last=drop_last,
            step=step,
            micro_batch=micro_batch,
        ),
        Prices(price_requests, price_gb, currency),
        epochs=epochs,
        resume=resume,
        labels=None if class_column is None else labels_of(source, class_column),
        wanted=quality,
        watch=_watch,
    )
    if html is not None:
        write_page(html, page(report))
    if as_json:
        say(report.as_json())
        return
    print_report(report)
    if html is not None:
        say(f"the page with charts: {html}")


def _batching(
    pack: int | None, max_tokens: int | None, length: str, kind: str, balance: str | None, balance_over: str
) -> Batching | None:
    from mdsx.stream import MaxTokens, Pack

    if pack is not None and max_tokens is not None:
        raise UsageError("give --pack or --max-tokens, not both")
    if balance is not None and pack is None:
        raise UsageError("--balance needs --pack")
    if pack is not None:
        given: Any = {"kind": kind, "balance_over": balance_over}
        return Pack(pack, length=length, balance=_costs(balance), **given)
    return None if max_tokens is None else MaxTokens(max_tokens, length=length)


def _costs(text: str | None) -> tuple[int, int] | None:
    """Return the costs in a text such as 49152,1. Raise UsageError."""
    if text is None:
        return None
    linear, _, quadratic = text.partition(",")
    try:
        return int(linear), int(quadratic)
    except ValueError:
        hint = "for attention beside layers of width 4096, give --balance 49152,1"
        raise UsageError("--balance must be two integers", found=text, hint=hint) from None


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
