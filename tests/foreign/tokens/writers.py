"""Writers of token files, each as the source of its tool has it, without the tool."""

from __future__ import annotations

import csv
import gzip
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Documents = Sequence[NDArray[np.integer]]

_CODES = {"uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "float64": 6, "float32": 7, "uint16": 8}


def documents(count: int, *, dtype: str = "uint16", seed: int = 0, longest: int = 300) -> list[NDArray[np.integer]]:
    """Return random documents, some of them empty, none with token 0."""
    chance = np.random.default_rng(seed)
    lengths = chance.integers(0, longest, count)
    return [chance.integers(1, min(60000, np.iinfo(dtype).max), length).astype(dtype) for length in lengths]


class MegatronBuilder:
    """`IndexedDatasetBuilder` and `_IndexWriter` of megatron/core/datasets/indexed_dataset.py, without torch."""

    def __init__(self, prefix: Path, dtype: str = "uint16", *, multimodal: bool = False) -> None:
        self.prefix, self.dtype, self.multimodal = prefix, np.dtype(dtype), multimodal
        self.data_file = open(f"{prefix}.bin", "wb")  # noqa: SIM115
        self.sequence_lengths: list[int] = []
        self.document_indices = [0]
        self.sequence_modes: list[int] = []

    def add_item(self, tokens: NDArray[np.integer], mode: int = 0) -> None:
        self.data_file.write(np.array(tokens, dtype=self.dtype).tobytes(order="C"))
        self.sequence_lengths.append(len(tokens))
        self.sequence_modes.append(mode)

    def end_document(self) -> None:
        self.document_indices.append(len(self.sequence_lengths))

    def finalize(self) -> None:
        self.data_file.close()
        with open(f"{self.prefix}.idx", "wb") as writer:
            writer.write(b"MMIDIDX\x00\x00")
            writer.write(struct.pack("<Q", 1))
            writer.write(struct.pack("<B", _CODES[self.dtype.name]))
            pointer, pointers = 0, []
            for length in self.sequence_lengths:
                pointers.append(pointer)
                pointer += length * self.dtype.itemsize
            writer.write(struct.pack("<Q", len(self.sequence_lengths)))
            writer.write(struct.pack("<Q", len(self.document_indices)))
            writer.write(np.array(self.sequence_lengths, dtype=np.int32).tobytes(order="C"))
            writer.write(np.array(pointers, dtype=np.int64).tobytes(order="C"))
            writer.write(np.array(self.document_indices, dtype=np.int64).tobytes(order="C"))
            if self.multimodal:
                writer.write(np.array(self.sequence_modes, dtype=np.int8).tobytes(order="C"))


def write_megatron(prefix: Path, texts: Documents, dtype: str = "uint16") -> None:
    """Write documents of one sequence each."""
    builder = MegatronBuilder(prefix, dtype)
    for tokens in texts:
        builder.add_item(tokens)
        builder.end_document()
    builder.finalize()


def write_datatrove(path: Path, texts: Documents, losses: Sequence[NDArray[np.integer]] | None = None) -> None:
    """Write `path` (.ds), its index, and maybe losses: `TokenizedFile` of datatrove."""
    path.write_bytes(b"".join(tokens.tobytes() for tokens in texts))
    ends = np.cumsum([len(tokens) for tokens in texts])
    Path(f"{path}.index").write_bytes(struct.pack(f"<{len(ends)}Q", *ends.tolist()))
    if losses is not None:
        Path(f"{path}.loss").write_bytes(b"".join(each.astype("u1").tobytes() for each in losses))


def write_dolma(path: Path, texts: Documents) -> None:
    """Write `path` (.npy, without a header) and its .csv.gz: `MemmapWriter` of dolma's tokenizer, and its metadata."""
    path.write_bytes(b"".join(tokens.tobytes() for tokens in texts))
    start = 0
    with gzip.open(path.with_suffix(".csv.gz"), "wt", newline="") as file:
        writer = csv.writer(file)
        for number, tokens in enumerate(texts):
            writer.writerow([start, start + len(tokens), f"id-{number}", "s3://bucket/source.jsonl.gz", number + 1])
            start += len(tokens)


def write_llm_c(path: Path, tokens: NDArray[np.integer]) -> None:
    """Write `write_datafile` of llm.c's dev/data/data_common.py."""
    header = np.zeros(256, dtype=np.int32)
    header[0], header[1] = (20240520, 1) if tokens.dtype == np.uint16 else (20240801, 7)
    header[2] = len(tokens)
    path.write_bytes(header.tobytes() + tokens.tobytes())
