"""Documents are cut into shards by their lengths alone."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from mdsx.foreign.tokens import Block, Cut, Shards, cut_shards
from mdsx.foreign.tokens.layout import TokensLayout
from mdsx.foreign.tokens.shard import TokensShard
from mdsx.foreign.tokens.tables import record_dtype
from mdsx.format import Schema, lengths_of_selection


def cut(lengths: np.ndarray, step: int) -> list[Cut]:
    modes = (lengths % 5).astype(np.int8)
    blocks = (Block(lengths[low : low + step], modes[low : low + step]) for low in range(0, len(lengths), step))
    return list(cut_shards(blocks, Shards(2)))


def test_shards_do_not_depend_on_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdsx.foreign.tokens.documents.SHARD_SIZE", 2000)
    monkeypatch.setattr("mdsx.foreign.tokens.documents.MAX_DOCUMENTS", 20)
    lengths = np.random.default_rng(1).integers(0, 200, 3000) * (np.arange(3000) % 7 > 0)
    lengths[[500, 501]] = 5000  # longer than a shard
    whole = cut(lengths, len(lengths))
    assert np.concatenate([each.lengths for each in whole]).tolist() == lengths.tolist()
    assert [each.first for each in whole] == np.cumsum([0, *(each.tokens for each in whole)])[:-1].tolist()
    for each in whole:
        assert each.tokens <= 1000 or len(each.lengths) == 1
        assert len(each.lengths) <= 20
    for before, after in pairwise(whole):  # none could have one more
        assert len(before.lengths) == 20 or before.tokens + after.lengths[0] > 1000
    for step in (1, 13, 1000):
        found = cut(lengths, step)
        assert [each.lengths.tolist() for each in found] == [each.lengths.tolist() for each in whole]
        assert [each.modes.tolist() for each in found if each.modes is not None] == [
            each.modes.tolist() for each in whole if each.modes is not None
        ]


def test_a_table_has_an_edge_for_each_document_and_the_end() -> None:
    (found,) = cut(np.array([3, 0, 4]), 3)
    table = found.table(("tokens",))
    assert table["edge"].tolist() == [0, 3, 3, 7]
    assert table["mode"].tolist() == [3, 0, 4, 0]
    assert table["tokens"].tolist() == [0, 0, 0, 0]


def test_no_documents_make_no_shards() -> None:
    assert cut(np.zeros(0, np.int64), 1) == []


def test_the_lengths_of_documents_are_their_tokens() -> None:
    """Tokens have no dimension before them, as arrays in shards of mdsx have."""
    schema, record = Schema.from_columns({"tokens": "uint16[*]"}), record_dtype(modes=False, hashed=())
    layout = TokensLayout(schema, (("tokens", 2),), record, None)
    table = np.array([(0,), (0,), (1,), (3,)], record)
    shard = TokensShard.parse(bytes(6), layout, table, tokens=3, file="x")
    assert lengths_of_selection(shard.select(np.arange(3), verify=False), 0).tolist() == [0, 1, 2]
    assert [*shard.problems()] == []
