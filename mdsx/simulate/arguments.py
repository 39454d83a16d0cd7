"""Lanes, block and cache as a command line and as Python code, to copy."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from mdsx.base.sizes import parse_size
from mdsx.simulate import words

_NUMBERS = (("num_workers", 0), ("batch_size", 32))


def command(settings: Mapping[str, Any], *, lanes: int, shuffle_block: int, cache: float) -> str:
    """Return the `mdsx simulate` command that simulates the same run with these settings.

    `cache`: bytes, rounded up.
    """
    parts = [_base(settings)]
    if settings.get("seed") and "--seed" not in parts[0]:
        parts.append(f"--seed {settings['seed']}")
    parts += [f"--lanes {lanes}", f"--shuffle-block {shuffle_block}", f"--cache-limit {words.limit(cache)}"]
    return " ".join([*parts, "--html plan.html"])


def _base(settings: Mapping[str, Any]) -> str:
    """Return the command without lanes, block and cache."""
    name = str(settings["data"])
    if _is_url(name):
        parts = ["mdsx simulate", shlex.quote(name)]
    else:
        shard = max(1, round(settings["bytes"] / max(settings["shards"], 1)))
        parts = [f"mdsx simulate --samples {settings['samples']}"]
        parts += [f"--sample-size {_exact(round(settings['sample_bytes']))}", f"--shard-size {_exact(shard)}"]
    world_size = settings.get("nodes", 1) * settings.get("ranks_per_node", 1)
    if world_size > 1:
        parts.append(f"--world-size {world_size} --ranks-per-node {settings['ranks_per_node']}")
    for option, usual in _NUMBERS:
        if settings.get(option, usual) != usual:
            parts.append(f"--{option.replace('_', '-')} {settings[option]}")
    if not settings.get("drop_last", True):
        parts.append("--no-drop-last")
    link = settings.get("link")
    parts.append(f"--link {words.limit(link) if link else 0}")
    parts += [f"--{option} {settings[option]:g}" for option in ("latency", "step") if option in settings]
    return " ".join(parts)


def _is_url(name: str) -> bool:
    return "/" in name


def python(settings: Mapping[str, Any], *, lanes: int, shuffle_block: int, cache: float) -> str:
    """Return the call of StreamingDataset with these settings."""
    name = str(settings["data"])
    url = name if _is_url(name) else "s3://bucket/data"
    return "\n".join(
        [
            "import mdsx",
            "from mdsx.torch import StreamingDataset",
            "",
            "data = StreamingDataset(",
            f"    {url!r},",
            f"    seed={settings.get('seed', 0)},",
            f"    shuffle=mdsx.Shuffle(lanes={lanes}, shuffle_block={shuffle_block}),",
            f'    cache=mdsx.Cache("/nvme/cache", limit="{words.limit(cache)}"),',
            ")",
        ]
    )


def _exact(size: int) -> str:
    """Return a size for an argument, not rounded."""
    text = words.limit(size)
    return text if parse_size(text) == size else f"{size}B"
