"""What a test vector is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Good:
    """A file that must be read. The bytes of some depend on the version of libzstd; compressed ones have a raw size."""

    file: str
    about: str
    data: bytes
    libzstd: bool = False
    raw_size: int | None = None


@dataclass(frozen=True, slots=True)
class Bad:
    """A file that breaks one rule. It must be refused with an error that has `says` in its text, by its opening, or
    where `full` is set by the full check of a shard and nothing earlier."""

    file: str
    about: str
    data: bytes
    says: str
    full: bool = False
    raw_size: int | None = None
