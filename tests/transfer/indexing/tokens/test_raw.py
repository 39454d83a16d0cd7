"""`index_tokens`: raw arrays with headers and without, cut by separators, by tables, and at each L."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mdsx
from mdsx.transfer.indexing.sources import put_index
from tests.foreign.tokens.writers import documents, write_dolma, write_llm_c

EOS = 0


def ended(count: int, seed: int = 0) -> list[np.ndarray]:
    return [np.append(each, EOS).astype(each.dtype) for each in documents(count, seed=seed)]


def zipped(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def values(folder: Path) -> list[list[int]]:
    return [found["tokens"].tolist() for found in mdsx.Dataset(folder)[:]]


def test_the_tables_of_dolma_say_where_documents_are(tmp_path: Path) -> None:
    texts = [each for each in documents(300) if len(each)]
    write_dolma(tmp_path / "part-0.npy", texts[:100])
    write_dolma(tmp_path / "part-1.npy", texts[100:])
    found = mdsx.index_tokens(tmp_path, dtype="uint16", csv=True)
    assert (found.samples, found.files, found.left_out) == (len(texts), 2, 0)
    assert values(tmp_path) == [each.tolist() for each in texts]


@pytest.mark.parametrize("block", [2**23, 100])
def test_separators_end_documents(block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdsx.transfer.indexing.tokens.raw.VALUES", block)
    monkeypatch.setattr("mdsx.foreign.tokens.documents.SHARD_SIZE", 5000)
    texts = [*ended(100), np.array([7, 8], np.uint16)]  # the last one lacks its separator
    np.concatenate(texts).tofile(tmp_path / "a.npy")
    for hash in (False, True):
        found = mdsx.index_tokens(tmp_path, dtype="uint16", separator=EOS, hash=hash)
        assert found.shards > 4
        assert values(tmp_path) == [each.tolist() for each in texts]
        assert mdsx.verify(tmp_path).ok


@pytest.mark.parametrize("hash", [False, True])
def test_samples_of_one_length_are_a_column_of_fixed_size(
    hash: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mdsx.foreign.tokens.documents.SHARD_SIZE", 5000)
    tokens = np.random.default_rng(2).integers(0, 50_000, 10_007).astype(np.uint16)
    write_llm_c(tmp_path / "train.bin", tokens)
    with pytest.warns(UserWarning, match="7 tokens belong to no sample"):
        found = mdsx.index_tokens(tmp_path, every=100, hash=hash)
    assert (found.samples, found.tokens, found.left_out, found.shards) == (100, 10_000, 7, 4)
    dataset = mdsx.Dataset(tmp_path)
    assert dataset.columns == {"tokens": "uint16[100]"}
    assert (dataset.take(range(100))["tokens"] == tokens[:10_000].reshape(100, 100)).all()
    assert (dataset[99]["tokens"] == tokens[9900:10_000]).all()
    assert bool(list(tmp_path.glob("_mdsx-tokens/*"))) == hash
    batches = list(mdsx.Loader(tmp_path, 10))
    assert sorted(map(bytes, np.concatenate([batch["tokens"] for batch in batches]))) == sorted(
        map(bytes, tokens[:10_000].reshape(100, 100))
    )


def test_a_numpy_header_is_passed_over(tmp_path: Path) -> None:
    tokens = np.arange(1000, dtype=np.int32)
    np.save(tmp_path / "a.npy", tokens)
    mdsx.index_tokens(tmp_path, every=10)
    assert mdsx.Dataset(tmp_path)[99]["tokens"].tolist() == [*range(990, 1000)]
    assert mdsx.Dataset(tmp_path).columns == {"tokens": "int32[10]"}


def test_any_name_may_be_given(tmp_path: Path) -> None:
    np.arange(100, dtype=np.uint16).tofile(tmp_path / "tokens.u16")
    assert mdsx.index_tokens(tmp_path / "tokens.u16", dtype="uint16", every=10).samples == 10


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "one of separator"),
        ({"csv": True, "every": 3}, "found csv, every"),
        ({"every": 0}, "at least 1"),
        ({"every": 2.0}, "must be an integer"),
        ({"every": 3, "dtype": "bfloat16"}, "cannot be of this type"),
        ({"separator": 2**16, "dtype": "uint16"}, "no token of this type is the separator"),
        ({"separator": -1, "dtype": "uint16"}, "no token of this type is the separator"),
        ({"every": 2**31, "dtype": "uint16"}, "too long"),
    ],
)
def test_arguments_are_checked(options: dict[str, object], message: str, tmp_path: Path) -> None:
    np.arange(100, dtype=np.uint16).tofile(tmp_path / "a.npy")
    with pytest.raises(mdsx.UsageError, match=message):
        mdsx.index_tokens(tmp_path, **{"dtype": "uint16", **options})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (zipped(b"0,10\n12,20\n"), r"line 2: .*are not contiguous.*--separator"),
        (zipped(b"0,10\n10,200\n"), "line 2: the document is not in the file"),
        (zipped(b"0,10\n10,10\n"), "line 2: the document is not in the file"),
        (zipped(b"start,end\n"), "line 1: the line does not locate a document"),
        (zipped(b"0\n"), "line 1: the line does not locate a document"),
        (zipped(b"0," + b"1" * 2_000_000), "a line is too long"),
        (b"0,10\n", "gzip stream is damaged"),
        (zipped(b"0,10\n10,20\n")[:-9], "gzip stream is truncated"),
        (zipped(b"0,10\n")[:-9] + b"\0" * 9, "gzip stream is damaged"),
    ],
)
def test_a_wrong_table_is_refused(table: bytes, message: str, tmp_path: Path) -> None:
    np.arange(100, dtype=np.uint16).tofile(tmp_path / "a.npy")
    (tmp_path / "a.csv.gz").write_bytes(table)
    with pytest.raises(mdsx.MdsxError, match=message) as caught:
        mdsx.index_tokens(tmp_path, dtype="uint16", csv=True)
    assert str(caught.value.file).endswith("a.csv.gz")


def test_a_table_that_ends_early_leaves_tokens_out(tmp_path: Path) -> None:
    np.arange(100, dtype=np.uint16).tofile(tmp_path / "a.npy")
    (tmp_path / "a.csv.gz").write_bytes(zipped(b"0,10\n") + zipped(b"10,90\n"))
    with pytest.warns(UserWarning, match="10 tokens belong to no sample"):
        assert mdsx.index_tokens(tmp_path, dtype="uint16", csv=True).samples == 2


def test_a_table_may_be_padded_with_zeros(tmp_path: Path) -> None:
    np.arange(100, dtype=np.uint16).tofile(tmp_path / "a.npy")
    (tmp_path / "a.csv.gz").write_bytes(zipped(b"0,100\n") + bytes(512))
    assert mdsx.index_tokens(tmp_path, dtype="uint16", csv=True).samples == 1


def test_files_of_different_types_are_named(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(100, dtype=np.uint16))
    np.save(tmp_path / "b.npy", np.arange(100, dtype=np.uint32))
    with pytest.raises(mdsx.UsageError, match=r"b\.npy: .*as in a\.npy, found uint32.*mdsx\.Cast"):
        mdsx.index_tokens(tmp_path, every=10)


def test_an_index_that_another_run_wrote_meanwhile_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables of its files stay too."""
    np.arange(1000, dtype=np.uint16).tofile(tmp_path / "a.npy")

    def meanwhile(*arguments: Any) -> None:
        monkeypatch.undo()
        mdsx.index_tokens(tmp_path, every=20, dtype="uint16", hash=True)
        put_index(*arguments)

    monkeypatch.setattr("mdsx.transfer.indexing.tokens.index.put_index", meanwhile)
    with pytest.raises(mdsx.ChangedError, match="another program has indexed files here meanwhile"):
        mdsx.index_tokens(tmp_path, every=10, dtype="uint16", hash=True)
    assert values(tmp_path) == np.arange(1000).reshape(50, 20).tolist()
