"""WebDataset tars: parse bytes to members, samples and values, strictly, and infer columns from the first samples.

Tars can also be read in place: `text` has the text of their index, and `pointers` the shards that locate samples.
"""

from __future__ import annotations

from mdsx.foreign.tars.blocks import printable
from mdsx.foreign.tars.columns import check_declared, find_columns
from mdsx.foreign.tars.grouping import TarSample, group_samples
from mdsx.foreign.tars.index import TarsFormat
from mdsx.foreign.tars.members import read_members
from mdsx.foreign.tars.names import FIRST_DOT, KEY, Names, is_hidden
from mdsx.foreign.tars.pointers import PointerSchema, check_pointable
from mdsx.foreign.tars.pointing import point_tar, skim_tar
from mdsx.foreign.tars.text import INDEX_KEY, IndexedTar, build_text, is_compressed, is_key, is_wids, parse_text
from mdsx.foreign.tars.values import SampleReader, type_of_extension

__all__ = [
    "FIRST_DOT",
    "INDEX_KEY",
    "KEY",
    "IndexedTar",
    "Names",
    "PointerSchema",
    "SampleReader",
    "TarSample",
    "TarsFormat",
    "build_text",
    "check_declared",
    "check_pointable",
    "find_columns",
    "group_samples",
    "is_compressed",
    "is_hidden",
    "is_key",
    "is_wids",
    "parse_text",
    "point_tar",
    "printable",
    "read_members",
    "skim_tar",
    "type_of_extension",
]
