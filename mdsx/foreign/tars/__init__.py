"""WebDataset tars: parse bytes to members, samples and values, strictly, and infer columns from the first samples.

Tars can also be read in place: `text` has the text of their index, and `pointers` the shards that locate samples.
"""

from __future__ import annotations

from mdsx.foreign.tars.blocks import printable
from mdsx.foreign.tars.columns import check_declared, find_columns
from mdsx.foreign.tars.index import TarIndex, TarsFormat
from mdsx.foreign.tars.members import TarMember, read_members
from mdsx.foreign.tars.pointers import MAX_SAMPLE, Pointer, PointerBuilder, PointerSchema, check_pointable
from mdsx.foreign.tars.pointing import PointedTar, point_tar, skim_tar
from mdsx.foreign.tars.text import INDEX_KEY, IndexedTar, build_text, is_compressed, is_key, is_wids, parse_text
from mdsx.foreign.tars.values import SampleReader, type_of_extension
from mdsx.foreign.tars.webdataset import FIRST_DOT, KEY, Names, TarSample, group_samples, is_hidden

__all__ = [
    "FIRST_DOT",
    "INDEX_KEY",
    "KEY",
    "MAX_SAMPLE",
    "IndexedTar",
    "Names",
    "PointedTar",
    "Pointer",
    "PointerBuilder",
    "PointerSchema",
    "SampleReader",
    "TarIndex",
    "TarMember",
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
