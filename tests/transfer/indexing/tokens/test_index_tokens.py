"""Token files in place: read in every way, with hashes and without, changed, copied, on S3, mixed and packed."""

from __future__ import annotations

import shutil
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mdsx
from mdsx.datasets import excerpt_of
from mdsx.foreign.tokens import ENDS
from mdsx.shards import View, lengths_of
from mdsx.storage import open_storage
from tests.foreign.tokens.writers import documents, write_datatrove, write_dolma, write_llm_c, write_megatron
from tools.servers.http import HttpServer

FILES, PER_FILE = 3, 700
KINDS = ["megatron", "datatrove", "dolma"]
"""Of about 200 KB a file, which is more than its ends."""


def texts() -> list[Any]:
    return [each for each in documents(FILES * PER_FILE, seed=4) if len(each)]


def losses(tokens: list[Any]) -> list[Any]:
    return [(each % 3 > 0).astype(np.uint8) for each in tokens]


def write(folder: Path, kind: str, tokens: list[Any], *, hash: bool = False, index: Any = None) -> Any:
    """Write some files of a kind, and index them."""
    folder.mkdir(exist_ok=True)
    for number in range(FILES):
        part = tokens[number * len(tokens) // FILES : (number + 1) * len(tokens) // FILES]
        if kind == "megatron":
            write_megatron(folder / f"{number}", part)
        elif kind == "datatrove":
            write_datatrove(folder / f"{number}.ds", part, losses(part))
        else:
            write_dolma(folder / f"{number}.npy", part)
    return again(folder, kind, hash=hash, index=index)


def again(folder: Any, kind: str, *, hash: bool = False, index: Any = None) -> Any:
    if kind == "megatron":
        return mdsx.index_megatron(folder, hash=hash, index=index)
    if kind == "datatrove":
        return mdsx.index_datatrove(folder, hash=hash, index=index)
    return mdsx.index_tokens(folder, dtype="uint16", csv=True, hash=hash, index=index)


@pytest.fixture(autouse=True)
def _small_shards(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("mdsx.foreign.tokens.documents.SHARD_SIZE", 50_000)
    monkeypatch.setattr("mdsx.transfer.indexing.tokens.passes._TABLES", 2000)  # several objects for each file
    monkeypatch.setenv("MDSX_CACHE", str(tmp_path / "cache"))


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


def plain(tokens: Any) -> list[list[int]]:
    return [each.tolist() for each in tokens]


def read(dataset: Any) -> list[list[int]]:
    return [found["tokens"].tolist() for found in dataset]


# --- reading


@pytest.mark.parametrize("hash", [False, True])
def test_documents_are_read_in_every_way(kind: str, hash: bool, tmp_path: Path) -> None:
    tokens = texts()
    found = write(tmp_path / "data", kind, tokens, hash=hash)
    expected = plain(tokens)
    assert (found.samples, found.tokens, found.files) == (len(tokens), sum(map(len, tokens)), FILES)
    assert found.shards > 3 * FILES
    for mmap in (True, False):
        dataset = mdsx.Dataset(tmp_path / "data", mmap=mmap)
        assert read(dataset[:]) == expected
        assert read(dataset[number] for number in range(0, len(dataset), 7)) == expected[::7]
        assert plain(dataset.take([700, 3, 3, 1500])["tokens"]) == [expected[at] for at in (700, 3, 3, 1500)]
        assert dataset.take([5], as_arrow=True)["tokens"].to_pylist() == expected[5:6]
        if kind == "datatrove":
            assert [each["loss"].tolist() for each in dataset[:]] == plain(losses(tokens))
            assert dataset[9]["loss"].tolist() == losses(tokens)[9].tolist()
    assert mdsx.verify(tmp_path / "data").ok
    names = ["tokens", *(["loss"] if kind == "datatrove" else [])]
    assert list(mdsx.Dataset(tmp_path / "data").columns) == names


def test_no_token_is_copied_on_a_disk(tmp_path: Path) -> None:
    write(tmp_path / "data", "megatron", texts())
    before = {path: path.stat().st_size for path in (tmp_path / "data").iterdir() if path.suffix in (".bin", ".idx")}
    assert read(mdsx.Dataset(tmp_path / "data")) == plain(texts())
    assert not (tmp_path / "cache").exists()
    tables = sum(path.stat().st_size for path in (tmp_path / "data" / "_mdsx-tokens").iterdir())
    assert tables <= 4 * (len(texts()) + 100)
    assert {path: path.stat().st_size for path in before} == before


def test_a_shuffled_epoch_has_each_document_once(kind: str, tmp_path: Path) -> None:
    tokens = texts()
    write(tmp_path / "data", kind, tokens)
    seen: Counter[bytes] = Counter()
    ranks = [mdsx.Loader(tmp_path / "data", 5, rank=rank, world_size=2, seed=3, drop_last=False) for rank in (0, 1)]
    order = [each.tobytes() for rank in ranks for batch in rank for each in batch["tokens"]]
    seen.update(order)
    assert seen == Counter(each.tobytes() for each in tokens)
    assert order != [each.tobytes() for each in tokens]


def test_losses_are_packed_with_tokens(tmp_path: Path) -> None:
    tokens = texts()
    write(tmp_path / "data", "datatrove", tokens)
    loader = mdsx.Loader(tmp_path / "data", 4, batching=mdsx.Pack(1024, length="tokens"))
    count = 0
    for batch in loader:
        inside = batch["segment_ids"] > 0
        assert batch["tokens"].dtype == np.uint16
        assert (batch["loss"][inside] == (batch["tokens"][inside] % 3 > 0)).all()
        count += int(inside.sum())
    assert count > 0.95 * sum(map(len, tokens))


def test_columns_that_are_not_chosen_are_not_read(tmp_path: Path) -> None:
    tokens = texts()
    write(tmp_path / "data", "datatrove", tokens)
    for path in (tmp_path / "data").glob("*.loss"):
        path.unlink()
    assert read(mdsx.Dataset(tmp_path / "data", columns=["tokens"])[:]) == plain(tokens)
    with pytest.raises(mdsx.MissingError, match=r"\.ds\.loss"):
        mdsx.Dataset(tmp_path / "data")[0]


def test_lengths_come_from_the_index_alone(tmp_path: Path) -> None:
    tokens = texts()
    write(tmp_path / "data", "datatrove", tokens)
    lengths = lengths_of(View([excerpt_of(mdsx.Dataset(tmp_path / "data"))]), "tokens")
    assert lengths.total == sum(map(len, tokens))
    assert lengths.mean == Fraction(sum(map(len, tokens)), len(tokens))
    found = mdsx.write_lengths(tmp_path / "data", "tokens")
    assert (found.samples, found.sum) == (len(tokens), sum(map(len, tokens)))
    assert mdsx.write_lengths(tmp_path / "data", "loss").sum == found.sum


# --- elsewhere


def copied(folder: Path, url: str) -> None:
    storage = open_storage(url)
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            storage.put(str(path.relative_to(folder)), path.read_bytes())


@pytest.mark.parametrize("hash", [False, True])
def test_files_on_s3_are_indexed_and_read(kind: str, hash: bool, tmp_path: Path, s3_url: str) -> None:
    tokens = texts()
    write(tmp_path / "data", kind, tokens)
    fingerprint = mdsx.Dataset(tmp_path / "data").fingerprint
    shutil.rmtree(tmp_path / "data" / "_mdsx-tokens")
    (tmp_path / "data" / "_mdsx-tokens.json").unlink()
    copied(tmp_path / "data", s3_url)
    assert again(s3_url, kind, hash=hash).url == s3_url
    dataset = mdsx.Dataset(s3_url, cache=tmp_path / "one")
    assert dataset.fingerprint == fingerprint
    assert read([dataset[1000]]) == plain(tokens[1000:1001])
    assert read(mdsx.Dataset(s3_url, cache=tmp_path / "other")[:]) == plain(tokens)
    assert mdsx.verify(s3_url).ok


def test_a_copy_with_another_etag_is_recognised_by_its_ends(tmp_path: Path, s3_url: str) -> None:
    tokens = texts()
    write(tmp_path / "data", "megatron", tokens)
    copied(tmp_path / "data", s3_url)
    again(s3_url, "megatron")  # with the ETags there
    storage = open_storage(s3_url)
    (tmp_path / "data" / "_mdsx-tokens.json").write_bytes(storage.get("_mdsx-tokens.json").data)
    assert read(mdsx.Dataset(tmp_path / "data")[:]) == plain(tokens)
    data = bytearray(storage.get("0.bin").data)
    data[10] ^= 1
    storage.put("0.bin", data)
    with pytest.raises(mdsx.ChangedError, match=r"0\.bin: .*not the one that was indexed"):
        mdsx.Dataset(s3_url)[0]
    assert read([mdsx.Dataset(s3_url)[1800]]) == plain(tokens[1800:1801])


@pytest.mark.parametrize("cloud", ["az_url", "gs_url"])
def test_files_on_other_clouds_are_indexed_and_read(cloud: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    tokens, url = texts(), request.getfixturevalue(cloud)
    write(tmp_path / "data", "datatrove", tokens)
    copied(tmp_path / "data", url)
    assert again(url, "datatrove", hash=True).samples == len(tokens)
    dataset = mdsx.Dataset(url)
    assert read([dataset[1000]]) == plain(tokens[1000:1001])
    assert read(dataset[:]) == plain(tokens)


def test_files_of_web_servers_have_losses_all_or_none(tmp_path: Path) -> None:
    write(tmp_path / "data", "datatrove", texts(), index=tmp_path / "own")
    with HttpServer(tmp_path / "data") as server:
        files = server.url("") + "/{0..2}.ds"
        assert "loss" in again(files, "datatrove", index=tmp_path / "index").columns
        (tmp_path / "data" / "1.ds.loss").unlink()
        with pytest.raises(mdsx.MissingError, match=r"1\.ds\.loss: only some of the files have losses"):
            again(files, "datatrove", index=tmp_path / "index")
        for number in (0, 2):
            (tmp_path / "data" / f"{number}.ds.loss").unlink()
        assert "loss" not in again(files, "datatrove", index=tmp_path / "index").columns


def test_the_index_may_be_elsewhere(tmp_path: Path) -> None:
    tokens = texts()
    write(tmp_path / "data", "megatron", tokens, index=tmp_path / "index")
    assert not (tmp_path / "data" / "_mdsx-tokens.json").exists()
    assert read(mdsx.Dataset(tmp_path / "data", index=tmp_path / "index")[:]) == plain(tokens)


def test_a_run_continues_on_a_copy(kind: str, tmp_path: Path, s3_url: str) -> None:
    """Under other names, in another storage, and with hashes."""
    tokens = texts()
    write(tmp_path / "data", kind, tokens)
    pack = mdsx.Pack(1024, length="tokens")

    def loader(url: Any) -> mdsx.Loader:
        return mdsx.Loader(url, 2, seed=5, batching=pack, columns=["tokens"])

    whole = [batch["tokens"].tobytes() for batch in loader(tmp_path / "data")]
    first, begun = loader(tmp_path / "data"), []
    for batch in first:
        begun.append(batch["tokens"].tobytes())
        if len(begun) == 9:
            break
    state = first.state_dict()
    copied(tmp_path / "data", s3_url)
    again(s3_url, kind, hash=True)
    second = loader(s3_url)
    second.load_state_dict(state)
    assert begun + [batch["tokens"].tobytes() for batch in second] == whole


# --- changes


@pytest.mark.parametrize("hash", [False, True])
def test_a_changed_file_is_an_error(kind: str, hash: bool, tmp_path: Path) -> None:
    tokens = texts()
    write(tmp_path / "data", kind, tokens, hash=hash)
    path = next(each for each in sorted((tmp_path / "data").iterdir()) if each.suffix in (".bin", ".ds", ".npy"))
    undamaged = path.read_bytes()
    for place in (0, ENDS - 1, len(undamaged) - 1):
        path.write_bytes(undamaged[:place] + bytes([undamaged[place] ^ 1]) + undamaged[place + 1 :])
        for mmap in (True, False):
            with pytest.raises(mdsx.ChangedError, match=rf"{path.name}: .*not the one that was indexed.*mdsx index"):
                mdsx.Dataset(tmp_path / "data", mmap=mmap)[0]
        assert not mdsx.verify(tmp_path / "data").ok
    for data in (undamaged[:-2], undamaged + b"\0\0", undamaged[: len(undamaged) // 2]):
        path.write_bytes(data)
        with pytest.raises(mdsx.MdsxError, match=path.name):
            mdsx.Dataset(tmp_path / "data")[0]
    path.write_bytes(undamaged)
    assert read([mdsx.Dataset(tmp_path / "data")[0]]) == plain(tokens[:1])


def test_a_file_replaced_in_mid_run_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "data", "megatron", texts())
    for mmap in (True, False):
        dataset = mdsx.Dataset(tmp_path / "data", mmap=mmap)
        assert dataset[0] is not None
        path = tmp_path / "data" / "0.bin"
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        (tmp_path / "new").write_bytes(data)
        (tmp_path / "new").replace(path)
        with pytest.raises(mdsx.ChangedError, match=r"0\.bin"):
            [dataset[number] for number in range(600)]


def test_flipped_bytes_are_found_with_hashes_only(kind: str, tmp_path: Path, s3_url: str) -> None:
    tokens = texts()
    write(tmp_path / "data", kind, tokens)
    path = sorted(each for each in (tmp_path / "data").iterdir() if each.suffix in (".bin", ".ds", ".npy"))[0]
    undamaged = path.read_bytes()
    place = len(undamaged) // 2
    number = int(np.searchsorted(np.cumsum([2 * len(each) for each in tokens]), place, side="right"))
    flipped = undamaged[:place] + bytes([undamaged[place] ^ 1]) + undamaged[place + 1 :]
    path.write_bytes(flipped)
    assert read([mdsx.Dataset(tmp_path / "data")[number]]) != plain(tokens[number : number + 1])  # as docs say
    assert mdsx.verify(tmp_path / "data").ok
    path.write_bytes(undamaged)
    again(tmp_path / "data", kind, hash=True)
    path.write_bytes(flipped)
    copied(tmp_path / "data", s3_url)
    for url in (tmp_path / "data", s3_url):
        dataset = mdsx.Dataset(url)
        assert read([dataset[number - 1]]) == plain(tokens[number - 1 : number])
        for way in (lambda: dataset[number], lambda: dataset[:], lambda: dataset.take([number])):  # noqa: B023
            with pytest.raises(mdsx.CorruptError, match=path.name):
                way()
    (damage,) = mdsx.verify(tmp_path / "data")
    assert path.name in str(damage)
    loader = mdsx.Loader(tmp_path / "data", 5, on_error="skip", drop_last=False, columns=["tokens"])
    assert sum(len(batch["tokens"]) for batch in loader) == len(tokens) - 1
    assert loader.stats().skipped == 1


def test_hashes_change_no_fingerprint(kind: str, tmp_path: Path) -> None:
    write(tmp_path / "data", kind, texts())
    one = mdsx.Dataset(tmp_path / "data").fingerprint
    again(tmp_path / "data", kind, hash=True)
    assert mdsx.Dataset(tmp_path / "data").fingerprint == one
    write(tmp_path / "other", kind, [each for each in documents(len(texts()), seed=9) if len(each)])
    assert mdsx.Dataset(tmp_path / "other").fingerprint != one


def test_the_same_files_make_the_same_index(kind: str, tmp_path: Path) -> None:
    write(tmp_path / "data", kind, texts(), hash=True)
    files = {path: path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file()}
    again(tmp_path / "data", kind, hash=True)
    assert {path: path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file()} == files


def test_tables_of_the_index_before_stay_for_running_jobs(tmp_path: Path) -> None:
    write(tmp_path / "data", "megatron", texts())
    dataset = mdsx.Dataset(tmp_path / "data")
    first = set((tmp_path / "data" / "_mdsx-tokens").iterdir())
    again(tmp_path / "data", "megatron", hash=True)
    assert read(dataset[:]) == plain(texts())
    assert first < set((tmp_path / "data" / "_mdsx-tokens").iterdir())
    again(tmp_path / "data", "megatron", hash=True)
    assert not first & set((tmp_path / "data" / "_mdsx-tokens").iterdir())


def test_a_damaged_table_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "data", "megatron", texts())
    path = sorted((tmp_path / "data" / "_mdsx-tokens").iterdir())[0]
    undamaged = path.read_bytes()
    for data in (undamaged[:-1], b"", undamaged[:8] + b"\xff" + undamaged[9:]):
        path.write_bytes(data)
        with pytest.raises(mdsx.CorruptError, match=r"the file is not the one that the index names.*mdsx index"):
            mdsx.Dataset(tmp_path / "data")[:]
    path.unlink()
    with pytest.raises(mdsx.MissingError, match=path.name):
        mdsx.Dataset(tmp_path / "data")[:]


def test_other_indexes_are_not_replaced(tmp_path: Path) -> None:
    write(tmp_path / "data", "megatron", texts())
    with pytest.raises(mdsx.UsageError, match="replace_index=True"):
        mdsx.index_megatron(tmp_path / "data" / "0.bin")
    assert mdsx.index_megatron(tmp_path / "data" / "0.bin", replace_index=True).files == 1
    with mdsx.Writer(tmp_path / "own", {"id": "int64"}) as out:
        out.write({"id": 1})
    write_megatron(tmp_path / "own" / "a", documents(3))
    with pytest.raises(mdsx.UsageError, match="another dataset is here"):
        mdsx.index_megatron(tmp_path / "own")


def test_empty_files_and_documents_are_no_problem(tmp_path: Path) -> None:
    nothing = [np.zeros(0, np.uint16)] * 5
    write_megatron(tmp_path / "a", [])
    write_megatron(tmp_path / "b", nothing)
    write_megatron(tmp_path / "c", [*nothing, np.array([3], np.uint16), *nothing])
    found = mdsx.index_megatron(tmp_path)
    assert (found.samples, found.tokens) == (11, 1)
    for hash in (False, True):
        mdsx.index_megatron(tmp_path, hash=hash)
        assert read(mdsx.Dataset(tmp_path)[:]) == [[]] * 5 + [[3]] + [[]] * 5
        assert read([mdsx.Dataset(tmp_path)[1]]) == [[]]
        assert mdsx.verify(tmp_path).ok


# --- mixtures


def test_files_of_other_types_are_mixed_with_a_cast(tmp_path: Path) -> None:
    tokens = texts()
    write(tmp_path / "a", "megatron", tokens)
    wide = [each.astype(np.uint32) + 100_000 for each in tokens[:400]]
    (tmp_path / "b").mkdir()
    write_datatrove(tmp_path / "b" / "0.ds", wide)
    mdsx.index_datatrove(tmp_path / "b")
    with mdsx.Writer(tmp_path / "c", {"tokens": "uint16[*]"}) as out:
        for each in tokens[:300]:
            out.write({"tokens": each})
    urls = [tmp_path / name for name in "abc"]
    with pytest.raises(mdsx.UsageError, match="columns of components"):
        mdsx.Mixture(urls)
    cast = {"tokens": mdsx.Cast("tokens", "uint32")}
    mixture = mdsx.Mixture([mdsx.Component(str(url), columns=cast) for url in urls])
    expected = Counter(each.astype(np.uint32).tobytes() for each in [*tokens, *wide, *tokens[:300]])
    assert (
        Counter(each.tobytes() for batch in mdsx.Loader(mixture, 5, drop_last=False) for each in batch["tokens"])
        == expected
    )
    packed: Counter[bytes] = Counter()
    for batch in mdsx.Loader(mixture, 3, batching=mdsx.Pack(2048, length="tokens"), drop_last=False):
        assert batch["tokens"].dtype == np.uint32
        for row, ids in zip(batch["tokens"], batch["segment_ids"], strict=True):
            packed.update(row[ids == number].tobytes() for number in range(1, ids.max() + 1))
    del packed[b""]
    assert packed == expected


def test_indexed_and_written_tokens_of_one_type_are_mixed(tmp_path: Path) -> None:
    tokens = texts()
    write(tmp_path / "a", "megatron", tokens)
    with mdsx.Writer(tmp_path / "b", {"tokens": "uint16[*]"}) as out:
        for each in tokens:
            out.write({"tokens": each})
    mixture = mdsx.Mixture([tmp_path / "a", tmp_path / "b"])
    found = Counter(each.tobytes() for batch in mdsx.Loader(mixture, 7, drop_last=False) for each in batch["tokens"])
    assert found == Counter(each.tobytes() for each in [*tokens, *tokens])


def test_samples_of_one_length_come_as_an_array(tmp_path: Path, s3_url: str) -> None:
    tokens = np.random.default_rng(2).integers(0, 50_000, 200_000).astype(np.uint16)
    (tmp_path / "data").mkdir()
    write_llm_c(tmp_path / "data" / "train.bin", tokens)
    mdsx.index_tokens(tmp_path / "data", every=1000)
    copied(tmp_path / "data", s3_url)
    rows = tokens.reshape(200, 1000)
    for url in (tmp_path / "data", s3_url):
        assert (mdsx.Dataset(url).take([0, 199, 7])["tokens"] == rows[[0, 199, 7]]).all()
        assert (mdsx.Dataset(url)[150]["tokens"] == rows[150]).all()
