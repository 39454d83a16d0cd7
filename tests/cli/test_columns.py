"""Options that declare and rename columns."""

from __future__ import annotations

import pytest

from mdsx import UsageError
from mdsx.cli.columns import parse_declared, parse_renames
from mdsx.foreign.tars import check_declared


def test_declarations_are_parsed_with_names_in_lower_case() -> None:
    declared = parse_declared(["JPG=bytes", "a=b=int64?", "emb.npy=float32[*,3]"], lower=True)
    assert declared == {"jpg": "bytes", "a=b": "int64?", "emb.npy": "float32[*,3]"}


@pytest.mark.parametrize("texts", [["cls"], ["cls=int"], ["cls=int64", "cls=str"], ["__key__=bytes"], ["=str"]])
def test_invalid_declarations_are_refused(texts: list[str]) -> None:
    with pytest.raises(UsageError):
        check_declared(parse_declared(texts, lower=True))


def test_renames_are_parsed_and_add_up() -> None:
    assert parse_renames(["a=b;c", "d=e", "a=f"]) == {"a": ("b", "c", "f"), "d": ("e",)}


@pytest.mark.parametrize("text", ["a", "a=", "=b", ""])
def test_an_invalid_rename_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"NEW=OLD\[;OLD...\]"):
        parse_renames([text])
