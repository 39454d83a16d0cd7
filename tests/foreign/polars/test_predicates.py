"""Predicates as conditions: true wherever the predicate is, also for forms that Polars itself writes otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from mdsx.foreign.polars import condition_of

TYPES = {"a": "int64", "b": "bool", "t": "str?", "f": "float32", "h": "bfloat16", "j": "json?"}


def less(column: str, number: Any, kind: str = "Int64") -> dict[str, Any]:
    literal = {"Literal": {"Scalar": {kind: number}}}
    return {"BinaryExpr": {"left": {"Column": column}, "op": "Lt", "right": literal}}


def joined(operator: str, left: Any, right: Any) -> dict[str, Any]:
    return {"BinaryExpr": {"left": left, "op": operator, "right": right}}


def function(name: Any, given: Any) -> dict[str, Any]:
    return {"Function": {"input": [given], "function": {"Boolean": name}}}


UNKNOWN = function("IsNan", {"Column": "f"})
ONE, TWO = less("a", 1), {"Column": "b"}


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        (joined("And", ONE, TWO), '("a" < 1 and "b")'),
        (function("Not", joined("And", ONE, TWO)), '(not "a" < 1 or not "b")'),
        (function("Not", joined("LogicalOr", ONE, TWO)), '(not "a" < 1 and not "b")'),
        (joined("And", ONE, UNKNOWN), '"a" < 1'),
        (joined("Or", ONE, UNKNOWN), None),
        (function("Not", joined("And", ONE, UNKNOWN)), None),
        (function("Not", joined("Or", ONE, UNKNOWN)), 'not "a" < 1'),
        (joined("Xor", ONE, TWO), None),
        (function("Not", function("IsNull", {"Column": "t"})), 'not "t" is null'),
        (function("IsNull", {"Column": "j"}), None),  # JSON has a null of its own
        (less("f", None, "Float32"), None),  # NaN, or an infinity
        (less("h", 0.9, "Float32"), None),  # Polars has other numbers
        (less("a", 1, "Int32"), None),
        ({"Anything": {}}, None),
        (None, None),
    ],
)
def test_a_condition_chooses_all_that_a_predicate_does(tree: Any, expected: str | None) -> None:
    assert condition_of(tree, TYPES, lambda condition: True) == expected


def test_what_cannot_be_evaluated_is_left_out() -> None:
    tree = joined("And", ONE, TWO)
    assert condition_of(tree, TYPES, lambda condition: "a" in condition) == '"a" < 1'
