"""Contracts for formats, storages and types of other packages (docs/extending.md), as test classes. They need
pytest."""

from mdsx.testing.formats import FormatContract
from mdsx.testing.storages import StorageContract
from mdsx.testing.subject import COLUMNS, Subject
from mdsx.testing.types import TypeContract

__all__ = ["COLUMNS", "FormatContract", "StorageContract", "Subject", "TypeContract"]
