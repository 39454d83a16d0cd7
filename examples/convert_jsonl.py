"""Make a dataset of JSON lines, and read it in batches.

    pip install mdsx
    python convert_jsonl.py folder

The same conversion on the command line: `mdsx convert jsonl 'folder/raw-*.jsonl.gz' folder/corpus --num-workers 2`.
Start it again after a kill, and it continues.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import mdsx

FILES, LINES = 4, 250


def write_lines(folder: Path) -> None:
    """Write what a crawler or an annotation tool might have left: a few files of JSON lines, one line damaged."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(FILES):
        with gzip.open(folder / f"raw-{number}.jsonl.gz", "wt", encoding="utf-8") as file:
            for line in range(LINES):
                messages = [{"role": "user", "content": f"question {line}"}, {"role": "assistant", "content": "..."}]
                page = {"id": number * LINES + line, "score": line / LINES, "messages": messages}
                print(json.dumps(page if line else page | {"lang": "en"}), file=file)
            if number == 2:
                print('{"id": 17, "score": ', file=file)


def main(folder: Path) -> None:
    write_lines(folder)
    conversion = mdsx.convert(
        "jsonl",
        f"{folder}/raw-*.jsonl.gz",
        folder / "corpus",
        columns={"score": "float32"},  # the others are inferred from the first lines
        on_error="skip",
        watch=lambda progress: [print("skipped:", problem) for problem in progress.problems],
    )
    print(conversion.samples, "samples:", dict(conversion.columns))
    loader = mdsx.Loader(folder / "corpus", 100, cache=folder / "cache")
    seen = sorted(int(number) for batch in loader for number in batch["id"])
    print("one epoch has every sample once:", seen == list(range(FILES * LINES)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
