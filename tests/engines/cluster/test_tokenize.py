"""`mdsx tokenize` on a Ray cluster: the same bytes as on one machine."""

from __future__ import annotations

from pathlib import Path

import pytest

import mdsx
from tests.engines.cluster.conftest import Cluster
from tests.transfer.converting.reruns import files
from tests.transfer.tokenizing.texts import END, documents, lines, tokenizer_file

pytestmark = [pytest.mark.engines, pytest.mark.timeout(900)]

PROGRAM = """
import sys
import mdsx

folder, tokenizer = sys.argv[1:]
seen = []
options = {"end_of_text": "<|endoftext|>", "shard_size": "8KB", "on_error": "skip"}
done = mdsx.tokenize(folder + "/{0..3}.jsonl", folder + "/rows", tokenizer, rows=64, engine="ray", watch=seen.append,
                     **options)
print(done.tokens, done.documents, done.left_out, done.skipped, seen[-1].tokens == done.tokens + done.left_out)
"""


def test_the_bytes_and_counts_are_those_of_one_machine(cluster: Cluster, tmp_path: Path) -> None:
    long, tokenizer = " ".join(documents(200)), tokenizer_file(tmp_path)
    for number in range(4):  # each is a unit
        path = lines(tmp_path / f"{number}.jsonl", [f"{number} {place} {long}" for place in range(100)])
        path.write_text(path.read_text() + "broken\n")
    given = {"end_of_text": END, "shard_size": "8KB", "on_error": "skip"}
    sources = f"{tmp_path}/{{0..3}}.jsonl"
    right = mdsx.tokenize(sources, tmp_path / "right-rows", tokenizer, rows=64, **given)  # type: ignore[arg-type]
    mdsx.tokenize(sources, tmp_path / "right", tokenizer, keep=["id"], **given)  # type: ignore[arg-type]
    status, printed, errors = cluster.run("-c", PROGRAM, str(tmp_path), str(tokenizer))
    assert (status, errors) == (0, "")
    assert printed == f"{right.tokens} {right.documents} {right.left_out} 4 True\n"
    command = ("-m", "mdsx", "tokenize", sources, f"{tmp_path}/out", "--tokenizer", str(tokenizer), "--engine", "ray")
    options = ("--end-of-text", END, "--keep", "id", "--on-error", "skip", "--shard-size", "8KB")
    status, printed, _ = cluster.run(*command, *options)
    assert status == 3
    assert "400 samples" in printed
    assert files(tmp_path / "out") == files(tmp_path / "right")
    assert files(tmp_path / "rows") == files(tmp_path / "right-rows")
    assert len([*(tmp_path / "out").glob("part-*")]) == 4
