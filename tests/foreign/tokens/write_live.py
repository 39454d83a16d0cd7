"""Write token files with the tools themselves, in an environment of their own: `write_live.py FOLDER`.

FOLDER/expected.json gets the documents and losses.
"""

from __future__ import annotations

import json
import sys
import types
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

COUNT = 300


def texts() -> list[str]:
    chance = np.random.default_rng(5)
    return [" ".join(f"w{number}" for number in chance.integers(0, 900, chance.integers(1, 80))) for _ in range(COUNT)]


def tokenizer(folder: Path) -> Path:
    """Write a tokenizer that knows all words, and `<eos>`."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {"<eos>": 0, **{f"w{number}": number + 1 for number in range(900)}}
    made = Tokenizer(models.WordLevel(words, unk_token="<eos>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    path = folder / "tokenizer.json"
    made.save(str(path))
    return path


def ids(text: str) -> list[int]:
    return [int(word[1:]) + 1 for word in text.split()]


def with_datatrove(folder: Path) -> dict[str, Any]:
    """The tokenizer of its pipelines, with end-of-text and losses; and its shuffler's files, which it writes too."""
    from datatrove.data import Document
    from datatrove.pipeline.tokens.tokenizer import DocumentTokenizer, TokenizedFile

    step = DocumentTokenizer(
        str(folder / "datatrove"),
        tokenizer_name_or_path=str(tokenizer(folder)),
        eos_token="<eos>",
        save_filename="part",
        shuffle_documents=False,
        save_final_metadata=False,
    )
    list(step.run((Document(text=text, id=str(number)) for number, text in enumerate(texts())), 0, 1) or ())
    losses = TokenizedFile(str(folder / "losses"), "part.ds", save_loss_metadata=True, token_size=4)
    masks = []
    for text in texts():
        masks.append((np.array(ids(text)) % 3 > 0).tolist())
        losses.write(ids(text), np.array(masks[-1]))
    losses.close()
    return {
        "datatrove": [[*ids(text), 0] for text in texts()],
        "losses": [ids(text) for text in texts()],
        "masks": masks,
    }


def with_dolma(folder: Path) -> dict[str, Any]:
    """The writer of its tokenizer, whose package imports taggers that this environment lacks."""
    found = find_spec("dolma")
    assert found is not None
    root = next(iter(found.submodule_search_locations or ()))
    for name in ("dolma", "dolma.tokenizer", "dolma.core"):
        module = types.ModuleType(name)
        module.__path__ = [str(Path(root).joinpath(*name.split(".")[1:]))]
        sys.modules[name] = module
    from dolma.tokenizer.data_types import TokenizerOutput
    from dolma.tokenizer.memmap_writer import MemmapWriter

    with MemmapWriter(str(folder / "dolma" / "part-0-00000"), np.dtype("uint16"), max_tokens=100_000) as out:
        for number, text in enumerate(texts()):
            assert out.write(TokenizerOutput.from_tokens(str(number), "source", number, [*ids(text), 0]))
    return {"dolma": [[*ids(text), 0] for text in texts()]}


def with_megatron(folder: Path) -> dict[str, Any]:
    import torch
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

    (folder / "megatron").mkdir()
    builder = IndexedDatasetBuilder(str(folder / "megatron" / "plain.bin"), dtype=np.uint16)
    for text in texts():
        builder.add_document(torch.tensor(ids(text)), [len(ids(text))])
    builder.finalize(str(folder / "megatron" / "plain.idx"))
    (folder / "sequences").mkdir()
    several = IndexedDatasetBuilder(str(folder / "sequences" / "several.bin"), dtype=np.int32)
    for number, text in enumerate(texts()):
        tokens = ids(text)
        cut = len(tokens) * (number % 3) // 3
        several.add_item(torch.tensor(tokens[:cut]))
        several.add_item(torch.tensor(tokens[cut:]))
        several.end_document()
    several.finalize(str(folder / "sequences" / "several.idx"))
    (folder / "modes").mkdir()
    modes = IndexedDatasetBuilder(str(folder / "modes" / "modes.bin"), dtype=np.uint16, multimodal=True)
    for number, text in enumerate(texts()):
        modes.add_item(torch.tensor(ids(text)), mode=number % 2)
        modes.end_document()
    modes.finalize(str(folder / "modes" / "modes.idx"))
    return {name: [ids(text) for text in texts()] for name in ("megatron", "sequences", "modes")}


if __name__ == "__main__":
    place = Path(sys.argv[1])
    expected = {**with_datatrove(place), **with_dolma(place), **with_megatron(place)}
    (place / "expected.json").write_text(json.dumps(expected))
