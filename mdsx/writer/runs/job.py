"""The settings that all tasks of a distributed write share, and the result of an attempt.

An engine may run several attempts at a task, even concurrently. Each attempt writes its own dataset, in a folder of the
run that it shares with no other attempt. An attempt counts if the engine delivers its result to the driver.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from mdsx.format import Codec
from mdsx.storage import StorageOptions, sealed


class Done(NamedTuple):
    """The result of an attempt at part `part`: its folder ("" if the part has no samples), its number of samples, and
    the XXH3-128 of its index, in hexadecimal. Engines deliver it as a row of these four values."""

    part: int
    folder: str
    samples: int
    hash: str


@dataclass(frozen=True, slots=True)
class WriteJob:
    """A distributed write, pickled for its tasks.

    `run`: 16 hexadecimal digits, unique to the run; `lengths`: as in `mdsx.Writer`; `known`: see `mdsx.storage`;
    `codecs`: of the column types of packages.
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
