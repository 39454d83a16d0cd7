"""`index_megatron`: documents and sequences, modes, and indexes that are damaged or hostile."""

from __future__ import annotations

import random
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import mdsx
from tests.conftest import Often
from tests.foreign.tokens.writers import MegatronBuilder, documents, write_megatron

HEAD = 34


def several(prefix: Path, *, modes: bool = False) -> list[list[np.ndarray]]:
    """Write documents of 0 to 3 sequences."""
    builder, texts = MegatronBuilder(prefix, "int32", multimodal=modes), documents(200, dtype="int32")
    found, at = [], 0
    for number in range(100):
        taken = texts[at : at + number % 4]
        at += len(taken)
        for each in taken:
            builder.add_item(each, mode=number % 2)
        builder.end_document()
        found.append(taken)
    builder.finalize()
    return found


def test_documents_have_the_tokens_of_their_sequences(tmp_path: Path) -> None:
    texts = several(tmp_path / "a")
    assert mdsx.index_megatron(tmp_path).samples == 100
    dataset = mdsx.Dataset(tmp_path)
    assert dataset.columns == {"tokens": "int32[*]"}
    for found, sequences in zip(dataset[:], texts, strict=True):
        assert found["tokens"].tolist() == [token for each in sequences for token in each.tolist()]


def test_sequences_are_samples_if_asked_for(tmp_path: Path) -> None:
    texts = several(tmp_path / "a", modes=True)
    mdsx.index_megatron(tmp_path, per="sequence")
    dataset = mdsx.Dataset(tmp_path)
    assert dataset.columns == {"tokens": "int32[*]", "mode": "int8"}
    expected = [(each.tolist(), number % 2) for number, taken in enumerate(texts) for each in taken]
    assert [(found["tokens"].tolist(), found["mode"]) for found in dataset[:]] == expected
    assert dataset.take([5, 3])["mode"].tolist() == [expected[5][1], expected[3][1]]
    without = mdsx.index_megatron(tmp_path, per="sequence", modes=False)
    assert without.columns == {"tokens": "int32[*]"}


def test_modes_of_joined_sequences_are_not_lost(tmp_path: Path) -> None:
    several(tmp_path / "a", modes=True)
    with pytest.raises(mdsx.UsageError, match=r"lose the modes of .*--per sequence.*--no-modes"):
        mdsx.index_megatron(tmp_path)
    assert mdsx.index_megatron(tmp_path, modes=False).samples == 100


def test_an_idx_stands_for_its_bin(tmp_path: Path) -> None:
    write_megatron(tmp_path / "a", documents(5))
    write_megatron(tmp_path / "b", documents(6))
    assert mdsx.index_megatron([tmp_path / "b.idx", tmp_path / "a.bin"]).samples == 11


def test_a_file_without_its_index_is_named(tmp_path: Path) -> None:
    write_megatron(tmp_path / "a", documents(5))
    (tmp_path / "a.idx").unlink()
    with pytest.raises(mdsx.MissingError, match=r"a\.idx: a token file needs this file next to it"):
        mdsx.index_megatron(tmp_path)


def edited(path: Path, at: int, form: str, value: int) -> None:
    data = bytearray(path.read_bytes())
    struct.pack_into(form, data, at, value)
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("at", "form", "value", "kind", "message"),
    [
        (HEAD + 4, "<i", -1, mdsx.CorruptError, "sequence 1: a sequence has a negative size"),
        (HEAD + 4 * 9, "<i", 2**31 - 1, mdsx.CorruptError, "more tokens than the file"),
        (HEAD + 4 * 10 + 8, "<q", 6, mdsx.UnsupportedError, "sequence 1: .*do not follow one another.*mdsx convert"),
        (HEAD + 4 * 10, "<q", 2**60, mdsx.CorruptError, "first sequence is not in the file"),
        (HEAD + 4 * 10, "<q", -2, mdsx.CorruptError, "first sequence is not in the file"),
        (HEAD + 12 * 10, "<q", 1, mdsx.CorruptError, "bound 0 of documents: documents do not cover"),
        (HEAD + 12 * 10 + 8 * 10, "<q", 9, mdsx.CorruptError, "bound 10 of documents"),
        (HEAD + 12 * 10 + 8 * 3, "<q", 2**62, mdsx.CorruptError, "bound 3 of documents"),
        (HEAD + 12 * 10 + 8 * 3, "<q", -1, mdsx.CorruptError, "bound 3 of documents"),
    ],
)
def test_a_wrong_index_is_refused(
    at: int, form: str, value: int, kind: type[Exception], message: str, tmp_path: Path
) -> None:
    texts = [each[:9] if len(each) > 9 else np.arange(9, dtype=np.uint16) for each in documents(10)]
    write_megatron(tmp_path / "a", texts)
    edited(tmp_path / "a.idx", at, form, value)
    with pytest.raises(kind, match=message):
        mdsx.index_megatron(tmp_path)
    assert not (tmp_path / "_mdsx-tokens.json").exists()


def test_a_hostile_index_takes_little_memory(tmp_path: Path, often: Often) -> None:
    """Only errors of mdsx, and no more memory than its bytes justify."""
    write_megatron(tmp_path / "a", documents(30))
    undamaged, chance = (tmp_path / "a.idx").read_bytes(), random.Random(8)
    tracemalloc.start()
    for _ in range(often(60, 3000)):
        data = bytearray(undamaged)
        for _ in range(chance.randrange(1, 5)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        (tmp_path / "a.idx").write_bytes(data[: chance.randrange(len(data) // 2, len(data) + 1)])
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        try:
            mdsx.index_megatron(tmp_path)
            mdsx.Dataset(tmp_path)[:]
        except mdsx.MdsxError:
            continue
        finally:
            assert tracemalloc.get_traced_memory()[1] - before < 2**22
    tracemalloc.stop()
