"""A member's name is its sample's key and a column, as the options say; options that cannot be meant are refused."""

from __future__ import annotations

from typing import Any

import pytest

from mdsx import UsageError
from mdsx.convert.names import Names, parse_renames


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        ("0001.jpg", ("0001", "jpg"), ("0001", "jpg")),
        ("x.seg.png", ("x", "seg.png"), ("x.seg", "png")),
        ("cam.00001.jpg", ("cam", "00001.jpg"), ("cam.00001", "jpg")),
        ("2024.01.05.jpg", ("2024", "01.05.jpg"), ("2024.01.05", "jpg")),
        ("a.b/c.jpg", ("a.b/c", "jpg"), ("a.b/c", "jpg")),
        ("./0001.jpg", ("./0001", "jpg"), ("./0001", "jpg")),
        ("/abs/x.tar.gz", ("/abs/x", "tar.gz"), ("/abs/x.tar", "gz")),
        ("X.Seg.PNG", ("X", "seg.png"), ("X.Seg", "png")),
        ("README", ("README", ""), ("README", "")),
        ("a.b/README", ("a.b/README", ""), ("a.b/README", "")),
        ("x.", ("x", ""), ("x", "")),
    ],
)
def test_key_ends_at_the_first_or_last_dot(name: str, first: tuple[str, str], last: tuple[str, str]) -> None:
    """After the last slash."""
    assert Names("first-dot").split(name) == first
    assert Names("last-dot").split(name) == last


def test_several_extensions_become_one_column() -> None:
    for old in ("jpg;.JPEG;png", ["png", "jpg", "jpeg", "jpg"]):
        names = Names.parse("first-dot", {"image": old}, ())
        assert names.columns == {"jpg": "image", "jpeg": "image", "png": "image"}
        assert names == Names.parse("first-dot", {"image": ("jpeg", "jpg", "png")}, ())


def test_renames_are_parsed_and_add_up() -> None:
    assert parse_renames(["a=b;c", "d=e", "a=f"]) == {"a": ("b", "c", "f"), "d": ("e",)}


@pytest.mark.parametrize("text", ["a", "a=", "=b", ""])
def test_a_rename_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"NEW=OLD\[;OLD...\]"):
        parse_renames([text])


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"key_until": "second-dot"}, "key_until is unknown .*expected first-dot or last-dot.*'second-dot'"),
        ({"rename": {"a": "x;y", "b": "y"}}, "extension 'y' is renamed twice .*a, b"),
        ({"rename": {"a": "x;"}}, "NEW=OLD"),
        ({"rename": {"a": []}}, "NEW=OLD"),
        ({"rename": {"__key__": "x"}}, "nothing can be renamed to it"),
        ({"rename": {'a"b': "x"}}, "name"),
        ({"rename": {"a": "x"}, "drop": ["X"]}, "extension 'X' is both renamed and dropped"),
        ({"drop": [""]}, "drop names nothing"),
    ],
)
def test_options_that_contradict_are_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        Names.parse(**{"key_until": "first-dot", "rename": {}, "drop": (), **options})


def test_a_declared_column_that_nothing_becomes_is_refused() -> None:
    names = Names.parse("first-dot", {"image": "jpg", "txt": "text;txt"}, ["json"])
    names.check_declared(["image", "txt", "cls"])
    with pytest.raises(UsageError, match="column 'jpg' is declared, but renamed to 'image'; declare 'image'"):
        names.check_declared(["jpg"])
    with pytest.raises(UsageError, match="column 'json' is declared, but dropped"):
        names.check_declared(["json"])


def test_what_no_member_has_is_named() -> None:
    names = Names.parse("first-dot", {"image": "jpg;webp", "text": "txt"}, ["README", "bak"])
    assert names.unused(["a/README", "a/1.webp", ".bak", "a/1.cls"]) == [
        "--drop bak: no member has this extension or file name; there are cls, webp",
        "--rename text=txt: no member has such an extension; there are cls, webp",
    ]
