"""What a user writes, with every argument and result typed. Never run: mypy and pyright check it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_type

import numpy as np
import torch
from prometheus_client import REGISTRY

import mdsx
from mdsx.torch import (
    PrometheusStats,
    Stats,
    StreamingDataLoader,
    StreamingDataset,
    TensorBoardStats,
    collate,
)


def write(url: str) -> int:
    columns = {"tokens": "uint16[8]", "source": "str"}
    with mdsx.Writer(url, columns, shard_size="64MiB", compression="zstd", metadata={"a": 1}, resume=True) as out:
        assert_type(out, mdsx.Writer)
        out.write({"tokens": [1] * 8, "source": "wiki"})
        out.write_batch({"tokens": np.zeros((9, 8), np.uint16), "source": ["web"] * 9})
        return out.samples


def join(url: str) -> None:
    mdsx.merge(url, parts=3, metadata={"a": 1}, overwrite=True)
    done = mdsx.convert("tar", "x-{0..9}.tar", url, on_error="skip", rename={"image": ["jpg", "png"]}, watch=show)
    assert_type(done, mdsx.Conversion)
    assert_type(done.skipped, int)


def several(tokens: Any) -> bool:
    return len(tokens) > 1


def show(progress: mdsx.Progress) -> None:
    print(progress.size / progress.of_size, [error.file for error in progress.problems])


def read(url: str) -> None:
    cache = mdsx.Cache("cache", limit="2GB", verify="size")
    ds = mdsx.Dataset(url, columns=["tokens"], cache=cache, storage_options={"region": "eu-west-1"})
    assert_type(ds[0], dict[str, Any])
    assert_type(ds[:9], list[dict[str, Any]])
    assert_type(ds[[3, 1]], list[dict[str, Any]])
    assert_type(ds.select_share(0.0, 0.9).select_columns({"ids": "tokens"}), mdsx.Dataset)
    assert_type(ds.select([1, 5]).select(range(2)).select(torch.tensor([True, False])), mdsx.Dataset)
    assert_type(ds.split(0.9, 0.1, by="tokens"), tuple[mdsx.Dataset, ...])
    assert_type(ds.filter(several, ["tokens"]), mdsx.Dataset)
    assert_type(mdsx.zip(ds, url), mdsx.Dataset)
    assert_type(ds.columns, Mapping[str, str])


def train(url: str) -> dict[str, Any]:
    mixture = mdsx.Mixture(
        {"a": (url, 0.7), "b": mdsx.Component(mdsx.Dataset(url), 0.3)}, component_column="from", epoch_samples=4096
    )
    data = StreamingDataset(
        mixture,
        seed=7,
        shuffle=mdsx.Shuffle(lanes=8, shuffle_block=65536),
        cache="cache",
        rank=0,
        world_size=8,
        replication=2,
        transform=lambda sample: torch.as_tensor(sample["tokens"]),
    )
    loader = StreamingDataLoader(
        data, 32, drop_last=False, collate_fn=collate, on_error="skip", num_workers=2, timeout=60
    )
    while loader.epoch < 2:
        for batch in loader:
            print(batch, loader.remaining)
        loader.reweight({"a": 0.5, "b": 0.5})
    StreamingDataLoader(data, 32, num_workers=2, persistent_workers=True, prefetch_factor=4)
    state = loader.state_dict()
    assert_type(state, dict[str, Any])
    loader.load_state_dict(state)
    return state


class Writer:
    def add_scalar(self, tag: str, scalar_value: float, global_step: int | None = None, walltime: float = 0) -> None:
        print(tag, scalar_value, global_step)


def watch(loader: StreamingDataLoader) -> None:
    before = loader.stats()
    assert_type(loader.stats() - before, Stats)
    print(f"{before}", before.samples_per_second, before.wait_fraction, before.hit_rate or 0.0)
    log = TensorBoardStats(loader, Writer(), every=10)
    log(7)
    REGISTRY.register(PrometheusStats(train=loader))


def order() -> None:
    shards, samples = mdsx.Order([10, 20], seed=7, epoch=1, lanes=4).locate([0, 1])
    print(int(shards[0]), int(samples[0]))


def mend(url: str) -> None:
    found = mdsx.verify(url, num_threads=8, watch=show)
    assert_type(found.ok, bool)
    for damage in found:
        assert_type(damage, mdsx.MdsxError)
    done = mdsx.repair(url, drop_damaged=True, dry_run=True)
    print([shard.lost_samples for shard in done.damaged], done.old_index)


def fail(url: str) -> None:
    try:
        mdsx.Dataset(url)
    except mdsx.MissingError as error:
        print(error.file, error.place, error.found, error.expected, error.hint)
    except (mdsx.UsageError, ValueError):
        raise
