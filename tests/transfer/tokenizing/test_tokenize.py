"""`mdsx.tokenize`: the tokens that the tokenizer itself has, in the order of the sources, also after any kill."""

from __future__ import annotations

import gzip
import json
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, processors

import mdsx
from mdsx import CorruptError, MdsxError, MissingError, SampleError, UnsupportedError, UsageError
from mdsx.transfer.converting import line_files, record
from mdsx.transfer.tokenizing import TokenizationProgress, source
from tests.conftest import Often
from tests.transfer.converting.reruns import files
from tests.transfer.tokenizing.texts import END, documents, expected, lines, tokenizer_file, tokens
from tests.writer.jobs import DieAt, killed, start_job

# --- rows that are documents


def test_rows_are_the_tokenizers_own_tokens_with_an_end(tmp_path: Path) -> None:
    texts, tokenizer = documents(300), tokenizer_file(tmp_path)
    done = mdsx.tokenize(lines(tmp_path / "a.jsonl", texts), tmp_path / "out", tokenizer, end_of_text=END)
    assert tokens(done.url) == expected(tokenizer, texts, end=0)
    assert (done.samples, done.documents, done.left_out, done.skipped) == (300, 300, 0, 0)
    assert done.tokens == sum(map(len, tokens(done.url)))
    assert done.columns == {"tokens": "uint16[*]"}
    assert any(text == "" for text in texts) == any(row == [] for row in tokens(done.url)) is True


def test_begin_and_end_are_named_by_text_or_number(tmp_path: Path) -> None:
    path, tokenizer = lines(tmp_path / "a.jsonl", ["ba", "", "ko mi"]), tokenizer_file(tmp_path)
    plain = expected(tokenizer, ["ba", "", "ko mi"])
    mdsx.tokenize(path, tmp_path / "out", tokenizer, begin_of_text=5, end_of_text=END)
    assert tokens(tmp_path / "out") == [[5, *plain[0], 0], [], [5, *plain[2], 0]]


def test_padding_truncation_and_templates_of_the_file_do_not_count(tmp_path: Path) -> None:
    texts, tokenizer = documents(50), tokenizer_file(tmp_path)
    changed = Tokenizer.from_file(str(tokenizer))
    changed.enable_padding(length=64)
    changed.enable_truncation(8)
    template: Any = processors.TemplateProcessing(single=f"$A {END}", special_tokens=[(END, 0)])
    changed.post_processor = template
    changed.save(str(tmp_path / "changed.json"))
    mdsx.tokenize(lines(tmp_path / "a.jsonl", texts), tmp_path / "out", tmp_path / "changed.json")
    assert tokens(tmp_path / "out") == expected(tokenizer, texts)


def test_columns_are_kept_beside_the_tokens(tmp_path: Path) -> None:
    texts, tokenizer = documents(40), tokenizer_file(tmp_path)
    path = lines(tmp_path / "a.jsonl", texts, source=[f"web {number}" for number in range(40)])
    mdsx.tokenize(path, tmp_path / "out", tokenizer, keep=["source", "id"], columns={"id": "int32"})
    dataset = mdsx.Dataset(tmp_path / "out")
    assert dataset.columns == {"tokens": "uint16[*]", "source": "str", "id": "int32"}
    assert [(sample["source"], sample["id"]) for sample in dataset] == [(f"web {n}", n) for n in range(40)]


def test_lengths_are_stored_and_rows_can_be_packed_at_once(tmp_path: Path) -> None:
    texts, tokenizer = documents(200), tokenizer_file(tmp_path)
    for part in (0, 1):  # each is a shard or more, with lengths that are joined
        lines(tmp_path / f"{part}.jsonl", texts[part::2])
    done = mdsx.tokenize(str(tmp_path / "?.jsonl"), tmp_path / "out", tokenizer, end_of_text=END, shard_size="4KB")
    assert json.loads((tmp_path / "out" / "index.json").read_text())["lengths"] == {"tokens": done.tokens}
    assert (tmp_path / "out" / "_lengths").is_dir()
    loader = mdsx.Loader(tmp_path / "out", batch_size=1, batching=mdsx.Pack(1024, length="tokens"))
    assert sum(int((batch["segment_ids"] > 0).sum()) for batch in loader) == done.tokens


def test_the_type_follows_from_the_vocabulary(tmp_path: Path) -> None:
    path, tokenizer = lines(tmp_path / "a.jsonl", ["ba ko"]), tokenizer_file(tmp_path)
    large = Tokenizer.from_file(str(tokenizer))
    large.add_tokens([f"token {number}" for number in range(2**16 - large.get_vocab_size())])
    large.save(str(tmp_path / "65536.json"))
    large.add_tokens(["one more"])
    large.save(str(tmp_path / "65537.json"))
    for name, kind in (("65536", "uint16"), ("65537", "uint32")):
        assert mdsx.tokenize(path, tmp_path / name, tmp_path / f"{name}.json").columns == {"tokens": f"{kind}[*]"}
    assert mdsx.tokenize(path, tmp_path / "i", tokenizer, dtype="int64").columns == {"tokens": "int64[*]"}
    with pytest.raises(UsageError, match=r"uint8 cannot hold all tokens.*expected 256, found 400 tokens"):
        mdsx.tokenize(path, tmp_path / "no", tokenizer, dtype="uint8")
    for kind in ("float32", "uint16[4]", "uint16?", "str"):
        with pytest.raises(UsageError, match="dtype must be an integer type"):
            mdsx.tokenize(path, tmp_path / "no", tokenizer, dtype=kind)


def test_bytes_are_tokens_too(tmp_path: Path) -> None:
    texts = [*documents(30), "", "\ud7ff\0"]
    path = lines(tmp_path / "a.jsonl", texts)
    done = mdsx.tokenize(path, tmp_path / "out", "bytes", begin_of_text="<|beginoftext|>", end_of_text=END)
    assert done.columns == {"tokens": "uint16[*]"}
    assert tokens(done.url) == [[257, *text.encode(), 256] if text else [] for text in texts]
    plain = mdsx.tokenize(path, tmp_path / "plain", "bytes", dtype="uint8")
    assert [bytes(row) for row in tokens(plain.url)] == [text.encode() for text in texts]


# --- rows of one length


@pytest.mark.parametrize("length", [1, 7, 64])
def test_rows_follow_the_documents_and_what_is_left_is_counted(tmp_path: Path, length: int) -> None:
    texts, tokenizer = documents(200), tokenizer_file(tmp_path)
    done = mdsx.tokenize(lines(tmp_path / "a.jsonl", texts), tmp_path / "out", tokenizer, rows=length, end_of_text=END)
    flat = [*chain.from_iterable(expected(tokenizer, texts, end=0))]
    count = len(flat) // length
    assert tokens(done.url) == [flat[row * length : (row + 1) * length] for row in range(count)]
    assert done.columns == {"tokens": f"uint16[{length}]"}
    assert (done.samples, done.tokens, done.left_out) == (count, count * length, len(flat) - count * length)
    assert done.documents == 200


def test_rows_never_cross_a_stretch_of_the_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_SMALLEST_OF_ROWS", 1)
    monkeypatch.setattr(source, "_ROWS", 0)
    texts, tokenizer = documents(90), tokenizer_file(tmp_path)
    for part in range(3):
        lines(tmp_path / f"{part}.jsonl", texts[30 * part : 30 * part + 30])
    done = mdsx.tokenize(str(tmp_path / "?.jsonl"), tmp_path / "out", tokenizer, rows=16, end_of_text=END)
    rows, left = [], 0
    for part in range(3):
        flat = [*chain.from_iterable(expected(tokenizer, texts[30 * part : 30 * part + 30], end=0))]
        rows += [flat[start : start + 16] for start in range(0, len(flat) - 15, 16)]
        left += len(flat) % 16
    assert (tokens(done.url), done.left_out) == (rows, left)


def test_rows_without_a_mark_between_documents_are_a_warning(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", documents(20))
    with pytest.warns(UserWarning, match="nothing in the rows marks where a document ends"):
        mdsx.tokenize(path, tmp_path / "out", "bytes", rows=8)


# --- the same bytes, whatever happens meanwhile


def large(folder: Path) -> str:
    """Write files of some units; return what names them."""
    texts = documents(1200)
    for part in range(4):
        lines(folder / f"{part}.jsonl", texts[300 * part : 300 * part + 300])
    return str(folder / "?.jsonl")


@pytest.mark.parametrize("rows", [None, 32])
def test_the_bytes_are_the_same_for_any_number_of_processes(
    tmp_path: Path, rows: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_files, "UNIT", 2**14)
    monkeypatch.setattr(source, "_SMALLEST", 2**14)
    monkeypatch.setattr(source, "_SMALLEST_OF_ROWS", 2**15)
    sources, tokenizer = large(tmp_path), tokenizer_file(tmp_path)
    given: dict[str, Any] = {"rows": rows, "end_of_text": END, "shard_size": "16KB"}
    done = [mdsx.tokenize(sources, tmp_path / str(count), tokenizer, num_workers=count, **given) for count in (1, 2, 3)]
    assert len([*(tmp_path / "1").glob("part-*")]) > 3
    assert files(tmp_path / "1") == files(tmp_path / "2") == files(tmp_path / "3")
    assert len({(each.samples, each.tokens, each.documents, each.left_out) for each in done}) == 1


def _run(sources: str, out: Path, tokenizer: Path, rows: int | None) -> mdsx.Tokenization:
    line_files.UNIT = source._SMALLEST = 2**13
    source._SMALLEST_OF_ROWS, source._ROWS = 2**14, 0
    record._SAVE_EVERY = 0.0
    return mdsx.tokenize(
        sources,
        out,
        tokenizer,
        rows=rows,
        end_of_text=END,
        shard_size="4KB",
        on_error="skip",
        keep=[] if rows else ["id"],
    )


@pytest.mark.parametrize("rows", [None, 32])
def test_a_killed_call_continues_to_the_same_bytes_and_counts(
    tmp_path: Path, rows: int | None, often: Often, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in ((line_files, "UNIT"), (source, "_SMALLEST"), (source, "_SMALLEST_OF_ROWS"),
                         (source, "_ROWS"), (record, "_SAVE_EVERY")):  # fmt: skip
        monkeypatch.setattr(module, name, getattr(module, name))  # they are restored at the end
    (tmp_path / "in").mkdir()
    sources, tokenizer = large(tmp_path / "in"), tokenizer_file(tmp_path)
    with (tmp_path / "in" / "2.jsonl").open("a") as file:
        file.write('{"id": 1}\nno JSON\n')
    right = _run(sources, tmp_path / "right", tokenizer, rows)
    assert right.skipped == 2
    for number in range(often(1, 40)):
        out, kills, changes = tmp_path / str(number), 0, 40 + 31 * number
        while kills < 60 and killed(start_job(partial(_run, sources, out, tokenizer, rows), hook=DieAt(changes))):
            kills += 1
            changes += 60
        assert kills > 2
        assert files(out) == files(tmp_path / "right")
        again = _run(sources, out, tokenizer, rows)
        assert (again.samples, again.tokens, again.skipped, again.already) == (right.samples, right.tokens, 2, True)


def test_a_call_that_is_stopped_continues_and_counts_everything_once(tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    def stop(progress: mdsx.Progress) -> None:
        if progress.samples > 500:
            raise Stop

    sources, tokenizer = large(tmp_path), tokenizer_file(tmp_path)
    run = partial(mdsx.tokenize, sources, tmp_path / "out", tokenizer, shard_size="4KB", end_of_text=END)
    with pytest.raises(Stop):
        run(watch=stop)
    seen: list[TokenizationProgress] = []

    def watch(progress: mdsx.Progress) -> None:
        assert isinstance(progress, TokenizationProgress)
        seen.append(progress)

    done = run(watch=watch)
    assert (done.documents, done.tokens) == (1200, sum(map(len, tokens(done.url))))
    assert (seen[-1].documents, seen[-1].tokens, seen[-1].size) == (1200, done.tokens, seen[-1].of_size)
    assert all(before.tokens <= after.tokens for before, after in pairwise(seen))
    assert seen[-1].speed > 0


def test_another_tokenizer_is_another_dataset(tmp_path: Path) -> None:
    path, out = lines(tmp_path / "a.jsonl", documents(30)), tmp_path / "out"
    first = mdsx.tokenize(path, out, tokenizer_file(tmp_path, 400))
    moved = tokenizer_file(tmp_path, 400).rename(tmp_path / "moved.json")
    assert mdsx.tokenize(path, out, moved).already
    other = tokenizer_file(tmp_path, 300)
    for changed in (partial(mdsx.tokenize, path, out, other), partial(mdsx.tokenize, path, out, moved, end_of_text=0)):
        with pytest.raises(UsageError, match="already holds a dataset that this conversion did not write"):
            changed()
    replaced = mdsx.tokenize(path, out, other, overwrite=True)
    assert not replaced.already
    assert replaced.tokens > first.tokens
    assert mdsx.Dataset(out).metadata["tokenized"]["vocabulary"] == 300


# --- bad documents


def bad(folder: Path) -> Path:
    good = [json.dumps({"id": number, "text": "ba ko"}) for number in range(3)]
    found = [
        good[0],
        '{"id": 1}',
        '{"id": 2, "text": null}',
        '{"id": 3, "text": 7}',
        good[1],
        '{"id": 4, "text": "a", "text": "b"}',
        "{broken",
        '{"id": 5, "text": "\\ud800"}',
        '{"id": "six", "text": "ba"}',
        good[2],
    ]
    path = folder / "bad.jsonl"
    path.write_text("\n".join(found) + "\n")
    return path


def test_bad_lines_are_named_and_skipped(tmp_path: Path) -> None:
    path, tokenizer, problems = bad(tmp_path), tokenizer_file(tmp_path), list[MdsxError]()
    done = mdsx.tokenize(
        path,
        tmp_path / "out",
        tokenizer,
        keep=["id"],
        columns={"id": "int64"},
        on_error="skip",
        watch=lambda progress: problems.extend(progress.problems),
    )
    assert (done.samples, done.skipped, done.documents) == (3, 7, 3)
    assert [error.file for error in problems] == [str(path)] * 7
    assert [(error.place or "").partition(",")[0] for error in problems] == [f"line {n}" for n in (2, 3, 4, 6, 7, 8, 9)]
    texts = [str(error) for error in problems]
    assert "line 2, column 'text': the document has no text: it is null or missing" in texts[0]
    assert "does not fit str?" in texts[2]
    assert "duplicate key 'text'" in texts[3]
    assert "not JSON" in texts[4]
    assert "line 8, column 'text': the text cannot be written as UTF-8" in texts[5]
    assert all("--on-error skip" in text for text in texts[:6])
    assert "line 9, column 'id'" in texts[6]
    assert tokens(done.url) == expected(tokenizer, ["ba ko"] * 3)


@pytest.mark.parametrize("numbers", [[1, 300, 3], [300]])
def test_a_document_whose_kept_value_is_refused_is_not_counted(tmp_path: Path, numbers: list[int]) -> None:
    path = lines(tmp_path / "a.jsonl", ["ba"] * len(numbers), number=numbers)
    run = partial(mdsx.tokenize, path, tmp_path / "out", "bytes", keep=["number"], columns={"number": "int8"})
    fit = len(numbers) - 1
    for _ in range(2):
        done = run(on_error="skip")
        assert (done.samples, done.documents, done.tokens, done.skipped) == (fit, fit, 2 * fit, 1)
    assert done.already


@pytest.mark.parametrize(
    ("line", "kind", "problem"),
    [
        ('{"id": 1}', SampleError, r"line 2, column 'text': the document has no text.*--on-error skip leaves out such"),
        ('{"text": [1]}', SampleError, r"line 2, column 'text': does not fit str\?.*skip leaves out such documents"),
        ("[1]", CorruptError, "line 2: the line is not a JSON object"),
        ('{"text": "\\udc00"}', SampleError, r"line 2, column 'text': .*lone surrogate U\+DC00 at character 0"),
    ],
)
def test_a_bad_line_is_an_error_and_there_is_no_dataset(
    tmp_path: Path, line: str, kind: type[MdsxError], problem: str
) -> None:
    (tmp_path / "a.jsonl").write_text(f'{{"id": 0, "text": "ba"}}\n{line}\n')
    with pytest.raises(kind, match=problem):
        mdsx.tokenize(tmp_path / "a.jsonl", tmp_path / "out", tokenizer_file(tmp_path), end_of_text=END)
    assert not (tmp_path / "out" / "index.json").exists()


def test_a_text_that_the_tokenizer_refuses_is_one_bad_document(tmp_path: Path) -> None:
    model = {"type": "WordLevel", "vocab": {"ba": 0, "ko": 1}, "unk_token": "none"}
    (tmp_path / "words.json").write_text(json.dumps({"model": model, "pre_tokenizer": {"type": "Whitespace"}}))
    path = lines(tmp_path / "a.jsonl", ["ba", "ko ba", "mi", "ko"])
    with pytest.raises(SampleError, match="line 3, column 'text': the tokenizer has no tokens for the text"):
        mdsx.tokenize(path, tmp_path / "no", tmp_path / "words.json")
    done = mdsx.tokenize(path, tmp_path / "out", tmp_path / "words.json", on_error="skip")
    assert tokens(done.url) == [[0], [1, 0], [1]]


# --- arguments


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"rows": 0}, "rows must be an integer of at least 1"),
        ({"rows": 8, "keep": ["id"]}, "no columns can be kept"),
        ({"keep": "id"}, "keep must be a list of names"),
        ({"keep": ["tokens"]}, "a kept column has the name of the column of tokens"),
        ({"keep": ["none"]}, "there is no such column.*found 'none'"),
        ({"columns": {"id": "int32"}}, "a type is given for a column that is not kept.*--keep id"),
        ({"text_column": "none"}, "there is no such column.*expected id, text, meta, found 'none'"),
        ({"text_column": "id"}, "column 'id': the column has no texts.*--text-column"),
        ({"end_of_text": "none"}, "the tokenizer has no such token.*found 'none'"),
        ({"end_of_text": 400}, "the tokenizer has no such token.*a number below 400"),
        ({"begin_of_text": True}, "the tokenizer has no such token"),
        ({"kind": "csv"}, "there is no such kind of source"),
        ({"per": "line"}, "converting jsonl has no such option.*found per"),
        ({"on_error": "no"}, "on_error is unknown"),
        ({"engine": "none"}, "unknown engine"),
    ],
)
def test_invalid_arguments_are_errors(tmp_path: Path, options: dict[str, Any], problem: str) -> None:
    path = lines(tmp_path / "a.jsonl", documents(3))
    with pytest.raises(UsageError, match=problem):
        mdsx.tokenize(path, tmp_path / "out", tokenizer_file(tmp_path), **options)
    assert not (tmp_path / "out").exists()


def test_bytes_have_two_tokens_more_and_no_others(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", documents(3))
    for token in (258, "x", -1):
        with pytest.raises(UsageError, match="bytes have no such token"):
            mdsx.tokenize(path, tmp_path / "out", "bytes", end_of_text=token)
    with pytest.raises(UsageError, match="uint8 cannot hold all tokens"):
        mdsx.tokenize(path, tmp_path / "out", "bytes", end_of_text=256, dtype="uint8")


def test_files_that_are_no_tokenizer_are_errors(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", documents(3))
    with pytest.raises(MissingError, match="there is no such tokenizer"):
        mdsx.tokenize(path, tmp_path / "out", tmp_path / "none.json")
    (tmp_path / "x.json").write_text("{}")
    (tmp_path / "x.gz").write_bytes(gzip.compress(b"{}"))
    for file in (tmp_path / "x.json", tmp_path / "x.gz", tmp_path):
        with pytest.raises(UnsupportedError, match=r"the file is not a tokenizer: .*tokenizer\.json"):
            mdsx.tokenize(path, tmp_path / "out", file)


def test_a_tokenizer_that_chooses_tokens_at_random_is_refused(tmp_path: Path) -> None:
    path, tokenizer = lines(tmp_path / "a.jsonl", documents(3)), tokenizer_file(tmp_path)
    found = json.loads(tokenizer.read_text(encoding="utf-8"))
    for dropout in (0.5, 0.0):
        found["model"]["dropout"] = dropout
        (tmp_path / f"{dropout}.json").write_text(json.dumps(found))
    with pytest.raises(UnsupportedError, match=r'at random \(found dropout 0\.5\); set "dropout" to null'):
        mdsx.tokenize(path, tmp_path / "out", tmp_path / "0.5.json")
    assert not (tmp_path / "out").exists()
    assert tokens(mdsx.tokenize(path, tmp_path / "out", tmp_path / "0.0.json").url) == expected(tokenizer, documents(3))


def test_the_index_says_what_made_the_tokens(tmp_path: Path) -> None:
    tokenizer = tokenizer_file(tmp_path)
    mdsx.tokenize(lines(tmp_path / "a.jsonl", documents(3)), tmp_path / "out", tokenizer, end_of_text=END)
    made = dict(mdsx.Dataset(tmp_path / "out").metadata["tokenized"])
    assert len(made.pop("tokenizer")) == 32
    assert made == {"text": "text", "begin_of_text": None, "end_of_text": 0, "vocabulary": 400}
    assert np.dtype("uint16") == mdsx.Dataset(tmp_path / "out")[0]["tokens"].dtype
