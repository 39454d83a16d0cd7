"""Make a dataset of an indexed dataset of Megatron-LM, and read it packed into rows.

    pip install 'mdsx[parquet]'
    python convert_megatron.py folder

The same conversion on the command line: `mdsx convert megatron folder/corpus_text_document folder/corpus`. Start it
again after a kill, and it continues.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import numpy as np

import mdsx

DOCUMENTS, ROW = 1000, 512


def write_indexed_dataset(prefix: str) -> None:
    """Write what Megatron-LM's tools/preprocess_data.py would: PREFIX.bin with the tokens, and PREFIX.idx."""
    random = np.random.default_rng(0)
    lengths = random.integers(1, 300, DOCUMENTS)
    tokens = random.integers(0, 50_000, lengths.sum()).astype(np.uint16)
    pointers = np.append(0, 2 * lengths.cumsum()[:-1])
    with open(f"{prefix}.bin", "wb") as file:
        file.write(tokens.tobytes())
    with open(f"{prefix}.idx", "wb") as file:
        file.write(struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, 8, DOCUMENTS, DOCUMENTS + 1))  # 8: uint16
        file.write(lengths.astype(np.int32).tobytes() + pointers.astype(np.int64).tobytes())
        file.write(np.arange(DOCUMENTS + 1, dtype=np.int64).tobytes())  # each document is one sequence


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_indexed_dataset(f"{folder}/corpus_text_document")
    conversion = mdsx.convert("megatron", f"{folder}/corpus_text_document", folder / "corpus")
    print(conversion.samples, "samples:", dict(conversion.columns))
    loader = mdsx.Loader(folder / "corpus", 8, batching=mdsx.Pack(ROW, length="tokens"), drop_last=False)
    tokens = np.fromfile(folder / "corpus_text_document.bin", np.uint16)
    seen = sum(int((batch["segment_ids"] > 0).sum()) for batch in loader)
    print("rows of an epoch have every token once:", seen == len(tokens))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
