"""File names of datasets and of caches are each defined in one module. No other module spells them out."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import xxhash

import mdsx
from mdsx.format import filenames

PACKAGE = Path(mdsx.__file__).parent
HOMES = {PACKAGE / "format" / "filenames.py", PACKAGE / "storage" / "cache" / "filenames.py"}
NAMES = re.compile(
    r"\bindex\.json|\bpart[-.]|\.part\b|_mdsx/|_convert/|\bshard\.|\.mdsx|\.zst\b|mdsx-tmp|journal\.|writer\.json"
    r"|plan\.json|skipped\.json|\brepaired[-.]|before-repair|_lengths/|\.u32\b|tally\.|^lock$|^limits$"
)
NOT_OURS = {PACKAGE / "transfer" / "converting", PACKAGE / "transfer" / "exporting", PACKAGE / "foreign" / "tars"}
"""Tars, and files of other tools, have names of their own, such as `.tar.zst`."""


def test_the_key_of_a_table_names_its_token_file_by_a_hash() -> None:
    key = filenames.token_table("a/b.bin", 7, "0123456789abcdef" * 2)
    assert key == f"_mdsx-tokens/{xxhash.xxh3_64_hexdigest(b'a/b.bin')}-00007-0123456789abcdef.table"
    assert filenames.is_token_table(key)
    assert not filenames.is_token_table(f"{key}x")
    assert not filenames.is_token_table(f"x{key}")


def test_a_shard_is_known_by_its_suffix() -> None:
    assert [filenames.is_shard(key) for key in ("a.mdsx", "a.mdsx.zst", "a.zst", "mdsx", "a.mdsx.x")] == [
        True, True, False, False, False,
    ]  # fmt: skip


def literals(source: str) -> Iterator[tuple[str, int]]:
    """Yield the strings of a module that may be file names: no docstrings, no names that it exports, no spaces."""
    tree = ast.parse(source)
    tree.body = [node for node in tree.body if not ast.unparse(node).startswith("__all__ = ")]
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            for part in node.values:
                if isinstance(part, ast.Constant):
                    yield str(part.value), node.lineno
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " not in node.value:
            yield node.value, node.lineno


def named(source: str, *, tars: bool = False) -> list[tuple[str, int]]:
    found = ((text, line) for text, line in literals(source) if NAMES.search(text))
    return [(text, line) for text, line in found if not (tars and re.search(r"^\.?(tar\.)?(gz|zst|tgz)$", text))]


@pytest.mark.parametrize(
    "source",
    ['key = "index.json"', 'f"part-{number:05d}"', 'f"{url}/index.json: it is missing"', 'key.endswith(".mdsx")'],
)
def test_a_literal_file_name_is_found(source: str) -> None:
    assert named(source)


def test_file_names_are_written_in_one_module() -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)}:{line}: {text!r}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path not in HOMES and path.parent != PACKAGE / "testing"  # tests, which know the files
        for text, line in named(path.read_text(encoding="utf-8"), tars=path.parent in NOT_OURS)
    ]
    assert not wrong, "\n".join(wrong)
