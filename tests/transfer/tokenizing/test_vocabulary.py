"""Tokenizers in processes: without the package, with as many threads as each may use, and pickled."""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path

import pytest

import mdsx
from mdsx import UsageError
from mdsx.transfer.tokenizing.vocabulary import FileVocabulary, Vocabulary
from tests import fork_server
from tests.transfer.tokenizing.texts import documents, expected, lines, tokenizer_file, tokens

THREADS = ("RAYON_NUM_THREADS", "TOKENIZERS_PARALLELISM")


def _in_worker(vocabulary: Vocabulary, texts: list[str], set_before: str | None) -> tuple[list[int], list[str | None]]:
    if set_before is not None:
        os.environ["TOKENIZERS_PARALLELISM"] = set_before
    return vocabulary.encode(texts).ids.tolist(), [os.environ.get(name) for name in THREADS]


@pytest.mark.parametrize(
    ("threads", "before", "found"), [(1, None, ["1", "false"]), (4, None, ["4", "true"]), (1, "true", ["1", "true"])]
)
def test_a_worker_uses_its_threads_unless_the_environment_says_otherwise(
    tmp_path: Path, threads: int, before: str | None, found: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in THREADS:
        monkeypatch.delenv(name, raising=False)
    path, texts = tokenizer_file(tmp_path), documents(20)
    vocabulary = FileVocabulary(str(path), threads)
    path.rename(tmp_path / "moved.json")  # a worker needs no file
    ids, environment = fork_server.call(_in_worker, vocabulary, texts, before)
    assert environment == found
    assert ids == [token for row in expected(tmp_path / "moved.json", texts) for token in row]
    assert not any(name in os.environ for name in THREADS)


def test_a_vocabulary_is_pickled_without_its_tokens(tmp_path: Path) -> None:
    vocabulary = FileVocabulary(str(tokenizer_file(tmp_path, 300)), 1)
    assert len(pickle.dumps(vocabulary)) < 1.1 * (tmp_path / "tokenizer-300.json").stat().st_size + 1000
    assert pickle.loads(pickle.dumps(vocabulary)).size == 300


def test_only_bytes_need_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    path = lines(tmp_path / "a.jsonl", ["ba"])
    (tmp_path / "new.json").write_text("{}")
    with pytest.raises(UsageError, match=r"needs the package tokenizers; pip install 'mdsx\[tokenize\]'"):
        mdsx.tokenize(path, tmp_path / "no", tmp_path / "new.json")
    assert tokens(mdsx.tokenize(path, tmp_path / "out", "bytes").url) == [[*b"ba"]]
