"""A mapping shows the file, holds no descriptor, and ends with its last view."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import numpy as np
import pytest

from mdsx.storage.mapping import map_file, mapped


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"))


@pytest.mark.parametrize("size", [1, 4095, 4096, 100_001])
def test_it_shows_the_file_and_holds_no_descriptor(tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    (tmp_path / "file").write_bytes(data)
    before = descriptors(), mapped()
    with open(tmp_path / "file", "rb") as file:
        memory = map_file(file.fileno(), size)
    assert memory[:] == data
    assert memoryview(memory).readonly
    assert (descriptors(), mapped()) == (before[0], before[1] + 1)
    view = np.frombuffer(memory, np.uint8)[size // 2 :]
    del memory
    gc.collect()
    assert view.tobytes() == data[size // 2 :]
    assert mapped() == before[1] + 1
    del view
    gc.collect()
    assert mapped() == before[1]


def test_what_cannot_be_mapped_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="empty"):
        map_file(0, 0)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(OSError, match="device"):
        map_file(descriptor, 10)
    os.close(descriptor)
