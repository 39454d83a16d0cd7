"""What the tests of the page share: a dataset with a column of each kind, and a server in a thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import mdsx
from mdsx.view import Library, Opening, serve
from mdsx.view.pictures import png

COLUMNS = {
    "caption": "str",
    "image": "png",
    "audio": "float32[*]",
    "tokens": "uint16[*]",
    "info": "json",
    "raw": "bytes",
    "score": "float64?",
}
SAMPLES = 120


def sample(number: int) -> dict[str, object]:
    pixels = np.full((20, 30, 3), number, np.uint8)
    return {
        "caption": f"caption {number} of a red fox" if number % 10 == 7 else f"caption {number}",
        "image": png(pixels),
        "audio": np.sin(np.arange(500, dtype=np.float32) / 20),
        "tokens": np.array([3, 1, 2], np.uint16),
        "info": {"id": number, "tags": ["a", "b"], "deep": {"deeper": {"deepest": True}}},
        "raw": bytes(range(64)),
        "score": None if number % 2 else number / 3,
    }


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("viewing") / "pictures"
    with mdsx.Writer(path, COLUMNS, shard_size=40_000, metadata={"title": "a test", "parts": [1, 2]}) as out:
        for number in range(SAMPLES):
            out.write(sample(number))
    return path


@contextmanager
def served(*urls: object, opening: Opening | None = None) -> Iterator[str]:
    """Serve datasets; yield the address of the page."""
    with serve(Library([str(url) for url in urls], opening or Opening())) as server:
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            yield server.address
        finally:
            server.stop()
            thread.join(10.0)
            assert not thread.is_alive()
