"""docs/from-litdata.md: the run of its programs before the switch, and what its tables have to list.

LitData's environment imports this module too.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests.guides.page import Page, parameters, play
from tools.peers import Peer

PAGE = Page("from-litdata")


def run_before(peer: Peer, directory: str) -> dict[str, Any]:
    """Write chunks, train on them, and convert them, in `directory`. Return the batches, and what the tables list."""
    import litdata
    from litdata.streaming.serializers import _SERIALIZERS
    from torch.utils.data import DataLoader

    os.chdir(directory)
    batches: list[list[int]] = []
    write, train = PAGE.blocks("Before")
    play(write, Path("write.py"))
    play(train, Path("before.py"), train=lambda tokens, sources: batches.append(tokens[:, 0].tolist()))
    play(PAGE.code("Convert the data"), Path("convert.py"))
    with_tables = (
        litdata.StreamingDataset,
        litdata.StreamingDataLoader,
        litdata.CombinedStreamingDataset,
        litdata.ParallelStreamingDataset,
        litdata.optimize,
        litdata.map,
    )
    tables = {call.__name__: parameters(call) for call in with_tables}
    tables["StreamingDataLoader"] = parameters(litdata.StreamingDataLoader, DataLoader)
    tables["Other functions"] = [name for name in litdata.__all__ if name not in tables]
    tables["Column types"] = list(_SERIALIZERS)
    return {"batches": batches, "tables": tables}
