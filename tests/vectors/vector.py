"""What a test vector is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Good:
    """A file that a reader must accept. Some depend on libzstd's version; compressed ones have a raw size."""

    file: str
    about: str
    data: bytes
    libzstd: bool = False
    raw_size: int | None = None


@dataclass(frozen=True, slots=True)
class Bad:
    """A file that breaks one rule. Opening it must raise an error with `says` in its text;
    with `full`, only the full check of a shard must raise it."""

    file: str
    about: str
    data: bytes
    says: str
    full: bool = False
    raw_size: int | None = None


@dataclass(frozen=True, slots=True)
class Either:
    """A file that a reader may read, right, or refuse. With `shown`, the manifest has its values."""

    file: str
    about: str
    data: bytes
    shown: bool = False
    raw_size: None = None
