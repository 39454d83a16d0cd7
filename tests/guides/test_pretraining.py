"""docs/pretraining.md: its commands and programs run, one after the other, from text to a resumed and changed run."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mdsx import cli
from tests import fork_server
from tests.guides.page import DOCS

pytestmark = pytest.mark.slow
FILES = {"json": "mixture.json", "toml": "plan.toml"}


def run_page(directory: Path) -> dict[str, Any]:
    """Write the sources, and run the page's blocks in order. Return what it shows in the end."""
    os.chdir(directory)
    multiprocessing.set_start_method(None, force=True)  # the default, which is not the fork server
    write_sources()
    session: dict[str, Any] = {"__name__": "page"}
    text, commands = (DOCS / "pretraining.md").read_text(encoding="utf-8"), list[str]()
    for language, code in re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if language == "python":
            exec(compile(code, "pretraining.md", "exec"), session)
        elif language in FILES:
            Path(FILES[language]).write_text(code, encoding="utf-8")
        else:
            for line in code.splitlines():
                run_command(line)
                commands.append(" ".join(line.split()[1:3]))
    consumed = session["consumed"]
    return {
        "commands": commands,
        "tokens": consumed.tokens,
        "steps": consumed.steps,
        "skipped": consumed.skipped_samples,
    }


def write_sources() -> None:
    """Write `web.jsonl`, `code.jsonl`, `megatron/math` and `corpus/books`, which the page has."""
    random = np.random.default_rng(0)
    for name in ("web", "code", "books"):
        with open(f"{name}.jsonl", "w", encoding="utf-8") as file:
            for number in range(1000):
                text = f"{name} {number}: " + "some words " * int(random.integers(1, 20))
                file.write(json.dumps({"text": text}) + "\n")
    run_command("mdsx tokenize books.jsonl corpus/books --tokenizer bytes")
    write_megatron(Path("megatron/math"), [random.integers(0, 256, random.integers(10, 200)) for _ in range(400)])


def write_megatron(folder: Path, documents: list[Any]) -> None:
    """Write an indexed dataset as Megatron does: `.bin` and `.idx`, uint16."""
    folder.mkdir(parents=True)
    sizes = np.array([len(document) for document in documents], np.int32)
    offsets = np.concatenate([[0], np.cumsum(sizes[:-1], dtype=np.int64) * 2]).astype(np.int64)
    np.concatenate(documents).astype("<u2").tofile(folder / "math.bin")
    with (folder / "math.idx").open("wb") as index:
        index.write(b"MMIDIDX\x00\x00" + np.uint64(1).tobytes() + np.uint8(8).tobytes())
        index.write(np.uint64(len(sizes)).tobytes() + np.uint64(len(sizes) + 1).tobytes())
        index.write(sizes.tobytes() + offsets.tobytes() + np.arange(len(sizes) + 1, dtype=np.int64).tobytes())


def run_command(line: str) -> None:
    sys.argv = shlex.split(line, comments=True)
    process = multiprocessing.Process(target=cli.main)  # a fork: an interpreter takes 0.5 s to start
    process.start()
    process.join()
    assert process.exitcode == 0, line


def test_the_page_goes_from_text_to_a_changed_run(tmp_path: Path) -> None:
    found = fork_server.call(run_page, tmp_path, timeout=280)
    expected = ["tokenize web.jsonl", "tokenize code.jsonl", "index megatron", "plan plan.toml", "trace plan.toml"]
    assert found["commands"] == [*expected, "trace plan.toml"]
    assert found["steps"] == 120
    assert list(found["tokens"]) == ["web", "code", "math", "books"]
    assert found["tokens"]["books"] > 0
    assert found["skipped"] > 0
