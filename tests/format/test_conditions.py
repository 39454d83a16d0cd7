"""The grammar of conditions: what a text means, and where and why it is no condition."""

from __future__ import annotations

import pytest

from mdsx.errors import UsageError
from mdsx.format import ColumnLength, ColumnNull, ColumnValue, parse_condition, references
from mdsx.format.conditions import MAX_CONDITION, Among, Comparison, Condition, Joined, Negation

A, B, LENGTH = ColumnValue("a"), ColumnValue("b"), ColumnLength("a")

MEANINGS: dict[str, Condition] = {
    "a == 3": Comparison(A, "=", 3),
    "3.0 <> a": Comparison(3.0, "!=", A),
    "a = +16777217": Comparison(A, "=", 16777217),
    "a = -2": Comparison(A, "=", -2),
    "a = .5e1": Comparison(A, "=", 5.0),
    "a = -1.": Comparison(A, "=", -1.0),
    "TRUE != a": Comparison(True, "!=", A),
    'Length("a") >= length(a)': Comparison(LENGTH, ">=", LENGTH),
    "length = b": Comparison(ColumnValue("length"), "=", B),
    '"length" = 1': Comparison(ColumnValue("length"), "=", 1),
    '"a ""b""" < b.c_1': Comparison(ColumnValue('a "b"'), "<", ColumnValue("b.c_1")),
    'length("a """) <= 1': Comparison(ColumnLength('a "'), "<=", 1),
    "a in (1, 2.0, false)": Among(A, (1, 2.0, False)),
    "length(a) Not In (7)": Negation(Among(LENGTH, (7,))),
    "a between 1 and b": Joined("and", (Comparison(A, ">=", 1), Comparison(A, "<=", B))),
    "a not between b and 2": Negation(Joined("and", (Comparison(A, ">=", B), Comparison(A, "<=", 2)))),
    "a is null": ColumnNull("a"),
    "a IS NOT NULL": Negation(ColumnNull("a")),
    "not a and b or (a or b)": Joined("or", (Joined("and", (Negation(A), B)), Joined("or", (A, B)))),
    "\t( a\r\n)": A,
}


@pytest.mark.parametrize("text", MEANINGS)
def test_a_text_means_a_condition(text: str) -> None:
    assert repr(parse_condition(text)) == repr(MEANINGS[text])  # 3, 3.0 and true differ


def test_all_references_of_a_condition_are_found() -> None:
    text = "a = length(b) or not (b in (1) and c is null) or 3 < d or e"
    expected = [A, ColumnLength("b"), B, ColumnNull("c"), ColumnValue("d"), ColumnValue("e")]
    assert list(references(parse_condition(text))) == expected


def refused(text: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        parse_condition(text)
    return caught.value


@pytest.mark.parametrize(
    ("text", "character", "found", "expected"),
    [
        ("", 1, "the end", "a column or a number"),
        ("a = ", 5, "the end", "a column or a number"),
        ("a = 3 AND", 10, "the end", "a column or a number"),
        ("a and or b", 7, "or", "a column or a number"),
        ("a = 3 3", 7, "3", '"and", "or", or the end'),
        ("(a) = 3", 5, "=", '"and", "or", or the end'),
        ("a = b = 3", 7, "=", '"and", "or", or the end'),
        ("(a = 3", 7, "the end", '")"'),
        ("a not 3", 7, "3", '"in" or "between"'),
        ("length(a)", 10, "the end", "a comparison"),
        ("3 and a", 3, "and", "a comparison"),
        ("length(3) = 1", 8, "3", "a column"),
        ("length(a = 1", 10, "=", '")"'),
        ("a in 3", 6, "3", '"("'),
        ("a in (b)", 7, "b", "a number"),
        ("a in (1, b)", 10, "b", "a number"),
        ("a in (1", 8, "the end", '")"'),
        ("a between 1, 2", 12, ",", '"and"'),
        ("a is 3", 6, "3", '"null"'),
        ("b or length(a) is null", 6, "length", 'a column before "is null"'),
        ("b or 1 in (1)", 6, "1", "a column or its length"),
        ("b or 1 = 2", 6, "1", "a column, or its length, in each comparison"),
        ("b or 1 between a and 2", 6, "1", "a column, or its length, in each comparison"),
        ("b or 1 between 2 and a", 6, "1", "a column, or its length, in each comparison"),
        ("a = 1e999", 5, "1e999", "a number that a float64 can hold"),
        ("a = -1e999", 5, "-1e999", "a number that a float64 can hold"),
        ("a = 3; b", 6, ";", "a column, a number, or a keyword"),
        ('a = "b', 5, '"', "a column, a number, or a keyword"),
    ],
)
def test_an_error_names_the_character(text: str, character: int, found: str, expected: str) -> None:
    error = refused(text)
    assert error.message == "not a valid condition"
    assert (error.place, error.found) == (f"character {character} of {text!r}", found)
    assert error.expected == expected


def test_an_error_says_what_to_do_instead() -> None:
    assert refused("a = 3 b").hint is None
    assert refused("length(a) is null").hint == "the length of null is 0"
    assert refused("a + 1 = 3").hint == "conditions have no arithmetic: use ds.filter(function, input_columns=[...])"
    assert "use ds.filter(function, input_columns=" in (refused("a = 'it''s'").hint or "")
    assert refused("a = 'it''s'").found == "'it''s'"


def test_an_error_shortens_long_texts() -> None:
    assert refused(f"a {'b' * 80}").found == "b" * 80
    error = refused(f"a {'b' * 81}")
    assert error.found == "b" * 77 + "..."
    assert error.place == f"character 3 of 'a {'b' * 74}..."


def test_a_number_has_at_most_400_characters() -> None:
    assert parse_condition(f"a = {'9' * 400}") == Comparison(A, "=", int("9" * 400))
    error = refused(f"a = {'9' * 401}")
    assert (error.found, error.expected) == ("9" * 77 + "...", "a number of at most 400 characters")
    assert str(error.place).startswith("character 5 of ")


def test_a_condition_has_at_most_64_levels() -> None:
    deepest = "(a) and " + "not (" * 32 + "a" + ")" * 32
    assert parse_condition(f"{deepest} or {deepest}") == Joined("or", (parse_condition(deepest),) * 2)
    text = f"(a) and not {deepest[8:]}"
    error = refused(text)
    assert (error.found, error.expected) == ("(", 'at most 64 levels of parentheses and "not"')
    assert str(error.place).startswith(f"character {text.rindex('(') + 1} of ")


def test_a_condition_is_a_text_of_at_most_a_mebi_of_characters() -> None:
    assert parse_condition("a".ljust(MAX_CONDITION)) == A
    error = refused("a".ljust(MAX_CONDITION + 1))
    assert (error.message, error.found) == ("the condition is too long", "1,048,577 characters")
    assert (error.expected, error.hint) == (
        "at most 1,048,576",
        "choose samples by number: mdsx.Dataset.select(numbers)",
    )
    error = refused(3)  # type: ignore[arg-type]
    assert (error.message, error.found) == ("a condition must be text", "3")
    assert error.expected == 'such as "label = 3"'
