"""Lanes, block and cache as a command line and as Python code, to copy."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from mdsx.base.sizes import parse_size
from mdsx.simulate import words
from mdsx.simulate.settings import MADE_UP

_NUMBERS = (("num_workers", 0), ("batch_size", 32))


def command(settings: Mapping[str, Any], *, lanes: int, shuffle_block: int, cache: float) -> str:
    """Return the `mdsx simulate` command that simulates the same run with these settings.

    `cache`: bytes, rounded up.
    """
    parts = [_base(settings)]
    if settings["seed"]:
        parts.append(f"--seed {settings['seed']}")
    parts += [f"--lanes {lanes}", f"--shuffle-block {shuffle_block}", f"--cache-limit {words.limit(cache)}"]
    return " ".join([*parts, "--html plan.html"])


def _base(settings: Mapping[str, Any]) -> str:
    """Return the command without seed, lanes, block and cache."""
    name = str(settings["data"])
    if name == MADE_UP:
        parts = [f"mdsx simulate --samples {settings['samples']}"]
        parts.append(f"--sample-size {_exact(settings['sample_bytes'])}")
        parts.append(f"--shard-size {_exact(settings['shard_bytes'])}")
    else:
        parts = ["mdsx simulate", shlex.quote(name)]
    world_size = settings["nodes"] * settings["ranks_per_node"]
    if world_size > 1:
        parts.append(f"--world-size {world_size} --ranks-per-node {settings['ranks_per_node']}")
    for option, usual in _NUMBERS:
        if settings[option] != usual:
            parts.append(f"--{option.replace('_', '-')} {settings[option]}")
    if not settings["drop_last"]:
        parts.append("--no-drop-last")
    link = settings["link"]
    parts.append(f"--link {words.limit(link) if link else 0}")
    parts += [f"--{option} {settings[option]:g}" for option in ("latency", "step")]
    return " ".join(parts)


def python(settings: Mapping[str, Any], *, lanes: int, shuffle_block: int, cache: float) -> str:
    """Return the call of StreamingDataset with these settings."""
    name = str(settings["data"])
    url = "s3://bucket/data" if name == MADE_UP else name
    return "\n".join(
        [
            "import mdsx",
            "from mdsx.torch import StreamingDataset",
            "",
            "data = StreamingDataset(",
            f"    {url!r},",
            f"    seed={settings['seed']},",
            f"    shuffle=mdsx.Shuffle(lanes={lanes}, shuffle_block={shuffle_block}),",
            f'    cache=mdsx.Cache("/nvme/cache", limit="{words.limit(cache)}"),',
            ")",
        ]
    )


def _exact(size: int) -> str:
    """Return a size for an argument, not rounded."""
    text = words.limit(size)
    return text if parse_size(text) == size else f"{size}B"
