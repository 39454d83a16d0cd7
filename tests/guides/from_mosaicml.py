"""docs/from-mosaicml.md: the run of its programs before the switch, and what its tables have to list.

mosaicml-streaming's environment imports this module too.
"""

from __future__ import annotations

import inspect
import os
import re
from typing import Any

from tests.guides.page import Page, parameters
from tools.peers import Peer

PAGE = Page("from-mosaicml")


def code(heading: str, url: str) -> str:
    """Return the Python below a heading, with `url` instead of its bucket."""
    return PAGE.code(heading).replace("s3://bucket", url)


def run_before(peer: Peer, directory: str, url: str) -> dict[str, Any]:
    """Write the dataset and train on it, in `directory`. Return the batches, and what the page's tables list."""
    import streaming
    from streaming.base.format.base.writer import Writer
    from streaming.base.format.mds.encodings import get_mds_encodings
    from torch.utils.data import DataLoader

    os.chdir(directory)
    batches: list[list[int]] = []
    session = {"train": lambda tokens, sources: batches.append(tokens[:, 0].tolist())}
    for heading in ("A program, before and after", "Before"):
        exec(code(heading, url), session)
    more = re.findall(r"^\s+(\w+) \(\w+\):", (inspect.getdoc(Writer) or "").partition("**kwargs")[2], re.MULTILINE)
    tables = {
        "StreamingDataset": parameters(streaming.StreamingDataset),
        "Stream": parameters(streaming.Stream),
        "StreamingDataLoader": parameters(streaming.StreamingDataLoader, DataLoader),
        "MDSWriter": [*parameters(streaming.MDSWriter), *more],
        "Column types": sorted(get_mds_encodings()),
    }
    return {"batches": batches, "tables": tables}
