"""docs/from-hf-datasets.md: the run of its programs before the switch, and what its tables have to list.

The environment of Hugging Face's datasets imports this module too.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests.guides.page import Page, methods, parameters, play
from tools.peers import Peer

PAGE = Page("from-hf-datasets")
COMMON = "Arguments of methods"
"""The table of arguments that many methods have."""


def run_before(peer: Peer, directory: str) -> dict[str, Any]:
    """Write files and train on them, in `directory`. Return the batches, and what the page's tables list."""
    import datasets
    from datasets.distributed import split_dataset_by_node
    from torch.utils.data import IterableDataset
    from torchdata.stateful_dataloader import StatefulDataLoader

    os.chdir(directory)
    batches: list[list[int]] = []
    play(PAGE.code("A program, before and after"), Path("write.py"))
    for _run in ("before", "resumed"):
        play(
            PAGE.code("Before"), Path("before.py"), train=lambda tokens, sources: batches.append(tokens[:, 0].tolist())
        )
    kinds = (datasets.Dataset, datasets.IterableDataset)
    given = {
        "shuffle": _named("shuffle", kinds),
        "map": _named("map", kinds),
        "filter": _named("filter", kinds),
        "select, take and skip": [*_named("select", kinds[:1]), *_named("take", kinds), *_named("skip", kinds)],
        "batch": _named("batch", kinds),
        "train_test_split": _named("train_test_split", kinds[:1]),
        "set_format and with_transform": [
            *_named("set_format", kinds[:1]),
            *_named("with_format", kinds),
            *_named("with_transform", kinds[:1]),
        ],
        "State and shards": [
            *_named("state_dict", kinds[1:]),
            *_named("load_state_dict", kinds[1:]),
            *_named("set_epoch", kinds[1:]),
            *_named("to_iterable_dataset", kinds[:1]),
            *_named("shard", kinds),
            *_named("repeat", kinds),
        ],
        "interleave_datasets and concatenate_datasets": [datasets.interleave_datasets, datasets.concatenate_datasets],
        "split_dataset_by_node": [split_dataset_by_node],
        "save_to_disk and push_to_hub": [*_named("save_to_disk", kinds[:1]), *_named("push_to_hub", kinds)],
        "load_dataset": [datasets.load_dataset],
        "DataLoader": [StatefulDataLoader],
    }
    tables = {table: parameters(*calls) for table, calls in given.items()}
    return {"batches": batches, "tables": {**tables, "Methods": methods(kinds, (IterableDataset,))}}


def _named(name: str, kinds: tuple[type, ...]) -> list[Any]:
    return [getattr(kind, name) for kind in kinds]
