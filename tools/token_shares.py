"""How exact shares of tokens are: a mixture of web pages, code and books over 10^9 tokens, from lengths alone.

`mdsx.Groups` computes the rows; nothing is read. If v is the coefficient of variation of a component's lengths, the
tokens of n draws of it are within about 4 v / sqrt(n) of what they are on average, relative to that. The bound of a
share adds up these deviations of all components, in squares.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsx.order import Groups, MixtureOrder
from tools.console import Console
from tools.pages import put_between_marks, table
from tools.processes import ROOT

PAGE = ROOT / "docs" / "mixtures.md"
TOKENS = 10**9
LANES, CAPACITY = 64, 32768


class Source(NamedTuple):
    """A component: its share of the tokens, and documents of lognormal lengths."""

    name: str
    share: Fraction
    documents: int
    median: int
    sigma: float


SOURCES = (
    Source("web", Fraction(6, 10), 400_000, 600, 1.0),
    Source("code", Fraction(1, 10), 100_000, 1500, 1.5),
    Source("books", Fraction(3, 10), 5_000, 90_000, 0.7),
)


class Share(NamedTuple):
    """The tokens of a component after a number of all tokens."""

    source: Source
    all_tokens: int
    tokens: int
    draws: int
    bound: float

    @property
    def error(self) -> float:
        """Return by how much the share is off, relative to itself."""
        return self.tokens / self.all_tokens / float(self.source.share) - 1


def run(given: argparse.Namespace) -> int:
    """Return 0 if each error is within its bound."""
    console = Console()
    with console.step("Table: shares of tokens"):
        found = list(shares(SOURCES, TOKENS))
        text = table(
            ["tokens", "component", "share asked", "share found", "error", "bound"],
            [
                [
                    f"{each.all_tokens:,}",
                    each.source.name,
                    f"{float(each.source.share):.0%}",
                    f"{each.tokens / each.all_tokens:.4%}",
                    f"{each.error:+.3%}",
                    f"± {each.bound:.3%}",
                ]
                for each in found
            ],
            right=(0, 2, 3, 4, 5),
        )
        console.page(text)
        if given.docs:
            put_between_marks(PAGE, "tokens", "shares", text)
    return int(any(abs(each.error) > each.bound for each in found))


def lengths_of(sources: tuple[Source, ...]) -> list[NDArray[np.int64]]:
    """Return the lengths of the documents of each source."""
    random = np.random.default_rng(0)
    drawn = (random.lognormal(math.log(each.median), each.sigma, each.documents) for each in sources)
    return [np.maximum(np.rint(own), 1).astype(np.int64) for own in drawn]


def shares(sources: tuple[Source, ...], tokens: int) -> Iterator[Share]:
    """Yield the shares of all sources after each power of ten of tokens, from 10^6 up to `tokens`."""
    lengths = lengths_of(sources)
    weights = [each.share * each.documents / int(own.sum()) for each, own in zip(sources, lengths, strict=True)]
    order = MixtureOrder([[len(own)] for own in lengths], weights, seed=7, lanes=LANES)
    mean = float(sum(each.share for each in sources) / sum(weights))  # of the lengths of draws
    groups = Groups(
        order,
        np.concatenate(lengths),
        capacity=CAPACITY,
        oversize="split",
        window=2048,
        epoch_samples=int(1.1 * tokens / mean) + 2048 * LANES,
    )
    variations = [float(own.std() / own.mean()) for own in lengths]
    counts, draws, goal = np.zeros(len(sources), np.int64), np.zeros(len(sources), np.int64), 10**6
    for number in range(len(groups)):
        window = groups[number]
        components, _, _ = order.locate(np.arange(*groups.windows[number]))
        of = components[window.positions - groups.windows[number][0]]
        for rows in np.array_split(np.arange(len(window)), 64):  # in the order in which steps take them
            if not len(rows):
                continue
            items = slice(int(window.edges[rows[0]]), int(window.edges[rows[-1] + 1]))
            for counted, values in ((counts, window.sizes[items]), (draws, window.firsts[items] == 0)):
                counted += np.bincount(of[items], values, len(sources)).astype(np.int64)
            if int(counts.sum()) >= goal:
                for place, bound in enumerate(bounds(sources, variations, draws)):
                    yield Share(sources[place], int(counts.sum()), int(counts[place]), int(draws[place]), bound)
                if goal >= tokens:
                    return
                goal *= 10


def bounds(sources: tuple[Source, ...], variations: list[float], draws: NDArray[np.int64]) -> list[float]:
    """Return by how much the share of each source may be off, relative to itself, after that many draws of each."""
    deviations = np.array(variations) / np.sqrt(np.maximum(draws, 1))
    shares = np.array([float(source.share) for source in sources])
    effects = np.eye(len(sources)) - shares  # of each source's tokens on each share
    found: list[float] = (4 * np.sqrt(((effects * deviations) ** 2).sum(axis=1))).tolist()
    return found
