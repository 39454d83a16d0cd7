"""Index token files, so that they can be read in place: Megatron's, datatrove's, and raw arrays."""

from mdsx.transfer.indexing.tokens.index import IndexedTokenFiles, index_datatrove, index_megatron, index_tokens

__all__ = ["IndexedTokenFiles", "index_datatrove", "index_megatron", "index_tokens"]
