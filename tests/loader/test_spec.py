"""What a RunSpec refuses: a transform with the parameters of a random one."""

from __future__ import annotations

import functools
import operator
from pathlib import Path
from typing import Any

import pytest

import mdsx


class Callable:
    def __call__(self, sample: Any, rng: Any) -> Any: ...

    def method(self, sample: Any) -> Any: ...


def keyword_only(sample: Any, *, rng: Any) -> Any: ...


@pytest.mark.parametrize(
    ("transform", "expected"),
    [
        (lambda sample, rng: 0, True),
        (lambda sample, rng, /: 0, True),
        (lambda sample, rng, strength=1: 0, True),
        (lambda sample, rng, *more, **options: 0, True),
        (functools.partial(lambda sample, rng, size: 0, size=3), True),
        (functools.partial(lambda sample, rng: 0), True),
        (Callable(), True),
        (operator.add, True),  # a builtin with a signature
        (lambda sample: 0, False),
        (lambda sample, size=3: 0, False),
        (lambda *samples: 0, False),
        (lambda sample, *rng: 0, False),
        (functools.partial(lambda size, sample: 0, 3), False),
        (functools.partial(lambda sample, rng: 0, rng=3), False),
        (keyword_only, False),
        (Callable().method, False),
        (dict, False),  # no signature
        (lambda sample, rng, more: 0, False),
    ],
)
def test_a_transform_with_two_required_parameters_is_refused(transform: Any, expected: bool, tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path / "d", {"id": "int64"}) as out:
        out.write({"id": 1})
    mdsx.Loader(tmp_path / "d", 1, random_transform=transform)
    if not expected:
        mdsx.Loader(tmp_path / "d", 1, transform=transform)
        return
    with pytest.raises(mdsx.UsageError, match="give it as random_transform="):
        mdsx.Loader(tmp_path / "d", 1, transform=transform)


def test_a_sample_has_one_transform(tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path / "d", {"id": "int64"}) as out:
        out.write({"id": 1})
    with pytest.raises(mdsx.UsageError, match="not both"):
        mdsx.Loader(tmp_path / "d", 1, transform=dict, random_transform=lambda sample, rng: sample)
