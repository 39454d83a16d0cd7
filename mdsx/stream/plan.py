"""Plan: changes during a run, declared in advance, at thresholds in tokens or samples."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from fractions import Fraction
from typing import Any

from mdsx.errors import UsageError, restated, shown
from mdsx.order import MAX_BATCH, MAX_SAMPLES, Weight, integer
from mdsx.stream.batching import Batching, given_batching
from mdsx.stream.plan_json import described

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "G": 10**9, "T": 10**12}
_AMOUNT = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,20})?) ?([KMBGT]?)")

Proportions = Sequence[Weight] | Mapping[str, Weight]


class Tokens(int):
    """A number of tokens: `mdsx.Tokens("12T")`, `mdsx.Tokens("1.5B")` or `mdsx.Tokens(1_000_000)`.

    K, M, B (or G) and T are 10^3, 10^6, 10^9 and 10^12.

    Raises:
        UsageError: It is not a whole number of tokens.
    """

    def __new__(cls, amount: int | str) -> Tokens:
        found: Any = amount
        if isinstance(amount, str) and (match := _AMOUNT.fullmatch(amount.strip())) is not None:
            exact = Fraction(match[1]) * _UNITS[match[2]]
            found = exact.numerator if exact.denominator == 1 else amount
        if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found < MAX_SAMPLES:
            hint = 'write mdsx.Tokens("1.5T"), or with K, M or B, or an integer'
            raise UsageError("not a number of tokens", found=shown(amount), hint=hint)
        return super().__new__(cls, found)

    def __repr__(self) -> str:
        return f"Tokens({int(self)})"


@dataclass(frozen=True, eq=False)
class Phase:
    """A stretch of a run: what is read, and how it becomes steps. Fields that are None are taken from the previous
    phase; in the first phase, from the loader's arguments.

    Args:
        proportions: The proportion of each component of the mixture: a list in its order, or a mapping from names.
            Components missing from a mapping are not read.
        batching: `mdsx.Pack` or `mdsx.MaxTokens`; in a run of samples, `mdsx.Pad`; in a run of buckets, `mdsx.Buckets`.
        global_batch_size: Samples or rows in a step, over all ranks.
        micro_batch: Samples or rows in a micro-batch, as in StreamingDataLoader.

    Raises:
        UsageError: A number is invalid.
    """

    proportions: Proportions | None = None
    _: KW_ONLY
    batching: Batching | None = None
    global_batch_size: int | None = None
    micro_batch: int | None = None

    def __post_init__(self) -> None:
        for name in ("global_batch_size", "micro_batch"):
            if (value := getattr(self, name)) is not None:
                integer(value, name, 1, MAX_BATCH)
        if self.proportions is not None and not isinstance(self.proportions, Sequence | Mapping):
            raise UsageError("proportions must be a list or a mapping from names", found=shown(self.proportions))
        if self.batching is not None:
            given_batching(self.batching)

    def after(self, before: Phase) -> Phase:
        """Return this phase, with fields that are None taken from the phase `before`."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        if self.global_batch_size is not None and self.micro_batch is None:
            given["micro_batch"] = before.micro_batch
        return replace(before, **{name: value for name, value in given.items() if value is not None})


@dataclass(frozen=True, eq=False)
class Plan:
    """What a run reads, phase by phase, from its start: for `StreamingDataLoader(data, plan=plan)`.

        plan = mdsx.Plan({
            0: mdsx.Phase({"web": 0.8, "code": 0.2}, batching=mdsx.Pack(8192, length="tokens"), global_batch_size=512),
            mdsx.Tokens("12T"): mdsx.Phase({"web": 0.5, "code": 0.2, "math": 0.3}),
        })

    A phase begins at a threshold. In groups (`Pack`, `MaxTokens`), thresholds count planned values over all ranks, such
    as tokens: a phase begins at the end of the window in which the count reaches its threshold. In batches of samples,
    thresholds count samples: a phase begins with the next step, or in batches of one shape (`Buckets`) at the end of
    the window. A phase with other groups begins a new grid of windows; the step before it may have fewer rows. See
    docs/pretraining.md.

    Args:
        phases: A mapping from thresholds to phases. The first threshold is 0; in groups, the others are `mdsx.Tokens`.
        proportions_of: The column of lengths that proportions count, such as "tokens": they are then shares of tokens.
            None: shares of samples.
        max_epochs: The most epochs of some components. `loader.plan()` and `mdsx plan` report where the plan exceeds
            them, before the run. The run itself does not enforce them.
        skip: Ranges of steps [start, stop) to leave out without reading, counted from 0 at the run's start.

    Raises:
        UsageError: A threshold or a range is invalid.
    """

    phases: Mapping[int, Phase]
    _: KW_ONLY
    proportions_of: str | None = None
    max_epochs: Mapping[str, float] | None = None
    skip: Sequence[tuple[int, int]] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.phases, Mapping) or not all(isinstance(each, Phase) for each in self.phases.values()):
            hint = 'write mdsx.Plan({0: mdsx.Phase(...), mdsx.Tokens("1T"): mdsx.Phase(...)})'
            raise UsageError("phases must be a mapping from thresholds to phases", found=shown(self.phases), hint=hint)
        for at in self.phases:
            integer(at, "a threshold of the plan", 0, MAX_SAMPLES)
        if 0 not in self.phases:
            raise UsageError("a plan needs a phase at 0", found=f"thresholds {shown(sorted(self.phases))}")
        if self.proportions_of is not None and not isinstance(self.proportions_of, str):
            hint = 'write proportions_of="tokens"'
            raise UsageError("proportions_of must be the name of a column", found=shown(self.proportions_of), hint=hint)
        if not isinstance(self.max_epochs or {}, Mapping):
            hint = 'write max_epochs={"math": 4}'
            raise UsageError("max_epochs must be a mapping from components", found=shown(self.max_epochs), hint=hint)
        for name, most in (self.max_epochs or {}).items():
            if isinstance(most, bool) or not isinstance(most, int | float) or not most > 0:
                raise UsageError("max_epochs must be above 0", place=f"component {name}", found=shown(most))
        object.__setattr__(self, "phases", {at: self.phases[at] for at in sorted(self.phases)})
        object.__setattr__(self, "skip", checked_skip(self.skip))

    @classmethod
    def from_json(cls, source: str | os.PathLike[str] | Mapping[str, Any]) -> Plan:
        """Return the plan that a JSON or TOML file, or its content, describes: what `mdsx plan` reads.

            {"proportions_of": "tokens", "max_epochs": {"math": 4}, "skip": [[10000, 10300]],
             "phases": {"0": {"proportions": {"web": 0.8, "code": 0.2}, "global_batch_size": 512,
                              "batching": {"kind": "concat", "capacity": 8192, "length": "tokens"}},
                        "12T": {"proportions": {"web": 0.5, "code": 0.2, "math": 0.3}}}}

        Thresholds are text: in a plan of groups, numbers of tokens as for `mdsx.Tokens`. A batching has the `kind`
        "pack", "concat", "max_tokens", "buckets" or "pad", and the arguments of `mdsx.Pack`, `mdsx.MaxTokens`,
        `mdsx.Buckets` or `mdsx.Pad`.

        Raises:
            UsageError: The file cannot be read, or the description is invalid.
        """
        given = described(source, tuple(field.name for field in fields(Phase) if field.name != "_"))
        phases = {at: Phase(**own) for at, own in given["phases"].items()}
        tokens = any(phase.batching is not None and phase.batching.counts_tokens for phase in phases.values())
        file = None if isinstance(source, Mapping) else os.fspath(source)
        number = {at: _threshold(at, file, tokens=tokens) for at in phases}
        if len({*number.values()}) < len(number):
            raise UsageError("two phases begin at the same threshold", file=file, found=shown([*phases]))
        return cls(**{**given, "phases": {number[at]: phase for at, phase in phases.items()}})

    @property
    def complete(self) -> tuple[tuple[int, Phase], ...]:
        """Return the phases by threshold, each with the fields that it takes from the previous phase."""
        found = list[tuple[int, Phase]]()
        for at, phase in self.phases.items():
            found.append((at, phase.after(found[-1][1]) if found else phase))
        return tuple(found)


def _threshold(text: str, file: str | None, *, tokens: bool) -> int:
    try:
        if tokens or not text.isdecimal():
            return Tokens(text)
    except UsageError as error:
        raise restated(error, file=file) from None
    if len(text) > 19:
        raise UsageError("the threshold of a phase is too large", file=file, found=shown(text))
    return int(text)


def checked_skip(given: object) -> tuple[tuple[int, int], ...]:
    """Return ranges of steps in order. Raise UsageError."""
    ranges = list[tuple[int, int]]()
    for each in given if isinstance(given, Sequence) and not isinstance(given, str) else (given,):
        if not isinstance(each, Sequence) or isinstance(each, str) or len(each) != 2:
            hint = "write skip=[(10_000, 10_300)]"
            raise UsageError("skip must be a list of ranges of steps", found=shown(each), hint=hint)
        start, stop = (integer(step, "a step of skip", 0, MAX_SAMPLES) for step in each)
        if start >= stop:
            raise UsageError("a range of steps to skip is empty", found=f"({start}, {stop})")
        ranges.append((start, stop))
    return tuple(sorted(ranges))
