"""Lanes, block and cache as a command line and as Python, to copy."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from mdsx.simulating import words

_NUMBERS = (("nodes", 1), ("ranks", 1), ("workers", 0), ("batch_size", 32))


def command(settings: Mapping[str, Any], *, lanes: int, shuffle_block: int, cache: float) -> str:
    """Return the `mdsx simulate` that simulates the same run with these settings. `cache`: bytes, rounded up."""
    name, samples = str(settings["data"]), settings["samples"]
    if "://" in name or "/" in name:
        parts = ["mdsx simulate", shlex.quote(name)]
    else:
        shard = max(1, round(settings["bytes"] / max(settings["shards"], 1)))
        parts = ["mdsx simulate", f"--samples {samples}"]
        parts += [f"--sample-size {round(settings['sample_bytes'])}B", f"--shard-size {words.limit(shard)}"]
    for option, usual in _NUMBERS:
        if settings.get(option, usual) != usual:
            parts.append(f"--{option.replace('_', '-')} {settings[option]}")
    link = settings.get("link")
    parts.append(f"--link {words.limit(link) if link else 0}")
    parts += [f"--{option} {settings[option]:g}" for option in ("latency", "step") if option in settings]
    if settings.get("seed"):
        parts.append(f"--seed {settings['seed']}")
    parts += [f"--lanes {lanes}", f"--shuffle-block {shuffle_block}", f"--cache {words.limit(cache)}"]
    return " ".join(parts)


def python(settings: Mapping[str, Any], *, lanes: int, shuffle_block: int, cache: float) -> str:
    """Return the call of StreamingDataset with these settings."""
    name = str(settings["data"])
    url = name if "://" in name or "/" in name else "s3://bucket/data"
    return "\n".join(
        [
            "StreamingDataset(",
            f"    {url!r},",
            f"    seed={settings.get('seed', 0)},",
            f"    shuffle=mdsx.Shuffle(lanes={lanes}, shuffle_block={shuffle_block}),",
            f'    cache=mdsx.Cache("/nvme/cache", limit="{words.limit(cache)}"),',
            ")",
        ]
    )
