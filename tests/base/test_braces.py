"""Braces in names expand as in the shell."""

from __future__ import annotations

import subprocess

import pytest

from mdsx import UsageError
from mdsx.base.braces import expand_braces


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain.tar", ["plain.tar"]),
        ("{0..3}", ["0", "1", "2", "3"]),
        ("x-{0008..0011}.tar", ["x-0008.tar", "x-0009.tar", "x-0010.tar", "x-0011.tar"]),
        ("{a,b}", ["a", "b"]),
        ("{a,b}{1..2}", ["a1", "a2", "b1", "b2"]),
        ("{train-{0..1},val}.tar", ["train-0.tar", "train-1.tar", "val.tar"]),
        ("{3..1}", ["3", "2", "1"]),
        ("{0..10..5}", ["0", "5", "10"]),
        ("{a..c}", ["a", "b", "c"]),
        ("{,x}y", ["y", "xy"]),
        ("a{1}b", ["a{1}b"]),
        ("{}", ["{}"]),
        ("{open", ["{open"]),
        ("{a{1,2}", ["{a1", "{a2"]),
        ("{x{1,2}}", ["{x1}", "{x2}"]),
        ("", [""]),
    ],
)
def test_each_form_of_braces_is_expanded(text: str, expected: list[str]) -> None:
    assert expand_braces(text) == expected


@pytest.mark.parametrize(
    "text",
    ["{00..100}", "{-2..2}", "{-02..2}", "{1..05}", "a{b,c{d,e}f}g", "{9..0..3}", "{0..9..0}", "}{a,b}{", "{{a,b},c}"],
)
def test_braces_expand_as_in_bash(text: str) -> None:
    shell = subprocess.run(["bash", "-c", f"printf '%s\\n' {text}"], capture_output=True, text=True, check=True)
    assert expand_braces(text) == shell.stdout.splitlines()


def test_an_excessive_range_is_refused_in_bounded_memory() -> None:
    with pytest.raises(UsageError, match="more than 1,000,000"):
        expand_braces("{0..1000000000000}")
