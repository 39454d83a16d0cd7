"""The sources of texts: each kind gives the same documents, and names what is wrong in its own words."""

from __future__ import annotations

import gzip
import re
import tarfile
from collections.abc import Callable
from contextlib import nullcontext
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

import mdsx
from mdsx import CorruptError, MissingError, SampleError, UsageError
from tests.transfer.converting.reruns import files
from tests.transfer.tokenizing.texts import documents, lines, tokens

TEXTS = documents(60)


def rows(texts: list[str]) -> list[list[int]]:
    return [list(text.encode()) for text in texts]


def run(tmp_path: Path, *sources: Any, **options: Any) -> mdsx.Tokenization:
    return mdsx.tokenize(list(sources), tmp_path / "out", "bytes", **options)


def write_tar(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, BytesIO(data))
    return path


# --- each kind


@pytest.mark.parametrize("suffix", ["jsonl", "ndjson", "json"])
def test_json_lines_are_known_by_their_suffix(tmp_path: Path, suffix: str) -> None:
    lines(tmp_path / f"a.{suffix}", TEXTS)
    compressed = tmp_path / f"b.{suffix}.gz"
    compressed.write_bytes(gzip.compress((tmp_path / f"a.{suffix}").read_bytes()))
    done = run(tmp_path, tmp_path / f"a.{suffix}", compressed)
    assert tokens(done.url) == rows(TEXTS * 2)


def test_parquet_files_and_folders_of_them(tmp_path: Path) -> None:
    (tmp_path / "table").mkdir()
    for name, of_text in (("a", pa.string()), ("b", pa.string())):
        table = pa.table({"id": range(60), "text": pa.array(TEXTS, of_text), "n": [[1]] * 60})
        pq.write_table(table, tmp_path / "table" / f"{name}.parquet", row_group_size=25)
    done = run(tmp_path, str(tmp_path / "table" / "*.parquet"), keep=["id"])
    assert tokens(done.url) == rows(TEXTS * 2)
    assert [sample["id"] for sample in mdsx.Dataset(done.url)] == [*range(60)] * 2
    folder = mdsx.tokenize(tmp_path / "table", tmp_path / "folder", "bytes", kind="parquet", text_column="text")
    assert tokens(folder.url) == rows(TEXTS * 2)


def test_null_texts_in_parquet_files_are_named_by_row(tmp_path: Path) -> None:
    table = pa.table({"text": ["ba", None, "ko", None, None]})
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(SampleError, match="row group 0, row 1, column 'text': the document has no text"):
        run(tmp_path, tmp_path / "a.parquet")
    done = run(tmp_path, tmp_path / "a.parquet", on_error="skip")
    assert (tokens(done.url), done.skipped) == (rows(["ba", "ko"]), 3)


def test_bytes_that_are_utf8_are_texts(tmp_path: Path) -> None:
    table = pa.table({"text": pa.array([b"ba", "日本".encode(), b"\xff"])})
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(SampleError, match=r"row 2, column 'text': the text is not UTF-8.*byte 0xff at byte 0"):
        run(tmp_path, tmp_path / "a.parquet")
    assert tokens(run(tmp_path, tmp_path / "a.parquet", on_error="skip").url) == rows(["ba", "日本"])


def test_tars_have_their_texts_in_members(tmp_path: Path) -> None:
    members = {f"{number:03}.{end}": text.encode() for number, text in enumerate(TEXTS) for end in ("txt", "json")}
    members |= {f"{number:03}.json": b'{"n": 1}' for number in range(60)} | {"099.json": b"{}", "README": b"x"}
    write_tar(tmp_path / "a.tar", members)
    with pytest.raises(SampleError, match=r"member '099.json'.*column 'txt': the document has no text"):
        run(tmp_path, tmp_path / "a.tar")
    done = run(tmp_path, tmp_path / "a.tar", keep=["__key__"], on_error="skip")
    assert (tokens(done.url), done.skipped) == (rows(TEXTS), 1)
    assert mdsx.Dataset(done.url)[1]["__key__"] == "001"


def test_a_text_file_is_a_document(tmp_path: Path) -> None:
    for number, text in enumerate(TEXTS):
        (tmp_path / f"{number:02}.txt").write_text(text)
    (tmp_path / "60.txt").write_bytes(b"\xef\xbb\xbf" + "é\r\n日".encode())
    (tmp_path / "61.txt").write_bytes(zstandard.compress(b"ba\nko\n"))
    done = run(tmp_path, str(tmp_path / "*.txt"))
    assert tokens(done.url) == rows([*TEXTS, "é\r\n日", "ba\nko\n"])


def test_a_line_of_a_text_file_is_a_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdsx.transfer.converting.line_files.UNIT", 50)
    (tmp_path / "a.txt").write_text("\r\n".join(TEXTS))
    (tmp_path / "b.md.gz").write_bytes(gzip.compress("\n".join(TEXTS).encode()))
    done = run(tmp_path, tmp_path / "a.txt", tmp_path / "b.md.gz", per="line")
    assert tokens(done.url) == rows([text for text in TEXTS if text] * 2)


def test_text_files_that_are_not_utf8_or_too_long_are_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_bytes(b"ba\nk\xe9\nmi\n")
    with pytest.raises(CorruptError, match=r"a\.txt: the file is not UTF-8 \(found byte 0xe9 at byte 4 of the file"):
        run(tmp_path, tmp_path / "a.txt")
    with pytest.raises(CorruptError, match=r"a\.txt: line 2: the line is not UTF-8"):
        run(tmp_path, tmp_path / "a.txt", per="line")
    assert tokens(run(tmp_path, tmp_path / "a.txt", per="line", on_error="skip").url) == rows(["ba", "mi"])
    monkeypatch.setattr("mdsx.transfer.converting.text_files.LARGEST", 5)
    with pytest.raises(SampleError, match=r"a\.txt: the file is too long.*--per line"):
        mdsx.tokenize(tmp_path / "a.txt", tmp_path / "long", "bytes")


# --- datasets


def write(folder: Path, texts: list[str | None], kind: str = "str?") -> Path:
    with mdsx.Writer(folder, {"id": "int32", "text": kind, "n": "float32[2]"}, shard_size="1KB") as out:
        for number, text in enumerate(texts):
            out.write({"id": number, "text": text, "n": [1, 2]})
    return folder


def test_any_dataset_is_a_source(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": pa.array(range(60), pa.int32()), "text": TEXTS}), tmp_path / "x.parquet")
    mdsx.index_parquet(tmp_path / "x.parquet", index=tmp_path / "index")
    ours = write(tmp_path / "ours", [*TEXTS])
    found = mdsx.Dataset(tmp_path, index=tmp_path / "index", columns=["text"])
    sources: list[Any] = [ours, str(ours), mdsx.Dataset(ours), mdsx.Mixture([ours]), found]
    for number, given in enumerate(sources):
        done = mdsx.tokenize(given, tmp_path / f"out-{number}", "bytes")
        assert tokens(done.url) == rows(TEXTS)


def test_selections_and_several_datasets_are_read_in_order(tmp_path: Path) -> None:
    one, two = write(tmp_path / "one", [*TEXTS]), write(tmp_path / "two", [*TEXTS[:7]])
    chosen = mdsx.Dataset(one).select([3, 4, 50])
    mixture = mdsx.Mixture({"a": chosen, "b": two})
    expected = [*(TEXTS[number] for number in (3, 4, 50)), *TEXTS[:7]]
    for number, given in enumerate(([chosen, two], mixture, [mixture])):
        done = mdsx.tokenize(given, tmp_path / f"out-{number}", "bytes", keep=["id"])  # type: ignore[arg-type]
        assert tokens(done.url) == rows(expected)
        assert [sample["id"] for sample in mdsx.Dataset(done.url)] == [3, 4, 50, *range(7)]
    with pytest.raises(UsageError, match="expected a mixture that reads each sample once"):
        mdsx.tokenize(mdsx.Mixture([(one, 1), (two, 2)]), tmp_path / "no", "bytes")


@pytest.mark.parametrize("stops", [False, True])
def test_another_column_under_the_same_name_is_another_source(tmp_path: Path, stops: bool) -> None:
    with mdsx.Writer(tmp_path / "in", {"title": "str", "body": "str"}, shard_size="1KB") as out:
        out.write_batch({"title": [f"T{number}" for number in range(300)], "body": ["B"] * 300})

    def tokenized(column: str, watch: Callable[[mdsx.Progress], object] = lambda progress: None) -> mdsx.Tokenization:
        dataset = mdsx.Dataset(tmp_path / "in").select_columns({"text": column})
        return mdsx.tokenize(dataset, tmp_path / "out", "bytes", shard_size="1KB", watch=watch)

    def stop(progress: mdsx.Progress) -> None:
        if progress.samples > 150:
            raise InterruptedError

    with pytest.raises(InterruptedError) if stops else nullcontext():
        tokenized("title", stop if stops else lambda progress: None)
    before = files(tmp_path / "out")
    with pytest.raises(UsageError, match="an unfinished conversion" if stops else "this conversion did not write"):
        tokenized("body")
    assert files(tmp_path / "out") == before
    assert tokenized("title").already is not stops
    assert tokens(tmp_path / "out") == rows([f"T{number}" for number in range(300)])


def test_nulls_and_damage_in_a_dataset_are_named_by_sample(tmp_path: Path) -> None:
    folder = write(tmp_path / "ours", [*TEXTS[:30], None, *TEXTS[30:]])
    with pytest.raises(SampleError, match="sample 30, column 'text': the document has no text"):
        run(tmp_path, folder)
    shard = sorted(folder.glob("shard*"))[1]
    data = bytearray(shard.read_bytes())
    data[-20] ^= 1
    shard.write_bytes(data)
    with pytest.raises(CorruptError, match="shard"):
        mdsx.tokenize(folder, tmp_path / "damaged", "bytes")
    done = mdsx.tokenize(folder, tmp_path / "skipped", "bytes", on_error="skip")
    assert done.skipped == 2
    assert set(map(tuple, tokens(done.url))) <= set(map(tuple, rows(TEXTS)))


@pytest.mark.parametrize("length", [None, 16])
def test_a_damaged_sample_of_a_dataset_is_left_out_alone(tmp_path: Path, length: int | None) -> None:
    """Also with several processes, and if the call had stopped at it, and is repeated with on_error="skip"."""
    folder = tmp_path / "ours"
    with mdsx.Writer(folder, {"text": "str"}) as out:
        for number in range(5000):
            out.write({"text": f"document {number:04}"})
    (shard,) = folder.glob("shard*")
    data = bytearray(shard.read_bytes())
    for number in (4321, 4322, 4999):
        data[data.index(b"document %04d" % number)] ^= 1
    shard.write_bytes(data)
    options: dict[str, Any] = {"rows": length, "shard_size": "16KB", "end_of_text": 256}
    with pytest.raises(CorruptError, match=r"sample 4321 .*its checksum does not match"):
        mdsx.tokenize(folder, tmp_path / "stopped", "bytes", **options)
    problems: list[str] = []
    watch: Any = lambda progress: problems.extend(map(str, progress.problems))  # noqa: E731
    for name, processes in (("stopped", 1), ("two", 2), ("one", 1)):
        problems.clear()
        options |= {"num_workers": processes, "watch": watch}
        done = mdsx.tokenize(folder, tmp_path / name, "bytes", on_error="skip", **options)
        assert (done.documents, done.skipped) == (4997, 3)
    assert [re.findall(r"sample (\d+)", problem) for problem in problems] == [["4321"], ["4322"], ["4999"]]
    assert files(tmp_path / "stopped") == files(tmp_path / "two") == files(tmp_path / "one")
    left = [number for number in range(5000) if number not in (4321, 4322, 4999)]
    texts = [token for number in left for token in (*(b"document %04d" % number), 256)]
    found = [token for row in tokens(tmp_path / "one") for token in row]
    assert found == texts[: len(found)]
    assert len(texts) - len(found) == (done.left_out or 0) < 16


def test_samples_that_share_damage_are_one_error_and_are_counted(tmp_path: Path) -> None:
    """As those of a row group of Parquet in place, or of a compressed shard."""
    pq.write_table(pa.table({"text": TEXTS}), tmp_path / "x.parquet", row_group_size=20, compression="zstd")
    mdsx.index_parquet(tmp_path / "x.parquet")
    chunk = pq.read_metadata(tmp_path / "x.parquet").row_group(1).column(0)
    data = bytearray((tmp_path / "x.parquet").read_bytes())
    at = chunk.dictionary_page_offset + chunk.total_compressed_size // 2
    data[at : at + 10] = bytes(10)
    (tmp_path / "x.parquet").write_bytes(data)
    problems: list[str] = []
    watch: Any = lambda progress: problems.extend(map(str, progress.problems))  # noqa: E731
    done = mdsx.tokenize(mdsx.Dataset(tmp_path), tmp_path / "out", "bytes", on_error="skip", watch=watch)
    assert tokens(done.url) == rows(TEXTS[:20] + TEXTS[40:])
    assert done.skipped == 20
    assert len(problems) == 1
    assert "so samples 20 to 39 cannot be used" in problems[0]


def test_damage_outside_of_the_samples_is_reported(tmp_path: Path) -> None:
    folder = write(tmp_path / "ours", [*TEXTS])
    shard = sorted(folder.glob("shard*"))[1]
    data = bytearray(shard.read_bytes())
    data[0] ^= 1
    shard.write_bytes(data)
    with pytest.raises(CorruptError, match=f"{shard.name}: magic"):
        mdsx.tokenize(folder, tmp_path / "strict", "bytes")
    done = mdsx.tokenize(folder, tmp_path / "out", "bytes", on_error="skip")
    assert (tokens(done.url), done.skipped) == (rows(TEXTS), 1)


def test_datasets_need_the_columns(tmp_path: Path) -> None:
    folder = write(tmp_path / "ours", [*TEXTS])
    for options, problem in (
        ({"text_column": "x"}, "there is no such column.*expected id, text, n, found 'x'"),
        ({"text_column": "n"}, "the column has no texts"),
        ({"keep": ["id"], "columns": {"id": "int8"}}, "a dataset's columns have types already"),
    ):
        with pytest.raises(UsageError, match=problem):
            run(tmp_path, folder, **options)


def test_lists_of_texts_are_no_texts(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": [["ba"], ["ko", "mi"]]}), tmp_path / "a.parquet")
    with pytest.raises(UsageError, match=r"column 'text': the column has no texts \(found str\[\*\]"):
        run(tmp_path, tmp_path / "a.parquet", on_error="skip")


# --- which kind


def test_sources_of_several_kinds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"of several kinds \(found jsonl: 'a.jsonl', text: 'b.txt'\).*--kind"):
        run(tmp_path, "a.jsonl", "b.txt")
    with pytest.raises(UsageError, match="no source is named"):
        run(tmp_path)
    with pytest.raises(UsageError, match=r"a source must be a path, a URL, an mdsx\.Dataset or an mdsx\.Mixture"):
        run(tmp_path, 7)


def test_the_kind_may_be_given(tmp_path: Path) -> None:
    path = lines(tmp_path / "corpus.part", TEXTS)
    assert tokens(run(tmp_path, path, kind="jsonl").url) == rows(TEXTS)


def test_a_folder_without_a_dataset_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    lines(tmp_path / "in" / "a.jsonl", TEXTS)
    with pytest.raises(MissingError, match=r"name files, such as FOLDER/\*\.jsonl"):
        run(tmp_path, tmp_path / "in")


def test_sources_and_output_may_be_remote(tmp_path: Path, s3_url: str) -> None:
    from mdsx.storage import open_storage

    lines(tmp_path / "a.jsonl", TEXTS)
    for name in ("0.jsonl", "1.jsonl"):
        open_storage(s3_url, write=True).put(f"raw/{name}", (tmp_path / "a.jsonl").read_bytes())
    done = mdsx.tokenize(f"{s3_url}/raw/{{0..1}}.jsonl", f"{s3_url}/out", "bytes", num_workers=2, shard_size="2KB")
    assert tokens(done.url) == rows(TEXTS * 2)
