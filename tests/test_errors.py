"""The tree of errors is as drawn in its module. Errors name place, cause and way out, in every process."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pytest

import mdsx
from mdsx import errors

CLASSES = [getattr(errors, name) for name in errors.__all__]


def drawn_tree() -> dict[str, str]:
    """Class -> parent, from the drawing in the module's docstring."""
    assert errors.__doc__ is not None
    parents: dict[str, str] = {}
    path: list[str] = []
    for line in errors.__doc__.splitlines():
        match = re.match(r"((?:│   |    )*)(├── |└── )?([A-Z]\w*Error)\b", line)
        if match is None:
            continue
        depth = len(match[1]) // 4 + bool(match[2])
        del path[depth:]
        parents[match[3]] = path[-1] if path else "Exception"
        path.append(match[3])
    return parents


def test_the_drawn_tree_matches_the_classes() -> None:
    actual = {kind.__name__: kind.__bases__[0].__name__ for kind in CLASSES}
    assert drawn_tree() == actual


def test_each_error_is_on_the_public_page() -> None:
    assert all(getattr(mdsx, kind.__name__) is kind and kind.__name__ in mdsx.__all__ for kind in CLASSES)


def test_a_usage_error_is_a_value_error() -> None:
    assert issubclass(mdsx.UsageError, ValueError)


@pytest.mark.parametrize("kind", CLASSES)
def test_the_text_has_every_attribute(kind: type[errors.MdsxError]) -> None:
    error = kind("the size differs", file="s3://b/x", place="header", found=7, expected=8, hint="fetch it again")
    assert str(error) == "s3://b/x: header: the size differs (expected 8, found 7); fetch it again"
    assert (error.file, error.place, error.found, error.expected, error.hint) == (
        "s3://b/x",
        "header",
        7,
        8,
        "fetch it again",
    )


def test_unknown_attributes_are_left_out() -> None:
    assert str(mdsx.MdsxError("it failed")) == "it failed"
    assert str(mdsx.MdsxError("it failed", place="row 3", found=0)) == "row 3: it failed (found 0)"


@pytest.mark.parametrize("kind", CLASSES)
def test_an_error_keeps_its_attributes_across_processes(kind: type[errors.MdsxError]) -> None:
    error = kind("the size differs", file="s3://b/x", place="header", found=0, expected=8, hint="fetch it again")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error)
    assert (again.file, again.place, again.found, again.expected, again.hint) == (
        error.file,
        error.place,
        error.found,
        error.expected,
        error.hint,
    )


def test_values_are_shown_in_one_line() -> None:
    assert errors.shown(np.eye(2)) == "array([[1., 0.], [0., 1.]])"
