"""docs/stored-formats.md is true: its code is that of the tests, and it names all that the protocol has."""

from __future__ import annotations

import re
from pathlib import Path

from mdsx.format import Decoder, OpenedShard, RangeReader, Receiver, SampleLayout, StoredFormat, StoredIndex, protocol
from tests.shards.formats import json_lines, more_lines

PAGE = (Path(__file__).parents[3] / "docs" / "stored-formats.md").read_text(encoding="utf-8")
PROTOCOLS = (StoredFormat, StoredIndex, OpenedShard, Receiver, RangeReader, Decoder, SampleLayout)


def source(module: object) -> str:
    return Path(str(vars(module)["__file__"])).read_text(encoding="utf-8")


def test_the_code_of_the_page_is_under_contract() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    assert blocks[-1] == source(json_lines)
    assert all(block in source(more_lines) for block in blocks[:-1])


def test_the_page_names_each_member_of_the_protocols() -> None:
    capabilities = [
        vars(protocol)[name] for name in re.findall(r"^@runtime_checkable\nclass (\w+)", source(protocol), re.M)
    ]
    assert len(capabilities) == 10
    members = {name for kind in (*PROTOCOLS, *capabilities) for name in vars(kind) if not name.startswith("_")}
    text = re.sub(r"^```.*?^```$", "", PAGE, flags=re.MULTILINE | re.DOTALL)
    assert members <= set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", text))))
