"""Names that users of MosaicML's Streaming and of PyTorch look for, and the equivalents in mdsx."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import ParamSpec, TypeVar

from mdsx.errors import UsageError

P = ParamSpec("P")
R = TypeVar("R")

_CACHE = {
    "local": "cached shards are kept in cache=, a directory or mdsx.Cache(directory, limit=...)",
    "cache_limit": "give cache=mdsx.Cache(directory, limit=...)",
    "verify_cached": 'give cache=mdsx.Cache(directory, verify="size") to trust what the cache holds',
    "keep_zip": "there is no such choice: the cache keeps shards uncompressed",
    "validate_hash": "there is no such choice: whatever has a checksum or a hash is checked; "
    'cache=mdsx.Cache(verify="size") trusts what the cache holds',
    "predownload": "there is no such number: shards are fetched in the order in which they are needed, as far ahead as "
    "the cache's limit allows",
    "download_retry": "there is no such number: a request is retried for two minutes at most",
    "download_timeout": "time limits are fixed, see docs/operations.md; the storage option connect_timeout is for "
    "an endpoint that never answered",
    "allow_unsafe_types": "there is no such choice: nothing is ever unpickled",
}
_URL = {
    "remote": "give the URL first, as in {call}('s3://bucket/corpus')",
    "split": "give its URL, or split it: train, valid = mdsx.Dataset(url).split(0.9, 0.1)",
}

DATASET = {
    **_URL,
    **_CACHE,
    "streams": "several datasets are an mdsx.Mixture, which StreamingDataset reads",
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
    "epoch_size": "it is called epoch_samples",
    "shuffle_seed": "it is called seed",
    "num_canonical_nodes": "give shuffle=mdsx.Shuffle(lanes=...)",
    "lanes": "give shuffle=mdsx.Shuffle(lanes=...)",
    "shuffle_block_size": "give shuffle=mdsx.Shuffle(shuffle_block=...)",
    "shuffle_block": "give shuffle=mdsx.Shuffle(shuffle_block=...)",
    "shuffle_algo": "there is one order, which format-spec.md specifies; mdsx.Shuffle says how far it mixes",
    "partition_algo": "there is one order, which format-spec.md specifies; it does not depend on ranks",
    "sampling_method": "there is no such choice: a component of an mdsx.Mixture is read in epochs of its own",
    "sampling_granularity": "there is no such choice: a component of an mdsx.Mixture is read in epochs of its own",
    "batching_method": "every batch has each component's share of an mdsx.Mixture; mdsx.Mixture(..., run=batch_size * "
    "world_size) makes batches of one component",
    "stream_name": "there are no kinds of streams: several datasets are an mdsx.Mixture",
    "stream_config": "there are no kinds of streams: several datasets are an mdsx.Mixture",
    "num_workers": "give it to StreamingDataLoader",
}
STREAMING_DATA_LOADER = {
    "shuffle": "give it to the StreamingDataset",
    "seed": "give it to the StreamingDataset",
    "generator": "give seed= to the StreamingDataset",
    "sampler": "the StreamingDataset says which samples come, and in which order",
    "batch_sampler": "the StreamingDataset says which samples come, and in which order",
    "rank": "give it to the StreamingDataset",
    "world_size": "give it to the StreamingDataset",
    "transform": "give it to the StreamingDataset",
    "pin_memory_device": 'device="cuda:1" says where batches arrive, from pinned memory',
    "in_order": "there is no such choice: batches always come in order",
}
LOADER = {
    **_URL,
    **_CACHE,
    "pin_memory": "batches are NumPy arrays: put them on the device in your loop",
    "sampler": "seed and shuffle say in which order the samples come",
    "batch_sampler": "seed and shuffle say in which order the samples come",
    "generator": "give seed",
}
WRITER = {
    "out": "give the URL first, as in Writer('s3://bucket/corpus', columns)",
    "size_limit": "it is called shard_size",
    "exist_ok": "resume=True continues what an earlier run left; nothing is ever overwritten",
    "keep_local": "there is no such choice: shards are stored at the URL alone",
    "hashes": "there is no such choice: every sample and every shard has a checksum",
    "progress_bar": "there is none: count samples with Writer.samples",
    "max_workers": "there is no such number: shards are stored in the background",
    "retry": "there is no such number: a request is retried for two minutes at most",
}


def explain(call: str, names: Mapping[str, str]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function raise a UsageError that says what mdsx has instead, if it is given one of `names`."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def explained(*args: P.args, **kwargs: P.kwargs) -> R:
            for name in kwargs:
                if name in names:
                    raise UsageError(f"{call} takes no {name}", hint=names[name].format(call=call))
            return function(*args, **kwargs)

        return explained

    return decorate
