"""The dataset of the quickstart: source files of Python's own library, which every machine has."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import mdsx
from mdsx.errors import MissingError

_FOREIGN = {"site-packages", "dist-packages", "__pycache__"}
_BYTES = 20_000  # of a document


def write_documents(url: str, most: int = 1200) -> tuple[int, int]:
    """Write a dataset of up to `most` documents. Return how many there are, and their bytes."""
    columns = {"text": "uint8[*]", "path": "str", "id": "int64"}
    documents = size = 0
    with mdsx.Writer(url, columns, shard_size="256KiB", lengths=["text"]) as out:
        for number, (path, text) in enumerate(islice(_files(), most)):
            out.write({"text": list(text), "path": path, "id": number})
            documents, size = number + 1, size + len(text)
        if not documents:
            raise MissingError("Python's library has no source files here", file=sysconfig.get_path("stdlib"))
    return documents, size


def _files() -> Iterator[tuple[str, bytes]]:
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*.py")):
        inside = path.relative_to(root)
        if not _FOREIGN & set(inside.parts) and (text := path.read_bytes()[:_BYTES]):
            yield inside.as_posix(), text
