"""Make a dataset with a Python function: tokenize text files, in several processes.

    pip install mdsx
    python build_corpus.py folder

Start it again after a kill, and it continues: finished files are not tokenized again.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import mdsx

FILES, LINES = 20, 50


def write_texts(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(FILES):
        lines = (f"line {line} of text {number}\n" for line in range(LINES))
        (folder / f"{number:03}.txt").write_text("".join(lines), encoding="utf-8")


def tokenize(path: Path) -> Iterator[dict[str, object]]:
    """Yield a sample for each line: here, a token is a byte."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines()):
        yield {"file": path.name, "line": number, "tokens": np.frombuffer(line.encode(), np.uint8).astype(np.uint16)}


def main(folder: Path) -> None:
    write_texts(folder / "texts")
    columns = {"file": "str", "line": "int64", "tokens": "uint16[*]"}
    built = mdsx.build(tokenize, sorted((folder / "texts").glob("*.txt")), folder / "corpus", columns, num_workers=2)
    print(built.samples, "samples")
    rows = mdsx.Loader(
        folder / "corpus", 8, batching=mdsx.Pack(64, length="tokens"), drop_last=False, cache=folder / "cache"
    )
    print(sum(batch["global_samples"] for batch in rows), "samples in packed rows of", batch_shape(rows))


def batch_shape(rows: mdsx.Loader) -> tuple[int, ...]:
    return tuple(next(iter(rows))["tokens"].shape)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
