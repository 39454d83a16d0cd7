"""docs/from-mosaicml.md: its tables and its code, and the run of its programs before the switch.

mosaicml-streaming's environment imports this module too.
"""

from __future__ import annotations

import inspect
import os
import re
from pathlib import Path
from textwrap import dedent
from typing import Any

from tools.peers import Peer

PAGE = (Path(__file__).parent.parent / "docs" / "from-mosaicml.md").read_text(encoding="utf-8")
_, *_PARTS = re.split(r"^#+ (.*)\n", PAGE, flags=re.MULTILINE)
SECTIONS = dict(zip(_PARTS[::2], _PARTS[1::2], strict=True))


def code(heading: str, url: str) -> str:
    """Return the Python below a heading, with `url` instead of its bucket."""
    blocks = re.findall(r"^ *```python\n(.*?)^ *```$", SECTIONS[heading], re.MULTILINE | re.DOTALL)
    return "\n".join(map(dedent, blocks)).replace("s3://bucket", url)


def rows(heading: str) -> dict[str, tuple[str, ...]]:
    """Return the table below a heading: the code in the first column -> the other columns."""
    found = re.findall(r"^\| (`.*?`) \|(.*)\|$", SECTIONS[heading], re.MULTILINE)
    others = {first: tuple(cell.strip() for cell in cells.split(" |")) for first, cells in found}
    return {name: cells for first, cells in others.items() for name in re.findall(r"`(.*?)`", first)}


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
        "StreamingDataset": [*_parameters(streaming.StreamingDataset)],
        "Stream": [*_parameters(streaming.Stream)],
        "StreamingDataLoader": [*_parameters(streaming.StreamingDataLoader), *_parameters(DataLoader)],
        "MDSWriter": [*_parameters(streaming.MDSWriter), *more],
        "Column encodings": sorted(get_mds_encodings()),
    }
    return {"batches": batches, "tables": tables}


def _parameters(kind: Any) -> list[str]:
    """Return the arguments of a class by name. `*args` and `**kwargs` go to another one."""
    every = inspect.signature(kind).parameters.values()
    return [each.name for each in every if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
