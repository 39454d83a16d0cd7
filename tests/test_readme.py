"""The code in the README and in docs/ works: each page's Python in one session, each `mdsx` command in a shell."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import re
import shlex
import shutil
import sys
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import datasets
import numpy as np
import PIL.Image
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mdsx
from mdsx import cli
from mdsx.storage import open_storage
from tests import fork_server
from tests.foreign.mds import plain
from tools.servers.s3 import S3Server

ROOT = Path(__file__).parent.parent
PAGES = (
    "README.md",
    "docs/README.md",
    "docs/writing.md",
    "docs/converting.md",
    "docs/training.md",
    "docs/mixtures.md",
    "docs/shuffling.md",
    "docs/batches.md",
    "docs/images.md",
    "docs/data.md",
    "docs/operations.md",
)
"""In the order in which a reader needs them: later pages read what earlier ones write."""
ELSEWHERE = {
    "docs/engines.md": "engines/ray/test_example.py",
    "docs/extending.md": "testing/test_example.py",
    "docs/from-hf-datasets.md": "guides/test_from_hf_datasets.py",
    "docs/from-litdata.md": "guides/test_from_litdata.py",
    "docs/from-mosaicml.md": "guides/test_from_mosaicml.py",
    "docs/from-webdataset.md": "guides/test_from_webdataset.py",
    "docs/pretraining.md": "guides/test_pretraining.py",
    "docs/stored-formats.md": "shards/formats/test_page.py",
    "docs/trainers.md": "torch/test_frameworks.py",
}
"""Pages whose code other tests run."""
COMPILED = ("docs/clouds.md",)  # it names servers that tests lack


class Block(NamedTuple):
    """A fenced block, and the number of lines before its code."""

    language: str
    code: str
    line: int


def blocks(page: str) -> Iterator[Block]:
    text = (ROOT / page).read_text(encoding="utf-8")
    for match in re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield Block(match[1], match[2], text[: match.start(2)].count("\n"))


def write_tars(directory: Path) -> None:
    """`shards-{0000..0003}.tar`, as WebDataset writes them."""
    for number in range(4):
        with tarfile.open(directory / f"shards-{number:04}.tar", "w") as tar:
            for sample in range(5):
                for extension, data in (("cls", str(sample).encode()), ("json", json.dumps({"n": number}).encode())):
                    member = tarfile.TarInfo(f"{number}-{sample}.{extension}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))


def write_mixed_tars(directory: Path, name: str = "mixed-{:04}.tar", text: bytes = b"[NaN]") -> None:
    """`mixed-{0000..0001}.tar`: pictures of two kinds, JSON with NaN, and a file without a sample."""
    for number in range(2):
        with tarfile.open(directory / name.format(number), "w") as tar:
            members = [("README", b"read me")]
            for sample in range(4):
                picture = ("jpg", b"\xff\xd8\xff") if sample % 2 else ("png", b"\x89PNG\r\n\x1a\n")
                members += [(f"{number}-{sample}.{picture[0]}", picture[1]), (f"{number}-{sample}.json", text)]
            for member_name, data in members:
                member = tarfile.TarInfo(member_name)
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))


def write_photos() -> None:
    """`s3://bucket/photos`: encoded images of several sizes."""
    with mdsx.Writer("s3://bucket/photos", {"image": "jpeg"}) as out:
        for number in range(4):
            file = io.BytesIO()
            PIL.Image.new("RGB", (40 + number, 30)).save(file, "JPEG")
            out.write({"image": file.getvalue()})


def write_table(directory: Path) -> None:
    """`table/`: a Parquet file."""
    (directory / "table").mkdir()
    table = pa.table({"text": [f"text {row}" for row in range(10)], "url": ["https://example.com"] * 10})
    pq.write_table(table, directory / "table" / "a.parquet", row_group_size=4)


def copy_golden_files(directory: Path) -> None:
    """`train-00000.tfrecord` and -00001, indexed datasets of Megatron: `{corpus,old-00,old-01}_text_document`, and
    `mosaic/`, an MDS dataset."""
    shutil.copytree(ROOT / "tests" / "foreign" / "mds" / "golden" / "hashes", directory / "mosaic")
    golden = ROOT / "tests" / "transfer" / "converting" / "golden"
    for number in range(2):
        shutil.copy(golden / "tfrecord" / "plain.tfrecord", directory / f"train-{number:05}.tfrecord")
    for prefix in ("corpus", "old-00", "old-01"):
        for suffix in (".bin", ".idx"):
            shutil.copy(golden / "megatron" / f"u16{suffix}", directory / f"{prefix}_text_document{suffix}")


def write_files_of_others(directory: Path) -> None:
    """What docs/data.md reads where it is, in `s3://bucket`; and `foundry`, `saved`."""
    there = directory / "in-place"
    texts = [{"id": number, "text": f"text {number}"} for number in range(100)]
    for name, samples in (("mds", texts[:60]), ("more-mds", texts[60:])):
        plain.write_dataset(there / name, {"id": "int", "text": "str"}, [samples])
    for name in ("pages", "labelled", "scraped", "tokens-of-megatron"):
        (there / name).mkdir()
    shutil.copy(directory / "table" / "a.parquet", there / "pages")
    for number in range(4):
        shutil.copy(directory / f"shards-{number:04}.tar", there / "labelled")
    write_mixed_tars(there / "scraped", "{:04}.tar", b"[1]")
    for suffix in (".bin", ".idx"):
        shutil.copy(directory / f"corpus_text_document{suffix}", there / "tokens-of-megatron")
    for folder in there.iterdir():
        storage = open_storage(f"s3://bucket/{folder.name}")
        for file in folder.iterdir():
            storage.put(file.name, file.read_bytes())
    for name, dtype in (("gpt2", "uint16"), ("llama3", "uint32")):
        with mdsx.Writer(f"s3://bucket/{name}", {"tokens": f"{dtype}[*]"}) as out:
            out.write_batch({"tokens": [[1] * number for number in range(100)]})
    tokens = [{"tokens": np.full(number, number, np.int64).tobytes()} for number in range(200)]
    plain.write_dataset(directory / "foundry", {"tokens": "bytes"}, [tokens])
    rows = [{"input_ids": [1] * number, "attention_mask": [1] * number} for number in range(200)]
    datasets.Dataset.from_list(rows).save_to_disk(directory / "saved")


def run_pages(directory: Path, pages: Sequence[str]) -> tuple[set[str], dict[str, Any]]:
    """Run pages there. Return the names of the commands that ran, and what is left of an epoch in each session."""
    os.chdir(directory)
    multiprocessing.set_start_method(None, force=True)  # the default, which is not the fork server
    sessions: dict[str, dict[str, Any]] = {page: {"__name__": page} for page in pages}
    commands = set()
    for page, session in sessions.items():
        for block in blocks(page):
            if block.language == "python":
                exec(compile("\n" * block.line + block.code, page, "exec"), session)
            for line in block.code.splitlines() if block.language == "sh" else ():
                if line.startswith("mdsx "):
                    sys.argv = shlex.split(line, comments=True)
                    process = multiprocessing.Process(target=cli.main)  # a fork: an interpreter takes 0.5 s to start
                    process.start()
                    process.join()
                    assert process.exitcode == 0, line
                    commands.add(sys.argv[1])
    return commands, {page: session.get("remaining") for page, session in sessions.items()}


@pytest.fixture
def _bucket(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`s3://bucket`, which the pages name, on a server of its own."""
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        for name, value in server.env().items():
            monkeypatch.setenv(name, value)
        server.make_bucket("bucket")
        yield


@pytest.mark.usefixtures("_bucket")
def test_the_readmes_snippets_work(tmp_path: Path) -> None:
    write_tars(tmp_path)
    commands, remaining = fork_server.call(run_pages, tmp_path, PAGES[:2])
    assert commands == {"cat", "doctor", "info", "quickstart", "verify"}
    assert remaining["README.md"] == (1000 // 32 - 10) * 32
    assert len(mdsx.Dataset("s3://bucket/corpus")) == 1000


def test_the_code_of_each_page_is_run() -> None:
    pages = {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md") if "```python" in path.read_text("utf-8")}
    assert pages == {*PAGES, *ELSEWHERE, *COMPILED} - {"README.md"}
    for page, test in ELSEWHERE.items():
        assert Path(page).stem in (ROOT / "tests" / test).read_text(encoding="utf-8")


def test_snippets_of_python_compile() -> None:
    for page in (*PAGES, *COMPILED):
        for block in blocks(page):
            if block.language == "python":
                compile("\n" * block.line + block.code, page, "exec")


@pytest.mark.slow
@pytest.mark.usefixtures("_bucket")
def test_every_snippet_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tars(tmp_path)
    write_mixed_tars(tmp_path)
    write_table(tmp_path)
    write_photos()
    copy_golden_files(tmp_path)
    write_files_of_others(tmp_path)
    commands, remaining = fork_server.call(run_pages, tmp_path, PAGES, timeout=280)
    monkeypatch.chdir(tmp_path)
    expected = "append cache cat change clean convert doctor export index info lengths merge quickstart repair select "
    expected += "sizes tokenize verify"
    assert commands == set(expected.split())
    assert remaining["README.md"] == (1000 // 32 - 10) * 32
    assert remaining["docs/training.md"] == (5000 // 32 - 10) * 32
    assert len(mdsx.Dataset("s3://bucket/corpus")) == 1000
    assert [int(sample["tokens"][0]) for sample in mdsx.Dataset("s3://bucket/big")[::100]] == [0, 1, 2]
    assert len(mdsx.Dataset("s3://bucket/pictures")) == 20
    assert [sample["json"] for sample in mdsx.Dataset("mixed")] == [[None]] * 8
    assert len(mdsx.Dataset("s3://bucket/imagenet")) == 20
    assert len(mdsx.Dataset("s3://bucket/tokenized")) == 12
    assert dict(mdsx.Dataset("s3://bucket/from-parquet").columns) == {"text": "str"}
    assert len(mdsx.Dataset("s3://bucket/from-mds")) == 20
    assert str(mdsx.Dataset("s3://bucket/sequences")[1]["tokens"].dtype) == "int32"


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 130


def test_every_page_is_listed() -> None:
    listed = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    assert not [page.name for page in (ROOT / "docs").glob("*.md") if f"]({page.name}" not in listed + "](README.md"]


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title).replace(" ", "-").lower() for title in titles}


@pytest.mark.parametrize(
    "page", sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]), ids=lambda page: page.name
)
def test_links_have_targets(page: Path) -> None:
    wrong = []
    text = page.read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)]+)\)", text) + re.findall(r"^\[[^]]+\]: (\S+)", text, re.MULTILINE):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if (
            "://" not in link
            and link != "../../security/advisories/new"
            and not (target.exists() and (not anchor or anchor in anchors(target)))
        ):
            wrong.append(link)
    assert not wrong
