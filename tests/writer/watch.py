"""Looks at a dataset all the while it is written: is there ever anything half-made to be seen?"""

from __future__ import annotations

import struct
from pathlib import Path
from threading import Event, Thread
from types import TracebackType
from typing import Self

from mdsx.format import parse_index
from mdsx.writer.options import shard_number


class Watch:
    """`with Watch(root):` fails at its end if ever a shard was seen that is not whole, or an index that names one that
    is missing or of another size."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._stop = Event()
        self._wrong: list[str] = []
        self._looks = 0
        self._thread = Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        assert self._looks
        assert not self._wrong

    def _run(self) -> None:
        while not self._stop.wait(0.001):
            self._look()
            self._looks += 1
        self._look()

    def _look(self) -> None:
        try:
            index = parse_index((self._root / "index.json").read_bytes())
        except FileNotFoundError:
            index = None
        for shard in range(0 if index is None else len(index.counts)):
            assert index is not None
            path = self._root / index.name(shard)
            if not path.exists() or path.stat().st_size != index.sizes[shard]:
                self._wrong.append(f"the index names {path.name}, which is not there whole")
        for path in self._root.glob("shard.*.mdsx"):
            assert shard_number(path.name) is not None
            try:
                data = path.read_bytes()
            except FileNotFoundError:  # a resume removes what is behind the run
                continue
            if len(data) < 64 or len(data) != struct.unpack_from("<Q", data, 48)[0]:
                self._wrong.append(f"{path.name} is cut")
