"""Token files, read in place: Megatron's, datatrove's and raw arrays. This package has their headers, the index that
`mdsx index` makes, and ranges of documents as shards. It does no I/O.

Other packages import only from here.
"""

from mdsx.foreign.tokens.documents import MAX_DOCUMENT, Block, Cut, Shards, cut_shards
from mdsx.foreign.tokens.headers import (
    ENDS,
    LLM_C,
    MegatronIndex,
    RawHeader,
    ends_hash,
    ends_of,
    item_size_of,
    read_raw_header,
)
from mdsx.foreign.tokens.index import TabledIndex, TokensFormat, TokensIndex
from mdsx.foreign.tokens.layout import LOSS, LOSS_TYPE, MODE, MODE_TYPE, TOKENS
from mdsx.foreign.tokens.shard import TokensShard
from mdsx.foreign.tokens.text import INDEX_KEY, IndexedLoss, IndexedShard, IndexedTokens, build_text, is_key

__all__ = [
    "ENDS",
    "INDEX_KEY",
    "LLM_C",
    "LOSS",
    "LOSS_TYPE",
    "MAX_DOCUMENT",
    "MODE",
    "MODE_TYPE",
    "TOKENS",
    "Block",
    "Cut",
    "IndexedLoss",
    "IndexedShard",
    "IndexedTokens",
    "MegatronIndex",
    "RawHeader",
    "Shards",
    "TabledIndex",
    "TokensFormat",
    "TokensIndex",
    "TokensShard",
    "build_text",
    "cut_shards",
    "ends_hash",
    "ends_of",
    "is_key",
    "item_size_of",
    "read_raw_header",
]
