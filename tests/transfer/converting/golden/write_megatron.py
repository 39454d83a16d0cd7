"""Write the golden indexed datasets with the builder of megatron-core 0.16: `python write_megatron.py megatron/`."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

DOCUMENTS = [[[n * 1000 + k for k in range(n % 5)] for _ in range(n % 3 + (n != 4))] for n in range(12)]


def build(prefix: str, dtype: Any, multimodal: bool = False) -> None:
    builder = IndexedDatasetBuilder(f"{prefix}.bin", dtype=dtype, multimodal=multimodal)
    for document in DOCUMENTS:
        for number, tokens in enumerate(document):
            builder.add_item(torch.tensor(tokens, dtype=torch.int64), *([number % 2] if multimodal else []))
        builder.end_document()
    builder.finalize(f"{prefix}.idx")


def main(folder: str) -> None:
    build(f"{folder}/u16", np.uint16)
    build(f"{folder}/i32", np.int32)
    build(f"{folder}/modes", np.int32, multimodal=True)
    builder = IndexedDatasetBuilder(f"{folder}/merged.bin", dtype=np.uint16)
    builder.add_index(f"{folder}/u16")
    builder.add_index(f"{folder}/u16")
    builder.add_document(torch.tensor([1, 2, 3]), [2, 1])
    builder.finalize(f"{folder}/merged.idx")


if __name__ == "__main__":
    main(sys.argv[1])
