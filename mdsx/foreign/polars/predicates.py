"""Translate Polars predicates to conditions of mdsx (`format/conditions.py`), if these can express them.

A condition is true for every row for which the predicate is true, and possibly for more: Polars filters again. So an
untranslatable part of an `and` is left out, and an `or` with such a part is left out as a whole.

Negations are pushed down to the comparisons, because the negation of "possibly more" would be "possibly fewer".
Semantics differ in two cases:
- In Polars, NaN equals NaN and is greater than all numbers. A condition follows IEEE 754, where NaN is never greater.
  So only <, <= and = are used, negated for the others: `f > 1` becomes `not f <= 1`, which is true for NaN.
- In Polars, the length of null is null, and the row is not selected. In a condition it is 0, and may be selected.

The tree is Polars' JSON, in which numbers have the type of the column that they are compared with, and NaN and
infinities are null. Anything unknown is not translated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

_INTEGERS = {f"{sign}int{bits}": f"{sign.upper()}Int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
_FLOATS = {f"float{bits}": f"Float{bits}" for bits in (32, 64)}  # Polars reads types that Arrow lacks as other types
_NUMBERS = _INTEGERS | _FLOATS
_NULLABLE = re.compile(r"(bool|u?int\d+|float(16|32|64)|str|bytes)(\[[\d*,]+\])?\??")  # an object's null may be a value
_COMPARES = {  # operator -> (the condition's operator, whether it is negated)
    "Lt": ("<", False), "LtEq": ("<=", False), "Gt": ("<=", True), "GtEq": ("<", True), "Eq": ("=", False),
    "NotEq": ("=", True),
}  # fmt: skip
_JOINED = {"And": "and", "LogicalAnd": "and", "Or": "or", "LogicalOr": "or"}
_BOUNDS = {"Both": ("GtEq", "LtEq"), "Left": ("GtEq", "Lt"), "Right": ("Gt", "LtEq"), "None": ("Gt", "Lt")}


def condition_of(tree: Any, types: Mapping[str, str], known: Callable[[str], bool]) -> str | None:
    """Return a condition that is true wherever a predicate is true; None if nothing can be translated.

    `tree`: the predicate as Polars' JSON. `types`: the columns and their types. `known`: whether a condition without
    `and`, `or` and `not` can be evaluated.
    """
    return _Translator(types, known).translate(tree, negated=False)


class _Translator:
    def __init__(self, types: Mapping[str, str], known: Callable[[str], bool]) -> None:
        self._types, self._known = types, known

    def translate(self, tree: Any, *, negated: bool) -> str | None:
        """Return the condition for a predicate, or for its negation."""
        try:
            return self._known_form(tree, negated)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError):  # an unknown form
            return None

    def _known_form(self, tree: Any, negated: bool) -> str | None:
        ((kind, body),) = tree.items()
        if kind == "Column" and _plain(self._types[body]) == "bool":
            return self._test(_quoted(body), negated)
        if kind == "Function":
            return self._function(body["input"], body["function"].get("Boolean"), negated)
        operator = body["op"]
        if operator in _COMPARES:
            return self._compared(body["left"], operator, body["right"], negated)
        parts = [self.translate(body[side], negated=negated) for side in ("left", "right")]
        return _joined(_JOINED[operator], parts, negated)

    def _function(self, given: list[Any], name: Any, negated: bool) -> str | None:
        if name == "Not":
            return self.translate(given[0], negated=not negated)
        if name in ("IsNull", "IsNotNull"):
            column = given[0]["Column"]
            found = _NULLABLE.fullmatch(self._types[column])
            return self._test(f"{_quoted(column)} is null", negated != (name == "IsNotNull")) if found else None
        signs = _BOUNDS[name["IsBetween"]["closed"]]
        bounds = zip(signs, given[1:], strict=True)
        return _joined("and", [self._compared(given[0], sign, bound, negated) for sign, bound in bounds], negated)

    def _compared(self, left: Any, operator: str, right: Any, negated: bool) -> str | None:
        ((kind, number),) = right["Literal"]["Scalar"].items()
        if isinstance(number, bool) or not isinstance(number, int | float):
            return None
        sign, turned = _COMPARES[operator]
        if "Column" in left:
            column = left["Column"]
            if kind != _NUMBERS.get(_plain(self._types[column])):
                return None
            return self._test(f"{_quoted(column)} {sign} {number!r}", negated != turned)
        (given,), function = left["Function"]["input"], left["Function"]["function"]
        column = given["Column"]
        if kind != "UInt32" or not _measured(function, self._types[column]):
            return None
        return self._test(f"length({_quoted(column)}) {sign} {number!r}", negated != turned)

    def _test(self, condition: str, negated: bool) -> str | None:
        if not self._known(condition):
            return None
        return f"not {condition}" if negated else condition


def _joined(word: str, parts: list[str | None], negated: bool) -> str | None:
    """Join translated parts. Missing parts may be true."""
    if negated:
        word = "or" if word == "and" else "and"
    found = [part for part in parts if part is not None]
    if not found or (word == "or" and len(found) < len(parts)):
        return None
    return found[0] if len(found) == 1 else "(" + f" {word} ".join(found) + ")"


def _measured(function: Any, kind: str) -> bool:
    """Return whether a Polars function is a column's length as mdsx defines it."""
    if function == {"ListExpr": "Length"}:
        base, bracket, shape = _plain(kind).partition("[")
        return bracket + shape == "[*]" and (base == "bool" or base in _NUMBERS)
    return function == {"StringExpr": "LenBytes"} and _plain(kind) == "str"


def _plain(kind: str) -> str:
    return kind.removesuffix("?")


def _quoted(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'
