"""Paired differences and their bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, stdev

from tools.training.setting import BASELINES, CONTROL, FEWEST_PAIRS, GOAL, NARROW

Losses = Mapping[str, float]
"""The loss in validation of each shuffle, of one pair."""


@dataclass(frozen=True, slots=True)
class Difference:
    """By how much the loss of a shuffle exceeds that of an exact shuffle, relative to it.

    Attributes:
        loss: The mean loss, in nats.
        mean: Of the differences of all pairs.
        width: From the mean to each of its one-sided 95 % bounds.
        pairs: How many pairs there are.
    """

    loss: float
    mean: float
    width: float
    pairs: int

    @property
    def upper(self) -> float:
        """Return what the difference is at most."""
        return self.mean + self.width

    @property
    def lower(self) -> float:
        """Return what the difference is at least."""
        return self.mean - self.width


def difference(pairs: Sequence[Losses], name: str) -> Difference:
    """Return the difference of a shuffle from the mean of the exact ones of its pair."""
    found = [pair[name] / fmean(pair[exact] for exact in BASELINES) - 1 for pair in pairs]
    width = t95(len(found) - 1) * stdev(found) / math.sqrt(len(found)) if len(found) > 1 else math.inf
    return Difference(fmean(pair[name] for pair in pairs), fmean(found), width, len(found))


def t95(freedom: int) -> float:
    """Return the 95 % quantile of Student's t: Abramowitz and Stegun, 26.7.5. With 4 degrees of freedom or more, it is
    right to 0.002."""
    z = NormalDist().inv_cdf(0.95)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + math.fsum(term / freedom**power for power, term in enumerate(terms, 1))


def narrow(pairs: Sequence[Losses]) -> bool:
    """Return whether the bounds of all shuffles are as near as wanted. The control's may be wider.

    It depends on widths alone, so that stopping then favours no result.
    """
    names = [name for name in (pairs[0] if pairs else ()) if name != CONTROL and name not in BASELINES]
    return len(pairs) >= FEWEST_PAIRS and all(difference(pairs, name).width < NARROW for name in names)


def verdicts(pairs: Sequence[Losses], default: str) -> dict[str, bool]:
    """Return what must hold, in words, and whether it does."""
    control, ours = difference(pairs, CONTROL), difference(pairs, default)
    return {
        f"the control fails: without a shuffle, the loss is at least {control.lower:+.2%}": control.lower > GOAL,
        f"the default passes: its loss is at most {ours.upper:+.2%}, and the goal is {GOAL:.1%}": ours.upper < GOAL,
    }
