"""WebDataset: ShardWriter with tars of 64 MiB; members are bytes, encoded and decoded by the shortest code there is.

WebDataset(shardshuffle=100).shuffle(1000), then batched, in a WebLoader, as its README has it. Without `shuffle` it
reads in order. It has no random access.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import webdataset

from tools.bench.contestants import one_by_one
from tools.bench.contestants.collate import columns_of
from tools.bench.measure import Figures, idle_cpu, rate_of_epochs

_BUFFER = 1000


def _encode(workload: str, sample: dict[str, Any]) -> dict[str, bytes]:
    if workload == "tokens":
        return {"bin": sample["tokens"].tobytes()}
    if workload == "images":
        return {"jpg": sample["image"], "cls": b"%d" % sample["label"]}
    members = {"txt": sample["text"].encode(), "cls": b"%d" % sample["id"]}
    if workload == "mixed":
        members |= {"bin": sample["vector"].tobytes(), "json": json.dumps(sample["meta"]).encode()}
    return members


def _tokens(sample: dict[str, bytes]) -> Any:
    return np.frombuffer(sample["bin"], np.uint16)


def _image(sample: dict[str, bytes]) -> Any:
    return {"image": sample["jpg"], "label": int(sample["cls"])}


def _text(sample: dict[str, bytes]) -> Any:
    return {"text": sample["txt"].decode(), "id": int(sample["cls"])}


def _mixed(sample: dict[str, bytes]) -> Any:
    more = {"vector": np.frombuffer(sample["bin"], np.float32), "meta": json.loads(sample["json"])}
    return {**_text(sample), **more}


_DECODE: dict[str, Callable[[dict[str, bytes]], Any]] = {
    "tokens": _tokens,
    "images": _image,
    "text": _text,
    "mixed": _mixed,
}


def prepare(data: str, workload: str, samples: int) -> Figures:
    """Write the dataset that is read."""
    return one_by_one.prepare(_write, data, workload, samples)


def write(scratch: str, workload: str, samples: int) -> Figures:
    """One by one: it has no other way."""
    return one_by_one.rate(_write, scratch, workload, samples)


def _write(directory: str, workload: str, samples: list[dict[str, Any]]) -> None:
    with webdataset.ShardWriter(f"{directory}/%05d.tar", maxsize=2**26, verbose=0, encoder=False) as out:
        for number, sample in enumerate(samples):
            out.write({"__key__": f"{number:09}", **_encode(workload, sample)})


def _open(data: str, workload: str, shuffle: bool) -> Any:
    tars = sorted(str(path) for path in Path(data).glob("*.tar"))
    dataset = webdataset.WebDataset(tars, shardshuffle=100 if shuffle else False, empty_check=False, seed=7)
    return (dataset.shuffle(_BUFFER) if shuffle else dataset).map(_DECODE[workload])


def iterate(data: str, workload: str, samples: int, shuffle: bool) -> Figures:
    """Sample by sample, without a loader."""
    dataset = _open(data, workload, shuffle)
    return rate_of_epochs(lambda: dataset, 1, samples)


def _loader(data: str, batch_size: int, workers: int, workload: str) -> Any:
    collate = np.stack if workload == "tokens" else columns_of
    dataset = _open(data, workload, True).batched(batch_size, collation_fn=collate, partial=True)
    return webdataset.WebLoader(dataset, batch_size=None, num_workers=workers)


def loader(data: str, workload: str, samples: int, batch_size: int, workers: int) -> Figures:
    """WebLoader, shuffled by shards and a buffer."""
    batches = _loader(data, batch_size, workers, workload)
    return rate_of_epochs(lambda: batches, batch_size, samples)


def idle(data: str, workload: str, samples: int, workers: int) -> Figures:
    """Processor time while nobody reads."""
    return idle_cpu(_loader(data, 32, workers, workload))
