"""Argument names of MosaicML's Streaming and of PyTorch, with what mdsx has instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import ParamSpec, TypeVar

from mdsx.errors import UsageError

P = ParamSpec("P")
R = TypeVar("R")

_CACHE = {
    "local": "give cache=, a directory or mdsx.Cache(directory, limit=...), which keeps the shards",
    "cache_limit": "give cache=mdsx.Cache(directory, limit=...)",
    "verify_cached": 'give cache=mdsx.Cache(directory, verify="size") to trust what the cache holds',
    "keep_zip": "not configurable: the cache keeps shards uncompressed",
    "validate_hash": "not configurable: all data with a checksum or a hash is checked; "
    'cache=mdsx.Cache(verify="size") trusts what the cache holds',
    "predownload": "not configurable: shards are fetched in the order of their need, as far ahead as the cache's limit "
    "allows",
    "download_retry": "not configurable: a request is retried for two minutes without progress",
    "download_timeout": "time limits are fixed, see docs/operations.md; the storage option connect_timeout applies to "
    "endpoints that have never answered",
    "allow_unsafe_types": "not supported: mdsx never unpickles data",
}
_URL = {
    "remote": "give the URL first, as in {call}('s3://bucket/corpus')",
    "split": "give its URL, or split it: train, valid = mdsx.Dataset(url).split(0.9, 0.1)",
}

DATASET = {
    **_URL,
    **_CACHE,
    "streams": "combine datasets in an mdsx.Mixture, which StreamingDataset reads",
    "shuffle": "a Dataset is read in order or at random; StreamingDataset shuffles",
    "batch_size": "give it to StreamingDataLoader or to PyTorch's DataLoader",
}
STREAMING_DATASET = {
    **_URL,
    **_CACHE,
    "streams": "give an mdsx.Mixture as the dataset",
    "proportion": "give an mdsx.Mixture of mdsx.Component(dataset, proportion) as the dataset",
    "repeat": "give an mdsx.Mixture of mdsx.Component(dataset, repeat=...) as the dataset",
    "choose": "give an mdsx.Mixture of mdsx.Component(dataset, samples=...) as the dataset",
    "component_column": "give it to the mdsx.Mixture",
    "epoch_size": "give epoch_samples=",
    "shuffle_seed": "give seed=",
    "num_canonical_nodes": "give shuffle=mdsx.Shuffle(lanes=...)",
    "lanes": "give shuffle=mdsx.Shuffle(lanes=...)",
    "shuffle_block_size": "give shuffle=mdsx.Shuffle(shuffle_block=...)",
    "shuffle_block": "give shuffle=mdsx.Shuffle(shuffle_block=...)",
    "shuffle_algo": "not configurable: format-spec.md specifies the order; mdsx.Shuffle sets how far it mixes",
    "partition_algo": "not configurable: format-spec.md specifies the order, which does not depend on ranks",
    "sampling_method": "not configurable: each component of an mdsx.Mixture is read in epochs of its own",
    "sampling_granularity": "not configurable: each component of an mdsx.Mixture is read in epochs of its own",
    "batching_method": "each 256 successive samples have each component's share of an mdsx.Mixture; "
    "mdsx.Mixture(..., run=batch_size * world_size) makes batches of one component",
    "stream_name": "not supported: combine datasets in an mdsx.Mixture",
    "stream_config": "not supported: combine datasets in an mdsx.Mixture",
    "num_workers": "give it to StreamingDataLoader",
}
STREAMING_DATA_LOADER = {
    "shuffle": "give it to the StreamingDataset",
    "seed": "give it to the StreamingDataset",
    "generator": "give seed= to the StreamingDataset",
    "sampler": "the StreamingDataset decides the samples and their order",
    "batch_sampler": "the StreamingDataset decides the samples and their order",
    "rank": "give it to the StreamingDataset",
    "world_size": "give it to the StreamingDataset",
    "transform": "give it to the StreamingDataset",
    "pin_memory_device": 'give device="cuda:1", which copies batches there from pinned memory',
    "in_order": "not configurable: batches always come in order",
}
LOADER = {
    **_URL,
    **_CACHE,
    "pin_memory": "batches are NumPy arrays: put them on the device in your loop",
    "sampler": "give seed and shuffle, which decide the order of the samples",
    "batch_sampler": "give seed and shuffle, which decide the order of the samples",
    "generator": "give seed",
}
WRITER = {
    "out": "give the URL first, as in Writer('s3://bucket/corpus', columns)",
    "size_limit": "give shard_size=",
    "exist_ok": "give resume=True to continue an earlier run, or overwrite=True to replace the dataset",
    "keep_local": "not configurable: shards are stored only at the URL",
    "hashes": "not configurable: every sample and every shard has a checksum",
    "progress_bar": "not supported: Writer.samples counts the samples",
    "max_workers": "not configurable: shards are uploaded in the background",
    "retry": "not configurable: a request is retried for two minutes without progress",
}


def explain(call: str, names: Mapping[str, str]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function that is called with one of `names` raise a UsageError that names mdsx's equivalent."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def explained(*args: P.args, **kwargs: P.kwargs) -> R:
            for name in kwargs:
                if name in names:
                    raise UsageError(f"{call} takes no {name}", hint=names[name].format(call=call))
            return function(*args, **kwargs)

        return explained

    return decorate
