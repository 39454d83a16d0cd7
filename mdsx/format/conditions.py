"""Parse conditions on samples, such as `label = 3 and length(tokens) > 64`.

    condition = conjunction *( "or" conjunction )
    conjunction = negation *( "and" negation )
    negation = "not" negation / "(" condition ")" / test
    test = column                                          ; of bools
         / operand compare operand
         / operand ["not"] "between" operand "and" operand
         / operand ["not"] "in" "(" literal *( "," literal ) ")"
         / column "is" ["not"] "null"
    operand = column / "length" "(" column ")" / literal
    compare = "=" / "==" / "!=" / "<>" / "<" / "<=" / ">" / ">="
    literal = number / "true" / "false"
    column = name / DQUOTE any-characters DQUOTE           ; a quote in it is doubled

Keywords may be in any case. The result is a tree of values, which `truth.py` evaluates. Nothing here knows a dataset.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, NoReturn

from mdsx.errors import UsageError, shown

MAX_CONDITION = 2**20
"""Characters of a condition."""

_MAX_DEPTH = 64  # of parentheses and "not"
_MAX_DIGITS = 400

Compare = Literal["=", "!=", "<", "<=", ">", ">="]


@dataclass(frozen=True, slots=True)
class ColumnValue:
    """The value of a column."""

    name: str


@dataclass(frozen=True, slots=True)
class ColumnLength:
    """The length of a sample by a column."""

    name: str


@dataclass(frozen=True, slots=True)
class ColumnNull:
    """Whether the value of a column is null."""

    name: str


Constant = bool | int | float
Reference = ColumnValue | ColumnLength | ColumnNull
Operand = ColumnValue | ColumnLength | Constant


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two operands, at least one of them of a column."""

    left: Operand
    compare: Compare
    right: Operand


@dataclass(frozen=True, slots=True)
class Among:
    """Whether an operand is one of several numbers."""

    operand: ColumnValue | ColumnLength
    numbers: tuple[Constant, ...]


@dataclass(frozen=True, slots=True)
class Negation:
    condition: Condition


@dataclass(frozen=True, slots=True)
class Joined:
    """Several conditions, combined with `and` or `or`."""

    word: Literal["and", "or"]
    conditions: tuple[Condition, ...]


Condition = Comparison | Among | Negation | Joined | ColumnNull | ColumnValue


def parse_condition(text: str) -> Condition:
    """Parse a condition. Raise UsageError that names the character."""
    if not isinstance(text, str):
        raise UsageError("a condition must be text", found=shown(text), expected='such as "label = 3"')
    if len(text) > MAX_CONDITION:
        hint = "choose samples by number: mdsx.Dataset.select(numbers)"
        found, expected = f"{len(text):,} characters", f"at most {MAX_CONDITION:,}"
        raise UsageError("the condition is too long", found=found, expected=expected, hint=hint)
    return _Parser(text).parse()


def references(condition: Condition) -> Iterator[Reference]:
    """Yield the references to columns in a condition, maybe with repetitions."""
    if isinstance(condition, Joined):
        for each in condition.conditions:
            yield from references(each)
    elif isinstance(condition, Negation):
        yield from references(condition.condition)
    elif isinstance(condition, Comparison):
        yield from (each for each in (condition.left, condition.right) if isinstance(each, ColumnValue | ColumnLength))
    elif isinstance(condition, Among):
        yield condition.operand
    else:
        yield condition


class _Token(NamedTuple):
    kind: str
    text: str
    start: int


_TOKEN = re.compile(
    r"""
    (?P<space>[ \t\r\n]+)
    | (?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![A-Za-z0-9_.]))
    | (?P<name>[A-Za-z_][A-Za-z0-9_.]*)
    | (?P<quoted>"(?:[^"]|"")*")
    | (?P<text>'(?:[^']|'')*')
    | (?P<compare><=|>=|<>|!=|==|=|<|>)
    | (?P<mark>[(),])
    | (?P<arithmetic>[-+*/%])
    """,
    re.VERBOSE,
)
_WORDS = ("and", "or", "not", "in", "between", "is", "null", "true", "false")
_COMPARES: dict[str, Compare] = {
    "=": "=", "==": "=", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">=",
}  # fmt: skip
_END = "the end"


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split(text)
        self._at = 0
        self._depth = 0

    def parse(self) -> Condition:
        found = self._condition()
        if self._next.kind != _END:
            self._refuse('"and", "or", or the end')
        return found

    # --- tokens

    def _split(self, text: str) -> Sequence[_Token]:
        tokens, at = list[_Token](), 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                token = _Token("?", text[at], at)
                self._refuse("a column, a number, or a keyword", token)
            kind, found = str(match.lastgroup), match[0]
            if kind == "name" and found.lower() in _WORDS:
                kind, found = found.lower(), found.lower()
            if kind != "space":
                tokens.append(_Token(kind, found, at))
            at = match.end()
        return [*tokens, _Token(_END, _END, len(text))]

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self, *kinds: str) -> _Token | None:
        """If the next token is of one of these kinds, or one of these marks, consume and return it."""
        token = self._next
        if token.kind in kinds or (token.kind == "mark" and token.text in kinds):
            self._at += 1
            return token
        return None

    def _expect(self, kind: str) -> None:
        if self._take(kind) is None:
            self._refuse(f'"{kind}"')

    def _refuse(self, expected: str, token: _Token | None = None, hint: str | None = None) -> NoReturn:
        token = token or self._next
        found = token.text if len(token.text) <= 80 else f"{token.text[:77]}..."
        raise UsageError(
            "not a valid condition",
            place=f"character {token.start + 1} of {shown(self._text, 80)}",
            found=found,
            expected=expected,
            hint=hint or _HINTS.get(token.kind),
        )

    # --- the grammar

    def _condition(self) -> Condition:
        found = [self._conjunction()]
        while self._take("or"):
            found.append(self._conjunction())
        return found[0] if len(found) == 1 else Joined("or", tuple(found))

    def _conjunction(self) -> Condition:
        found = [self._negation()]
        while self._take("and"):
            found.append(self._negation())
        return found[0] if len(found) == 1 else Joined("and", tuple(found))

    def _negation(self) -> Condition:
        token = self._next
        if not self._take("not", "("):
            return self._test()
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            self._refuse(f'at most {_MAX_DEPTH} levels of parentheses and "not"', token)
        if token.kind == "not":
            found: Condition = Negation(self._negation())
        else:
            found = self._condition()
            self._expect(")")
        self._depth -= 1
        return found

    def _test(self) -> Condition:
        token, left = self._next, self._operand()
        compare = self._take("compare")
        if compare is not None:
            right = self._operand()
            self._check_column(token, left, right)
            return Comparison(left, _COMPARES[compare.text], right)
        if self._take("is"):
            negated = self._take("not")
            self._expect("null")
            if not isinstance(left, ColumnValue):
                self._refuse('a column before "is null"', token, "the length of null is 0")
            return Negation(ColumnNull(left.name)) if negated else ColumnNull(left.name)
        negated = self._take("not")
        if self._take("between"):
            low = self._operand()
            self._expect("and")
            high = self._operand()
            self._check_column(token, left, low)
            self._check_column(token, left, high)
            found: Condition = Joined("and", (Comparison(left, ">=", low), Comparison(left, "<=", high)))
        elif self._take("in"):
            found = Among(self._of_column(token, left), self._literals())
        elif negated:
            self._refuse('"in" or "between"')
        elif isinstance(left, ColumnValue):
            return left
        else:
            self._refuse("a comparison")
        return Negation(found) if negated else found

    def _literals(self) -> tuple[Constant, ...]:
        self._expect("(")
        found = [self._literal("a number")]
        while self._take(","):
            found.append(self._literal("a number"))
        self._expect(")")
        return tuple(found)

    def _operand(self) -> Operand:
        if (token := self._take("name")) is not None:
            if token.text.lower() != "length" or not self._take("("):
                return ColumnValue(token.text)
            column = self._take("name", "quoted")
            if column is None:
                self._refuse("a column")
            self._expect(")")
            return ColumnLength(_name(column))
        if (token := self._take("quoted")) is not None:
            return ColumnValue(_name(token))
        return self._literal("a column or a number")

    def _literal(self, expected: str) -> Constant:
        token = self._take("number", "true", "false")
        if token is None:
            self._refuse(expected)
        if token.kind != "number":
            return token.kind == "true"
        if len(token.text) > _MAX_DIGITS:
            self._refuse(f"a number of at most {_MAX_DIGITS} characters", token)
        if token.text.lstrip("+-").isdigit():
            return int(token.text)
        found = float(token.text)
        if math.isinf(found):
            self._refuse("a number that a float64 can hold", token)
        return found

    def _of_column(self, token: _Token, operand: Operand) -> ColumnValue | ColumnLength:
        if not isinstance(operand, ColumnValue | ColumnLength):
            self._refuse("a column or its length", token)
        return operand

    def _check_column(self, token: _Token, left: Operand, right: Operand) -> None:
        if not any(isinstance(each, ColumnValue | ColumnLength) for each in (left, right)):
            self._refuse("a column, or its length, in each comparison", token)


def _name(token: _Token) -> str:
    return token.text[1:-1].replace('""', '"') if token.kind == "quoted" else token.text


_HINTS = {
    "text": "text is never stored at a fixed size, so conditions cannot compare it: use "
    'ds.filter(function, input_columns=["name"]). Double quotes are for the names of columns',
    "arithmetic": "conditions have no arithmetic: use ds.filter(function, input_columns=[...])",
}
