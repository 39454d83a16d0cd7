"""What all tasks of a distributed write share, and the result of an attempt at one.

An engine may try a task several times, even at the same time. Each attempt writes a dataset of its own, in a folder of
the run that no other attempt has. Its result, which only the engine carries to the driver, makes it count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from mdsx.format import Codec
from mdsx.storage import StorageOptions, sealed


class Done(NamedTuple):
    """The result of an attempt at part `part`: its folder, "" if the part has no samples; how many samples it has; and
    the XXH3-128 of its index, in hexadecimal. Engines carry it as a row of these four values."""

    part: int
    folder: str
    samples: int
    hash: str


@dataclass(frozen=True, slots=True)
class WriteJob:
    """A distributed write. It is pickled: tasks receive it.

    `run`: 16 hexadecimal digits that no other run has; `lengths`: as in `mdsx.Writer`; `known`: see `mdsx.storage`;
    `codecs`: of the types of packages.
    """

    url: str
    columns: Mapping[str, str]
    shard_size: int
    compression: str | None
    run: str
    storage_options: StorageOptions | None = None
    known: tuple[str, ...] = ()
    lengths: tuple[str, ...] = ()
    codecs: tuple[Codec, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "storage_options", sealed(self.storage_options))
