"""SPDL: a pipeline of threads over files, with its own decoder. It has no format, and its order no seed of its own.

Its decoder needs the libraries of FFmpeg on the machine: `apt-get install ffmpeg`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from ctypes.util import find_library
from pathlib import Path
from typing import Any

from tools.peers import Lazy, Peer, Reading

io, pipeline = Lazy("spdl.io"), Lazy("spdl.pipeline")


class SPDL(Peer):
    name = environment = "spdl"
    title = "SPDL"
    packages = ("spdl", "spdl_io")
    imports = ("spdl.io", "spdl.pipeline", "torch")
    in_bench = in_conformance = in_faults = writes = False  # it has no format

    def loader(self, reading: Reading) -> Any:
        """Return a loader of decoded JPEGs, from a folder of files."""
        if find_library("avcodec") is None:  # SPDL then yields nothing
            raise RuntimeError("it needs the libraries of FFmpeg: apt-get install ffmpeg")
        return _Loader(reading)


class _Loader:
    def __init__(self, reading: Reading) -> None:
        self._reading, self._random = reading, random.Random(reading.seed)
        self._files = sorted(map(str, Path(reading.source).glob("*.jpg")))

    def __iter__(self) -> Iterator[Any]:
        reading = self._reading
        files = self._random.sample(self._files, len(self._files))
        built = (
            pipeline.PipelineBuilder()
            .add_source(files)
            .aggregate(reading.batch_size)
            .pipe(self._decode, concurrency=reading.threads)
            .add_sink(2 * reading.threads)
            .build(num_threads=reading.threads)
        )
        with built.auto_stop():
            yield from built

    def _decode(self, files: list[str]) -> Any:
        size = self._reading.size
        return io.to_torch(io.load_image_batch(files, width=size, height=size))


PEER = SPDL()
