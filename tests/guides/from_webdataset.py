"""docs/from-webdataset.md: the run of its programs before the switch, and what its tables have to list.

webdataset's environment imports this module too.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests.guides.page import Page, methods, parameters, play
from tools.peers import Peer

PAGE = Page("from-webdataset")


def run_before(peer: Peer, directory: str) -> dict[str, Any]:
    """Write the tars and train on them, in `directory`. Return each batch's page numbers, and what the tables list."""
    import webdataset
    import wids
    from torch.utils.data import DataLoader, IterableDataset
    from webdataset.writer import default_handlers

    os.chdir(directory)
    batches: list[list[int]] = []
    play(PAGE.code("A program, before and after"), Path("write.py"))
    play(PAGE.code("Before"), Path("before.py"), train=lambda images, labels, pages: batches.append(pages.tolist()))
    tables = {
        "WebDataset": parameters(webdataset.WebDataset),
        "Methods": methods((webdataset.WebDataset, webdataset.WebLoader), (IterableDataset,)),
        "WebLoader": parameters(webdataset.WebLoader, DataLoader),
        "RandomMix and RoundRobin": parameters(webdataset.RandomMix, webdataset.RoundRobin),
        "SimpleShardList, ResampledShards and MultiShardSample": parameters(
            webdataset.SimpleShardList, webdataset.ResampledShards, webdataset.MultiShardSample
        ),
        "ShardWriter": parameters(webdataset.ShardWriter, webdataset.TarWriter),
        "Column types": sorted(default_handlers),
        "wids": parameters(wids.ShardListDataset),
    }
    return {"batches": batches, "tables": tables}
