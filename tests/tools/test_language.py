"""Plain English: words that read like a translation do not come back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.check import ALLOWED, ROOT, findings


def test_texts_have_no_words_of_the_list() -> None:
    wrong = list(findings())
    assert not wrong, "\n".join(f"{file}:{line}: {word}" for file, line, word in wrong)


def test_each_allowed_word_is_in_a_file_that_exists() -> None:
    assert all((ROOT / file).exists() for file, _ in ALLOWED)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("# where it stands, as told", ["stands", "told"]),
        ("'''It stands for several, and tells the two apart.'''", []),
        ("stands = told = 1  # names are free", []),
        ("raise ValueError(f'made anew by {stands}')", ["anew", "stands"]),
        ("x = 1  # behind the proxy, not behind them", ["behind"]),
        ("# columns that it has not, so many of them", ["has not", "so many"]),
        ("# it has not been seen", []),
    ],
)
def test_comments_and_strings_are_searched_and_code_is_not(text: str, words: list[str], tmp_path: Path) -> None:
    (tmp_path / "mdsx").mkdir()
    (tmp_path / "mdsx" / "a.py").write_text(text + "\n")
    assert [word for _, _, word in findings(tmp_path)] == words
