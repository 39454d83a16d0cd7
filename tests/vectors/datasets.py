"""Datasets of several writers: merged parts, an appended part with its snapshot, and one that was repaired; and the
values of every dataset in `good/`: `datasets-v1.json`.

Built from format-spec.md, without code of mdsx.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tests.format import reference
from tests.format.by_the_book import shard
from tests.vectors.vector import Good

_COLUMNS = {"id": "uint16", "text": "str"}


def _shard(*numbers: int) -> bytes:
    return shard(_COLUMNS, [{"id": n.to_bytes(2, "little"), "text": b"x" * n} for n in numbers])


def _index(
    stored: Sequence[bytes], files: Sequence[list[Any]], metadata: dict[str, Any], lengths: int | None = None
) -> dict[str, Any]:
    made = reference.index(_COLUMNS, stored, metadata=metadata)
    made["shards"]["files"] = list(files)
    if lengths is None:
        return made
    last = made.pop("metadata")
    return {**made, "lengths": {"text": lengths}, "metadata": last}


def vectors() -> list[Good]:
    return [*_merged(), *_appended(), *_repaired()]


def _merged() -> list[Good]:
    first, second, third = _shard(0, 1), _shard(2), _shard(3, 4)
    parts = [
        _index([first, second], [["shard.", ".mdsx", 0, 2]], {"by": "two"}, 3),
        _index([third], [["shard.", ".mdsx", 0, 1]], {"by": "two"}, 7),
    ]
    ranges = [["part-00000/shard.", ".mdsx", 0, 2], ["part-00001/shard.", ".mdsx", 0, 1]]
    whole = _index([first, second, third], ranges, {"by": "two"}, 10)
    return [
        Good("good/merged/index.json", "Two parts that were merged: the sums of lengths are added.", _sealed(whole)),
        Good("good/merged/part-00000/index.json", "The first part, a dataset by itself.", _sealed(parts[0])),
        Good("good/merged/part-00000/shard.00000.mdsx", "", first),
        Good("good/merged/part-00000/shard.00001.mdsx", "", second),
        Good("good/merged/part-00001/index.json", "The second part.", _sealed(parts[1])),
        Good("good/merged/part-00001/shard.00000.mdsx", "", third),
    ]


def _appended() -> list[Good]:
    old, new = _shard(5, 6), _shard(7)
    before = _index([old], [["shard.", ".mdsx", 0, 1]], {"kept": True}, 11)
    part = _index([new], [["shard.", ".mdsx", 0, 1]], {"lost": True})
    ranges = [["shard.", ".mdsx", 0, 1], ["part-00003/shard.", ".mdsx", 0, 1]]
    whole = _index([old, new], ranges, {"kept": True}, 18)
    lengths = reference.lengths(whole["fingerprint"], "text", "bytes", [[5, 6], [7]])
    return [
        Good("good/appended/index.json", "A part was appended: numbers and metadata stay.", _sealed(whole)),
        Good(f"good/appended/index-{before['fingerprint']}.json", "The snapshot from before that.", _sealed(before)),
        Good("good/appended/shard.00000.mdsx", "", old),
        Good(
            "good/appended/part-00003/index.json", "The part, without a sum of lengths: it was computed.", _sealed(part)
        ),
        Good("good/appended/part-00003/shard.00000.mdsx", "", new),
        Good("good/appended/_lengths/text.u32", "The lengths of the whole.", lengths),
    ]


def _repaired() -> list[Good]:
    kept, whole = _shard(8, 10), _shard(11)
    ranges = [["repaired.shard.", ".mdsx", 0, 1], ["shard.", ".mdsx", 2, 1]]
    about = "Of shard 0 a sample was damaged, of shard 1 all: the first has a new name, the other is left out."
    return [
        Good("good/repaired/index.json", about, _sealed(_index([kept, whole], ranges, {}))),
        Good("good/repaired/repaired.shard.00000.mdsx", "", kept),
        Good("good/repaired/shard.00002.mdsx", "", whole),
    ]


def damaged() -> dict[str, bytes]:
    """Return the files of the dataset that was repaired."""
    stored = [_shard(8, 9, 10), _shard(20), _shard(11)]
    index = _sealed(_index(stored, [["shard.", ".mdsx", 0, 3]], {}))
    first = stored[0].replace(b"x" * 27, b"x" * 8 + b"y" * 9 + b"x" * 10)
    second = stored[1].replace(b"x" * 20, b"y" * 20)
    return {"index.json": index, "shard.00000.mdsx": first, "shard.00001.mdsx": second, "shard.00002.mdsx": stored[2]}


def _sealed(index: dict[str, Any]) -> bytes:
    return reference.seal_index(index)


def text() -> str:
    """Return the values of all samples of each dataset; an array of equal numbers is its number and how many."""
    tokens = [{"id": n, "tokens": {"repeat": n, "times": 200_000}, "text": f"sample {n}"} for n in range(7)]
    numbers = {"plain": range(5), "merged": range(5), "appended": (5, 6, 7), "repaired": (8, 10, 11)}
    found = {f"good/{name}": [{"id": n, "text": "x" * n} for n in there] for name, there in numbers.items()}
    lines = [f"{json.dumps(name)}: {json.dumps(samples)}" for name, samples in {**found, "good/zstd": tokens}.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"
