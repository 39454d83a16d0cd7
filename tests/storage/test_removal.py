"""Only what mdsx has written is removed, through no link, by no other module."""

from __future__ import annotations

import ast
import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import boto3
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mdsx
from mdsx.format import filenames
from mdsx.storage import Storage, discard, open_storage, remove, remove_ours
from mdsx.storage.local import LocalStorage

PACKAGE = Path(mdsx.__file__).parent
OWNERS = {
    "unlink": {"storage/below.py"},
    "rmdir": {"storage/below.py"},
    "rmtree": set[str](),
    "delete": {"storage/removal.py"},
    "discard_unfinished": {"storage/removal.py"},
}
"""Who may call what removes."""

OURS = [
    "index.json", "shard.00000.mdsx", "shard.00012.mdsx.zst", "repaired-2.shard.00000.mdsx", "part-00000/index.json",
    "part-00001-0123456789abcdef/shard.00000.mdsx", "run-0123456789abcdef/part-00001-0123456789abcdef/_mdsx/alive",
    "index-" + "a" * 32 + ".json", "index.before-repair-0123456789abcdef.json", "_mdsx/writer.json",
    "_mdsx/journal.00000.json", "_convert/plan.json", "_convert/part.00000.json", "_convert/skipped.json",
    "_lengths/tokens.u32", "part-00000/_lengths/a=20b.u32", "run-0123456789abcdef/_run/alive", "_mdsx-tars.json",
    "_mdsx-tars/passes.json", "_mdsx-tars/0123456789abcdef.json", "_mdsx-tars/0123456789abcdef-0123456789abcdef.mdsx",
    "_mdsx-parquet.json", f"_selections/hard-{'a' * 32}.json", f"part-00000/_selections/a-1.b-{'0' * 32}.json",
    "_mdsx-tokens.json", "_mdsx-tokens/0123456789abcdef-00000-0123456789abcdef.table",
]  # fmt: skip
OTHERS = [
    "index.json.bak", "Index.json", "shard.0.mdsx", "shard.000001.mdsx", "shard.00000.mdsx.gz", "x/shard.00000.mdsx",
    "part-1/index.json", "part-00000/notes.txt", "part-00000/_convert/plan.json", "part-00000/x/index.json",
    "part-00000-0123456789ABCDEF/index.json", "index-" + "A" * 32 + ".json", "_mdsx/notes.txt", "_mdsx/writer.json.old",
    "_mdsx/x/writer.json", "_lengths/tokens.csv", "_lengths/sub/tokens.u32", "_convert/notes.json",
    f"_selections/{'a' * 32}.json", f"_selections/.a-{'a' * 32}.json", "_selections/hard.json", "_selections/notes.txt",
    "run-0123456789abcdef/notes", "_mdsx-tars/notes.mdsx", "_mdsx-tars/thesis/passes.json", "data-00000.tar",
    "README.md", "tally.march.31",
]  # fmt: skip


def test_one_module_removes() -> None:
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        if name.startswith("testing/"):  # tests, which remove what they made
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in OWNERS:
                assert name in OWNERS[node.func.attr], f"{name}:{node.lineno} calls {node.func.attr}"


def test_only_names_that_mdsx_makes_are_its_own() -> None:
    assert [key for key in OURS if not filenames.is_of_dataset(key)] == []
    assert [key for key in OTHERS if filenames.is_of_dataset(key)] == []


@given(st.sampled_from(OURS), st.data())
def test_a_name_that_looks_alike_is_not_removed(key: str, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(key)))
    alike = key[:place] + data.draw(st.sampled_from(["x", "~", " ", "/", "A"])) + key[place:]
    named = r"_lengths/[\w.=-]+\.u32|_selections/[\w.-]+-[0-9a-f]{32}\.json"  # a column or a selection of any name
    assert not filenames.is_of_dataset(alike) or re.fullmatch(f"(part-00000/)?({named})", alike) is not None


def test_nothing_is_removed_if_one_name_is_not_ours(tmp_path: Path) -> None:
    storage = open_storage(tmp_path)
    for key in (*OURS, "notes.txt"):
        storage.put(key, b"1")
    with pytest.raises(mdsx.UsageError, match=r"notes.txt: mdsx does not remove files that it did not write"):
        remove(storage, *OURS, "notes.txt")
    assert len(list(storage.list())) == len(OURS) + 1
    remove_ours(storage, list(storage.list()), but=["index.json"])
    assert [entry.key for entry in storage.list()] == ["index.json", "notes.txt"]


# --- links


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with files of somebody, some with names that mdsx makes."""
    home = tmp_path / "home"
    for key in ("thesis.tex", "chapters/one.tex", "passes.json", "text.u32", "writer.json", "shard.00000.mdsx"):
        (home / key).parent.mkdir(parents=True, exist_ok=True)
        (home / key).write_text("years of work")
    return home


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


VERBS: dict[str, Callable[[Storage, str], object]] = {
    "put": lambda storage, key: storage.put(key, b"theirs"),
    "create": lambda storage, key: storage.create(key, b"theirs"),
    "replace": lambda storage, key: storage.replace(key, b"theirs", etag=storage.get(key).etag),
    "remove": lambda storage, key: remove(storage, key),
    "discard": lambda storage, key: discard(storage, key.rpartition("/")[0] + "/"),
}


@pytest.mark.parametrize("key", ["_lengths/text.u32", "_mdsx/writer.json", "part-00000/shard.00000.mdsx"])
@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_nothing_happens_through_a_link(
    tmp_path: Path, home: Path, key: str, verb: Callable[[Storage, str], object]
) -> None:
    before = files(home)
    (tmp_path / "dataset").mkdir()
    (tmp_path / "dataset" / key).parent.symlink_to("../home")
    with pytest.raises(mdsx.UsageError, match="symbolic link") as raised:
        verb(open_storage(tmp_path / "dataset"), key)
    assert raised.value.file == str((tmp_path / "dataset" / key).parent)
    assert files(home) == before


def test_a_part_is_not_written_through_a_link(tmp_path: Path, home: Path) -> None:
    before = files(home)
    (tmp_path / "dataset").mkdir()
    (tmp_path / "dataset" / "part-00000").symlink_to("../home")
    storage = open_storage(tmp_path / "dataset" / "part-00000", write=True)
    for verb in VERBS.values():
        with pytest.raises(mdsx.UsageError, match="symbolic link"):
            verb(storage, "shard.00000.mdsx")
    assert files(home) == before


def test_the_folder_itself_may_be_a_link(tmp_path: Path, home: Path) -> None:
    (tmp_path / "data").symlink_to("home")
    storage = open_storage(tmp_path / "data" / "corpus")
    storage.put("_lengths/text.u32", b"1")
    assert (home / "corpus" / "_lengths" / "text.u32").read_bytes() == b"1"
    remove(storage, "_lengths/text.u32")
    assert not (home / "corpus" / "_lengths").exists()


def test_a_link_of_a_files_name_is_replaced_or_removed_itself(tmp_path: Path, home: Path) -> None:
    before, storage = files(home), open_storage(tmp_path / "dataset")
    storage.put("other", b"1")
    for change in (VERBS["put"], VERBS["replace"], VERBS["remove"]):
        (tmp_path / "dataset" / "shard.00000.mdsx").unlink(missing_ok=True)
        (tmp_path / "dataset" / "shard.00000.mdsx").symlink_to("../home/shard.00000.mdsx")
        change(storage, "shard.00000.mdsx")
        assert not (tmp_path / "dataset" / "shard.00000.mdsx").is_symlink()
    assert files(home) == before


def test_an_unfinished_file_that_is_a_link_stays(tmp_path: Path, home: Path) -> None:
    name = ".shard.00000.mdsx.0123456789abcdef.mdsx-tmp"
    (tmp_path / name).symlink_to("home/thesis.tex")
    discard(open_storage(tmp_path))
    assert (tmp_path / name).is_symlink()


@pytest.mark.parametrize("verb", ["put", "replace", "remove"])
@pytest.mark.parametrize("step", range(8))
def test_a_folder_swapped_for_a_link_leads_nowhere(
    tmp_path: Path, home: Path, verb: str, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The swap happens before operation number `step` of the system."""
    before, root = files(home), tmp_path / "dataset"
    storage = LocalStorage(root)
    storage.put("_lengths/text.u32", b"1")
    left = [step]

    def swap(*_: object) -> None:
        left[0] -= 1
        if left[0] == -1 and (root / "_lengths").is_dir():
            shutil.move(root / "_lengths", tmp_path / "aside")
            os.symlink(home, root / "_lengths")

    for name in ("open", "mkdir", "replace", "unlink", "rmdir", "stat"):
        original = getattr(os, name)

        def call(*arguments: Any, original: Any = original, **options: Any) -> Any:
            swap()
            return original(*arguments, **options)

        monkeypatch.setattr(os, name, call)
    with suppress(mdsx.MdsxError):
        VERBS[verb](storage, "_lengths/text.u32")
    monkeypatch.undo()
    assert files(home) == before


# --- uploads to S3


def test_uploads_of_others_are_not_aborted(tmp_path: Path, s3_url: str) -> None:
    """An export, a writer that resumes, and a clean, in a bucket where others upload."""
    client, bucket = boto3.client("s3"), s3_url.removeprefix("s3://")
    others = {"checkpoint-9000.pt", "data-00000.jsonl.bak", "db/backup.dump", "index.json.bak", "shard.0.mdsx"}
    for key in others:
        client.create_multipart_upload(Bucket=bucket, Key=key)

    def uploads() -> set[str]:
        return {upload["Key"] for upload in client.list_multipart_uploads(Bucket=bucket).get("Uploads", ())}

    with mdsx.Writer(tmp_path, {"x": "int64"}) as out:
        out.write({"x": 1})
    client.put_object(Bucket=bucket, Key="important.txt", Body=b"1")
    client.create_multipart_upload(Bucket=bucket, Key="data-00000.jsonl")
    with pytest.raises(mdsx.UsageError, match=r"not empty \(found important.txt\)"):
        mdsx.export("jsonl", tmp_path, s3_url)
    assert uploads() == others | {"data-00000.jsonl"}
    client.delete_object(Bucket=bucket, Key="important.txt")
    mdsx.clean(s3_url)
    mdsx.export("jsonl", tmp_path, s3_url)
    assert uploads() == others | {"data-00000.jsonl"}  # there was no record of an export of ours
    mdsx.export("jsonl", tmp_path, s3_url)
    assert uploads() == others
    with mdsx.Writer(s3_url, {"x": "int64"}, resume=True) as out:
        out.write({"x": 1})
    assert uploads() == others
