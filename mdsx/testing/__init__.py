"""The contracts of what other packages add to mdsx (docs/extending.md), as classes of tests. They need pytest."""

from mdsx.testing.formats import FormatContract
from mdsx.testing.storages import StorageContract
from mdsx.testing.subject import COLUMNS, Subject
from mdsx.testing.types import TypeContract

__all__ = ["COLUMNS", "FormatContract", "StorageContract", "Subject", "TypeContract"]
