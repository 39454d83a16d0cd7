"""The pictures of docs/shuffling.md. They have a white background, so that they can be read on a dark page too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter
from numpy.typing import NDArray

from mdsx.order import Order
from mdsx.simulating.buffered import Buffer
from mdsx.simulating.orders import EpochOrder, Exact, Ours, ShardLine, Unshuffled
from mdsx.simulating.py1e import Py1e
from mdsx.simulating.quality import order_map
from tools.shuffling.tables import advice, holding

_INK, _BLUE, _ORANGE = "#222222", "#1f5fa8", "#c2560c"
_POINTS = 4000


def steps(path: Path) -> None:
    """Draw the four steps of an epoch for a tiny dataset: a square is a sample, its colour is the shard."""
    counts, lanes, block = np.full(12, 8), 2, 32
    order = Order(counts, seed=3, epoch=0, lanes=lanes, shuffle_block=block)
    n = len(order)
    stored = np.arange(n) // 8
    line = np.concatenate([order.unshuffled(np.arange(lane, n, lanes))[0] for lane in range(lanes)])
    mixed = np.concatenate([order.locate(np.arange(lane, n, lanes))[0] for lane in range(lanes)])
    epoch = order.locate(np.arange(n))[0]
    figure = Figure(figsize=(9, 3.9), facecolor="white", layout="constrained")
    rows = [
        ("1  stored: 12 shards of 8 samples", stored, ()),
        ("2  shards dealt to 2 lanes, in random order", line, (n // 2,)),
        ("3  samples permuted within blocks of each lane", mixed, _edges(order)),
        ("4  the epoch: lanes take turns", epoch, ()),
    ]
    for axes, (title, shards, edges) in zip(figure.subplots(len(rows)), rows, strict=True):
        axes.imshow(shards[None, :], cmap="tab20", vmin=0, vmax=19, aspect="auto", interpolation="nearest")
        for edge in edges:
            heavy = edge == n // 2
            axes.axvline(edge - 0.5, color="black" if heavy else "white", linewidth=4 if heavy else 2)
        axes.set_title(title, loc="left", fontsize=10, color=_INK)
        axes.set_axis_off()
    figure.savefig(path, dpi=80)


def maps(path: Path) -> None:
    """Draw the order maps of shuffles that hold a tenth of the samples at a time."""
    counts, held = np.full(100, 1000), 10_000
    order = holding(counts, 1, held, 1)
    many = Order(counts, seed=1, lanes=8, shuffle_block=2_000)
    assert order is not None
    line = ShardLine.of(counts, seed=1)
    drawn: list[tuple[str, EpochOrder]] = [
        ("no shuffle", Unshuffled(counts)),
        ("buffer, shards as stored", Buffer(ShardLine.of(counts, shuffle=False), held)),
        ("buffer, shuffled shards", Buffer(line, held)),
        ("py1e", Py1e.holding(held, line)),
        (f"mdsx, {many.lanes} lanes", Ours(many)),
        ("exact shuffle", Exact(len(many))),
    ]
    figure = Figure(figsize=(9, 6), facecolor="white", layout="constrained")
    for axes, (title, one) in zip(figure.subplots(2, 3, sharex=True, sharey=True).ravel(), drawn, strict=True):
        points = order_map(one, _POINTS)
        axes.plot(points.positions, points.numbers, ",", color=_BLUE)
        axes.set_title(title, fontsize=10, color=_INK)
        _plain(axes)
    figure.supxlabel("position in the epoch", fontsize=10)
    figure.supylabel("number of the sample", fontsize=10)
    figure.savefig(path, dpi=80)


def cache(path: Path) -> None:
    """Draw the shards in a batch against the cache of a node, for each number of lanes."""
    found = advice()
    figure = Figure(figsize=(9, 4.2), facecolor="white", layout="constrained")
    left, right = figure.subplots(1, 2, sharex=True)
    lanes = sorted({choice.lanes for choice in found.curve})
    for number, count in enumerate(lanes):
        own = [choice for choice in found.curve if choice.lanes == count]
        sizes = [choice.cache_bytes / 1e9 for choice in own]
        colour = str(0.75 - 0.75 * number / max(1, len(lanes) - 1))
        left.plot(sizes, [choice.distinct_share for choice in own], ".-", color=colour, label=f"{count} lanes")
        right.plot(sizes, [choice.repeated for choice in own], ".-", color=colour)
    for axes, value, title in (
        (left, found.chosen.distinct_share, "shards in a batch, of an exact shuffle"),
        (right, found.chosen.repeated, "repeated in the next batch"),
    ):
        axes.plot([found.chosen.cache_bytes / 1e9], [value], "o", color=_ORANGE, markersize=9, label="the advice")
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: f"{size:g} GB"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:.0%}"))
        axes.set_title(title, fontsize=10, color=_INK)
        axes.set_xlabel("cache of a node")
        axes.set_ylim(bottom=0)
        _plain(axes)
    left.legend(frameon=False, fontsize=9)
    figure.savefig(path, dpi=80)


PICTURES: dict[str, Callable[[Path], None]] = {"steps": steps, "maps": maps, "cache": cache}


def _edges(order: Order) -> list[int]:
    """Return where each block but a lane's first begins, lane after lane."""
    edges, before = list[int](), 0
    for lane in range(order.lanes):
        positions: NDArray[np.int64] = np.arange(lane, len(order), order.lanes)
        firsts, _ = order.blocks_of(positions)
        edges += (before + np.unique((firsts - lane) // order.lanes)[lane == 0 :]).tolist()
        before += len(positions)
    return edges


def _plain(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8, colors=_INK)
    axes.xaxis.set_major_formatter(axes.xaxis.get_major_formatter())
