"""What the study compares, fixed before it runs: data, model, shuffles, the goal, and when it ends."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

from mdsx.order import Order

GOAL = 0.002  # relative: the default's loss over an exact shuffle's, at most
NARROW = 0.0005  # relative: from the mean to its bound; then no pairs are added
FEWEST_PAIRS = 5
NULL = "exact, again"
CONTROL = "none"
BASELINES = ("exact", "exact, other order")  # of each pair; their mean is what others are compared with
BLOCKS = ((8, 16), (8, 64), (8, 128), (8, 256), (8, 512), (16, 64), (32, 64), (64, 16), (64, 64), (64, 256))
"""Lanes and blocks of mdsx, blocks in shards."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The data and the model.

    Attributes:
        sources: How many sources have text; their shards are stored one source after the other.
        shards: Of each source.
        samples: Of each shard.
        length: Bytes of a sample. All but the first `context` are predicted.
        context: Bytes from which the next is predicted.
        embedding: Numbers for each byte of the context.
        hidden: Units of the hidden layer.
        batch: Samples in a step.
        rate: The learning rate of Adam: it rises in the first `warmup` of the steps and then falls to 0.
        warmup: A share of the steps.
    """

    sources: int = 64
    shards: int = 16
    samples: int = 64
    length: int = 32
    context: int = 8
    embedding: int = 16
    hidden: int = 128
    batch: int = 64
    rate: float = 0.016
    warmup: float = 0.02

    @property
    def all_shards(self) -> int:
        return self.sources * self.shards

    @property
    def all_samples(self) -> int:
        return self.all_shards * self.samples

    @property
    def default(self) -> tuple[int, int]:
        """Return the lanes and the block, in shards, that mdsx uses if none are given."""
        order = Order([self.samples] * self.all_shards)
        return order.lanes, order.shuffle_block // self.samples


STUDY = Setting()


def changed(setting: Setting, given: Iterable[str]) -> Setting:
    """Return a setting with other values, each given as `name=value`. Raise SystemExit if it has no such number."""
    types = {field.name: type(getattr(setting, field.name)) for field in fields(setting)}
    for name, _, value in (each.partition("=") for each in given):
        try:
            setting = replace(setting, **{name: types[name](value)})
        except (KeyError, ValueError):
            raise SystemExit(f"{name}={value} is not a number of the study: {', '.join(types)}") from None
    return setting
